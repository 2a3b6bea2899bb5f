"""One declaration of a parameter serves library, command line and forms, and its bounds hold in each."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import typer
from support.cli import Cli

import rlfocal
from flows import RegenerationRequest
from rlfocal.base.errors import InputError
from rlfocal.cli.app import app
from rlfocal.evaluation import EvaluationRequest

PYTHON_ONLY = {"warehouse", "location", "on_progress", "beside", "force of train"}
"""Parameters that the command line gives in its own way, or not at all."""


@pytest.mark.parametrize("name", ["evaluate", "train", "extract"])
def test_library_and_command_line_take_the_same(name: str) -> None:
    options = {one.name: one for one in vars(typer.main.get_command(app))["commands"][name].params}
    for field, parameter in inspect.signature(getattr(rlfocal, name)).parameters.items():
        if not {field, f"{field} of {name}"} & PYTHON_ONLY:
            is_required = parameter.default is inspect.Parameter.empty
            assert options[field].required == is_required
            if not is_required and field != "at_once":  # all methods run side by side on the command line
                assert options[field].default == parameter.default


def test_the_form_of_a_flow_has_the_fields_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.learning import evaluate

    form = evaluate.parameters.properties
    fields = inspect.signature(rlfocal.evaluate).parameters.keys() - PYTHON_ONLY
    assert form.keys() - {"warehouse"} == fields
    assert all(len(field["description"]) > 20 for field in form.values())
    assert [form["seeds"][name] for name in ("minimum", "maximum", "default")] == [1, 1_000_000_000, 3]
    assert form["models"]["anyOf"][0]["minItems"] == 1


def train(**asked: Any) -> Any:
    return rlfocal.train(None, "b", **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EvaluationRequest("b", seeds=0), "seeds must be at least 1, got 0"),
        (lambda: EvaluationRequest("b", seeds=10**30), "seeds must be at most 1,000,000,000, got 1000"),
        (lambda: EvaluationRequest("b", tune=-1), "tune must be at least 0, got -1"),
        (lambda: EvaluationRequest("b", protocol="onlin"), "did you mean 'online'"),  # type: ignore[arg-type]
        (lambda: EvaluationRequest("b", methods="oracle"), "methods must be a list of names, got 'oracle'"),
        (lambda: EvaluationRequest("b", models=[]), r"models must name at least 1, got \[\]"),
        (lambda: RegenerationRequest("lab", limit=0), "limit must be at least 1, got 0"),
        (lambda: rlfocal.extract("lab", limit=0), "limit must be at least 1, got 0"),
        (lambda: train(seeds=0), "seeds must be at least 1, got 0"),
        (lambda: train(method=""), "method must not be empty, got ''"),
    ],
)
def test_values_out_of_bounds_are_refused_with_the_value(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["evaluate", "-b", "b", "--seeds", "0"],
            "'--seeds': Input should be greater than or equal to 1, got '0'",
        ),
        (["snapshots", "--last", "1" + "0" * 30], "--last must be at most 1,000,000,000, got 1000"),
        (["evaluate", "-b", "b", "--protocol", "onlin"], "'onlin' is not one of 'frozen', 'online', 'both'"),
        (["evaluate", "-b", "b", "--no-force"], "No such option: --no-force"),
    ],
)
def test_so_they_are_on_the_command_line(cli: Cli, words: list[str], message: str) -> None:
    result = cli(*words)
    assert result.code == 2
    assert message in result.err


def test_numbers_of_numpy_and_tuples_are_taken() -> None:
    request = EvaluationRequest("b", seeds=np.int64(2), models=("m", "n"))  # type: ignore[arg-type]
    assert (request.seeds, request.models) == (2, ("m", "n"))


def test_a_worker_process_gets_the_request_itself() -> None:
    request = EvaluationRequest("b", methods=["oracle"], budgets=["2"], seeds=1)
    assert pickle.loads(pickle.dumps(request)) == request

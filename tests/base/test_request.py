"""One declaration of a command's parameters serves library, command line and forms."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import typer

import rlfocal
from flows import RegenerationRequest
from rlfocal.base.errors import InputError
from rlfocal.base.request import asked_by
from rlfocal.cli.app import app
from rlfocal.evaluation import EvaluationRequest, TrainingRequest
from rlfocal.extraction import ExtractionRequest

SERVED: dict[str, tuple[type, Callable[..., Any] | None]] = {
    "evaluate": (EvaluationRequest, rlfocal.evaluate),
    "train": (TrainingRequest, rlfocal.train),
    "extract": (ExtractionRequest, rlfocal.extract),
    "regenerate": (RegenerationRequest, None),
}
PYTHON_ONLY = {"force of train", "minutes_per_model of regenerate"}


@pytest.mark.parametrize("name", SERVED)
def test_library_and_command_line_take_what_the_request_declares(name: str) -> None:
    request, function = SERVED[name]
    asked = asked_by(request)
    options = {one.name: one for one in vars(typer.main.get_command(app))["commands"][name].params}
    for field, one in asked.items():
        if f"{field} of {name}" not in PYTHON_ONLY:
            assert field in options
            assert options[field].required == (one.default is inspect.Parameter.empty)
        if function is not None:
            assert inspect.signature(function).parameters[field].default == one.default
            assert one.option.help in str(function.__doc__)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EvaluationRequest("b", seeds=0), "seeds must be at least 1, got 0"),
        (lambda: EvaluationRequest("b", seeds=10**30), "seeds must be at most 1,000,000,000, got 1000"),
        (lambda: EvaluationRequest("b", tune=-1), "tune must be at least 0, got -1"),
        (lambda: EvaluationRequest("b", protocol="onlin"), "did you mean 'online'"),  # type: ignore[arg-type]
        (lambda: EvaluationRequest("b", methods="oracle"), "methods must be a list of names, got 'oracle'"),
        (lambda: ExtractionRequest("lab", limit=0), "limit must be at least 1, got 0"),
    ],
)
def test_values_out_of_bounds_are_refused_with_the_value(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_a_worker_process_gets_the_request_itself() -> None:
    request = EvaluationRequest("b", methods=["oracle"], budgets=["2"], seeds=1)
    assert pickle.loads(pickle.dumps(request)) == request

"""`rlfocal explain` and what the report makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cli import Cli, Result
from support.rows import rename

from rlfocal.base.names import RL_FOCAL
from rlfocal.evaluation import EvaluationRequest
from rlfocal.evaluation.running import evaluate_apart
from warehouse import open_warehouse

METHODS = RL_FOCAL[:2]


@pytest.mark.slow
def test_explain_command_and_report_agree(toy: Result, cli: Cli) -> None:
    def run(*arguments: str) -> str:
        result = cli(*arguments)
        assert result.code == 0, result.err
        return result.out

    methods = "best_single,rl_focal,rl_focal_sequential"
    run("evaluate", "-b", "toy", "--methods", methods, "--seeds", "1")
    page = Path(run("report").strip())
    assert "What it learned" not in page.read_text()
    evaluated = json.loads(run("evaluate", "-b", "toy", "--methods", methods, "--seeds", "1", "--json"))
    for method in METHODS:
        [row] = [row for row in evaluated if row["method"] == method and row["task"] == "*"]
        said = json.loads(run("explain", "-b", "toy", "--method", method, "--json"))
        assert (said["n"], said["accuracy"]) == (row["n"], row["accuracy"])
        assert said["mean_pool_size"] == pytest.approx(row["mean_pool_size"])
        assert f"What {method} learned on toy" in run("explain", "-b", "toy", "--method", method)
        assert f"What {method} learned on toy" in Path(run("report").strip()).read_text()
    text = page.read_text()
    assert "Which models could be dropped" in text
    # Of another name of a model nothing is known any more.
    with open_warehouse() as warehouse:
        rename(warehouse, "weak", "feeble")
    assert "What it learned" not in Path(run("report").strip()).read_text()


def test_a_regeneration_keeps_what_was_learned(toy: Result, cli: Cli, tmp_path: Path) -> None:
    """So the report shows it after `make demo`."""
    place = tmp_path / ".rlfocal" / "warehouse"
    request = EvaluationRequest("toy", methods=["rl_focal_sequential"], seeds=2)
    ran = evaluate_apart(place, request).ran
    page = Path(cli("report").out.strip()).read_text()
    assert "What rl_focal_sequential learned on toy, seed 0" in page
    kept = {path: path.stat().st_mtime_ns for path in (place / "explanations").iterdir()}
    assert {path.stem for path in kept} < set(ran)
    assert evaluate_apart(place, request).ran == ()
    assert {path: path.stat().st_mtime_ns for path in (place / "explanations").iterdir()} == kept


def test_it_trains_what_is_missing_and_explains_each_split(toy: Result, cli: Cli) -> None:
    arguments = ("explain", "-b", "toy", "--method", "rl_focal_sequential", "--split", "last", "--json")
    said = json.loads(cli(*arguments).out)
    assert (said["split"], said["n"], said["n_train"]) == ("last", 10, 40)


@pytest.mark.usefixtures("toy")
def test_bad_input_is_named(cli: Cli) -> None:
    for arguments, message in (
        (["-b", "toi"], "did you mean 'toy'"),
        (["-b", "toy", "--method", "stacking"], "unknown method 'stacking'"),
        (["-b", "toy", "--models", "strong"], "has one model"),
        (["-b", "toy", "--split", "tasks"], "too few to hold out"),
    ):
        result = cli("explain", *arguments)
        assert result.code == 2
        assert message in result.err

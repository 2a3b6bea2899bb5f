"""Evaluations of tuned methods: what is stored and shown, and that no test label chooses a setting."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.cli import Cli

from rlfocal.base.errors import RunError
from rlfocal.evaluation import evaluate
from rlfocal.evaluation.leaderboard import leaderboard
from rlfocal.evaluation.merits import budget_curves
from warehouse import Warehouse, open_warehouse

LIKELY = 0.7
"""Share of topics on which the first model is right; the second is right on the others."""


def put_topics(folder: Path, *, permuted: bool = False) -> Path:
    """40 topics, each in words of its own: 6 train and 2 test documents on each, where one model is right.

    Of 50 neighbours most are of other topics, so that the default of `knn` asks the first model always.
    `permuted`: the test labels change places.
    """
    rng = np.random.default_rng(3)
    topics = np.repeat(np.arange(40), 8)
    n = len(topics)
    labels = rng.integers(0, 3, n)
    splits = np.tile(["train"] * 6 + ["test"] * 2, 40)
    first_knows = (rng.random(40) < LIKELY)[topics]
    said = np.stack([np.where(k, labels, (labels + 1) % 3) for k in (first_knows, ~first_knows)], axis=1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [f"{letters[t % 26]}{letters[t // 26]}x " * 3 for t in range(40)]
    if permuted:
        labels[splits == "test"] = rng.permutation(labels[splits == "test"])
    keys = {"benchmark": ["b"] * n, "task": ["t"] * n, "doc_id": list(range(n))}
    with open_warehouse(folder) as warehouse, warehouse.transaction("fill"):
        about = {"label": pa.array(labels, pa.int32()), "split": splits.tolist()}
        text = {"question": [words[topic] for topic in topics], "choices": [["p", "q", "r"]] * n}
        warehouse.append("docs", pa.table(keys | about | text))
        warehouse.append("models", pa.table({"model": ["k", "m"]}))
        for model, of in zip(("k", "m"), said.T, strict=True):
            for choice in range(3):
                logprobs = np.where(of == choice, 0, -1.0)
                row = {"model": [model] * n, "choice": [choice] * n, "logprob": logprobs}
                warehouse.append("choice_logprobs", pa.table(keys | row))
    return folder


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluated as they are, and tuned."""
    folder = put_topics(tmp_path_factory.mktemp("tuning") / "warehouse")
    with open_warehouse(folder) as warehouse:
        evaluate(warehouse, "b", methods=["knn", "best_single"])
        evaluate(warehouse, "b", methods=["knn", "best_single"], tune=8, budgets=["1"])
    return folder


@pytest.fixture
def opened(tuned: Path) -> Iterator[Warehouse]:
    with open_warehouse(tuned) as warehouse:
        yield warehouse


def settings_of(warehouse: Warehouse, **about: Any) -> Mapping[str, Any]:
    report = evaluate(warehouse, "b", methods=["knn"], **about)
    [row] = [row for row in report.rows if row.task == "*" and row.budget is None]
    return row.settings


def test_bad_defaults_do_better_on_test_once_they_are_tuned(opened: Warehouse) -> None:
    plain, better = leaderboard(opened)
    assert (plain.trials, better.trials) == (0, 8)
    before = next(s for s in plain.rows if s.method == "knn")
    after = next(s for s in better.rows if s.method == "knn")
    assert before.accuracy < 0.8
    assert after.accuracy > 0.95
    assert after.settings["k"] < 12
    assert after.mean_pool_size == before.mean_pool_size == 1
    assert after.chosen == f"k={after.settings['k']}"


def test_tuned_rows_stand_beside_those_with_nothing_to_tune_alone(opened: Warehouse) -> None:
    plain, better = leaderboard(opened)
    for board in (plain, better):
        assert {s.method for s in board.rows} == {"knn", "best_single"}
    best = next(s for s in better.rows if s.method == "best_single")
    assert best.chosen == "no settings to tune"
    [(method, settings)] = opened.rows(
        "SELECT method, settings FROM current_evaluations "
        "WHERE task = '*' AND (settings->>'$.tuned') = '8' AND budget IS NULL"
    )
    assert method == "knn"
    assert json.loads(settings).keys() == {"k", "tuned"}
    singles = "SELECT count(*) FROM evaluations WHERE method = 'best_single' AND task = '*'"
    assert opened.rows(singles) == [(1,)]
    assert [curve.method for curve in budget_curves(opened, better)] == ["knn"]
    assert budget_curves(opened, plain) == ()


def test_tuned_runs_are_stored_once(opened: Warehouse) -> None:
    before = opened.snapshot()
    report = evaluate(opened, "b", methods=["knn", "best_single"], tune=8, budgets=["1"])
    assert report.ran == ()
    assert opened.snapshot() == before
    assert evaluate(opened, "b", methods=["knn"], tune=2).ran  # another search


def test_test_labels_choose_no_settings(opened: Warehouse, tmp_path: Path) -> None:
    with open_warehouse(put_topics(tmp_path / "other", permuted=True)) as other:
        labels = "SELECT label FROM docs ORDER BY doc_id"
        assert other.rows(labels) != opened.rows(labels)
        assert settings_of(other, tune=8) == settings_of(opened, tune=8)


def test_given_settings_are_not_tuned_and_stay_off_the_leaderboard(opened: Warehouse) -> None:
    assert settings_of(opened, tune=2, settings=["knn.k=7"]) == {"k": "7"}
    rows = evaluate(opened, "b", methods=["knn"], tune=2, settings=["knn.k=7"]).rows
    assert {row.study for row in rows} == {"settings"}


@pytest.mark.slow
def test_methods_are_tuned_side_by_side_as_one_after_the_other(opened: Warehouse, tmp_path: Path) -> None:
    names = ["knn", "log_linear"]
    seen: list[tuple[str, float]] = []
    with open_warehouse(put_topics(tmp_path / "other")) as other:
        report = evaluate(
            other, "b", methods=names, tune=8, at_once=2, on_progress=lambda *told: seen.append(told)
        )
        by_method = {row.method: row.settings for row in report.rows if row.task == "*"}
    assert by_method["knn"] == settings_of(opened, tune=8)
    assert by_method["log_linear"]["tuned"] == 8
    assert {("b knn tuning", 1 / 8), ("b log_linear tuning", 1.0)} <= set(seen)


def test_what_cannot_be_tuned_ends_the_command(tmp_path: Path, cli: Cli) -> None:
    folder = put_topics(tmp_path / "w")
    with open_warehouse(folder) as warehouse, warehouse.transaction("fewer"):
        warehouse.connection.execute("UPDATE docs SET split = 'test' WHERE doc_id > 1")
    for trials, told in (("-1", "--tune"), ("2", "too few train documents (2)")):
        refused = cli("evaluate", "-b", "b", "--methods", "knn", "--tune", trials, "-w", str(folder))
        assert refused.code == 2
        assert told in refused.err


def test_a_reason_that_several_methods_fail_for_is_given_once(opened: Warehouse) -> None:
    names, nowhere = ["knn", "guarded_knn"], "encoder=/nowhere"
    with pytest.raises(RunError) as raised:
        evaluate(opened, "b", methods=names, settings=[nowhere], at_once=2)
    assert str(raised.value).count("encoder '/nowhere'") == 1
    assert all(name in str(raised.value) for name in names)

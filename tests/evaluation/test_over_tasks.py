"""The mean over tasks of evaluated methods: what is read, which documents count, what commands show."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from rlfocal.cli.app import app
from rlfocal.evaluation import evaluate
from rlfocal.evaluation.leaderboard import leaderboard
from rlfocal.evaluation.merits import over_tasks
from warehouse import Warehouse

SIZES = {"a": 40, "b": 10, "c": 6}


def put_tasks(warehouse: Warehouse, rng: np.random.Generator) -> dict[str, dict[str, list[bool]]]:
    """Two models on tasks of unequal sizes, half of each train; what each was right on, by model and task."""
    rights: dict[str, dict[str, list[bool]]] = {"k": {}, "m": {}}
    with warehouse.transaction("fill"):
        warehouse.append("models", pa.table({"model": list(rights)}))
        for at, (task, n) in enumerate(SIZES.items()):
            keys = {"benchmark": ["b"] * n, "task": [task] * n, "doc_id": list(range(n))}
            splits = {"label": pa.array([0] * n, pa.int32()), "split": ["train", "test"] * (n // 2)}
            warehouse.append("docs", pa.table(keys | splits))
            for model, chance in (("k", 0.9), ("m", 0.2 + 0.3 * at)):
                rights[model][task] = right = (rng.random(n) < chance).tolist()
                for choice in (0, 1):
                    scores = [0.0 if (choice == 0) == r else -1.0 for r in right]
                    row = {"model": [model] * n, "choice": [choice] * n, "logprob": scores}
                    warehouse.append("choice_logprobs", pa.table(keys | row))
    return rights


@pytest.mark.parametrize("per", ["benchmark", "task"])
def test_means_and_intervals_are_those_of_the_tasks(warehouse: Warehouse, per: str) -> None:
    rights = put_tasks(warehouse, np.random.default_rng(0))
    asked = ["best_single", "single:m", "plurality"]
    evaluate(warehouse, "b", methods=asked, seeds=1, per="task" if per == "task" else "benchmark")
    [board] = leaderboard(warehouse)
    found = over_tasks(warehouse, board)
    assert found.keys() == set(asked)
    test = {task: np.array(right[1::2], dtype=float) for task, right in rights["m"].items()}
    single = found["single:m"]
    expected = np.mean([right.mean() for right in test.values()])
    assert single.n_tasks == 3
    assert single.by_documents.mean == single.by_tasks.mean == pytest.approx(expected)
    by_name = {s.method: s for s in board.standings}
    for name, of in found.items():
        assert of.by_documents.mean == pytest.approx(by_name[name].task_mean)
    rng = np.random.default_rng(1)
    within = [np.mean([rng.choice(r, len(r)).mean() for r in test.values()]) for _ in range(4000)]
    low, high = np.quantile(within, [0.025, 0.975])
    assert (single.by_documents.low, single.by_documents.high) == pytest.approx((low, high), abs=0.03)
    means = [r.mean() for r in test.values()]
    assert (single.by_tasks.low, single.by_tasks.high) == pytest.approx((min(means), max(means)))
    if per == "benchmark":  # best_single is k on every task
        less = {task: right - np.array(rights["k"][task][1::2], dtype=float) for task, right in test.items()}
        within = [np.mean([rng.choice(d, len(d)).mean() for d in less.values()]) for _ in range(4000)]
        fixed, drawn = single.above_by_documents, single.above_by_tasks
        assert fixed is not None
        assert drawn is not None
        assert fixed.mean == drawn.mean == pytest.approx(np.mean([d.mean() for d in less.values()]))
        assert (fixed.low, fixed.high) == pytest.approx(np.quantile(within, [0.025, 0.975]), abs=0.03)
        ends = min(d.mean() for d in less.values()), max(d.mean() for d in less.values())
        assert (drawn.low, drawn.high) == pytest.approx(ends)
    assert found["best_single"].above_by_tasks is None


@pytest.mark.slow
def test_evaluate_shows_them(warehouse: Warehouse) -> None:
    put_tasks(warehouse, np.random.default_rng(0))
    where = [
        "evaluate",
        "-b",
        "b",
        "--methods",
        "best_single,plurality",
        "-w",
        str(warehouse.location.directory),
    ]
    warehouse.connection.close()
    runner = CliRunner(env={"COLUMNS": "120"})
    for option in ("--all", "--merit"):
        shown = " ".join(runner.invoke(app, [*where, option]).output.split())
        assert "mean over 3 tasks" in shown
        assert ("vs best_single, by docs" in shown) == (option == "--merit")
    [board] = json.loads(runner.invoke(app, [*where, "--merit", "--json"]).output)
    of = {m["method"]: m["over_tasks"] for m in board["methods"]}
    told = of["plurality"]
    assert told["by_tasks"]["low"] <= told["by_documents"]["mean"] <= told["by_tasks"]["high"]
    assert told["above_by_documents"]["p_value"] > 0
    assert of["best_single"]["above_by_tasks"] is None


def test_one_task_has_no_mean_over_tasks(warehouse: Warehouse) -> None:
    put_tasks(warehouse, np.random.default_rng(0))
    with warehouse.transaction("one task"):
        for table in ("docs", "choice_logprobs"):
            warehouse.connection.execute(f"DELETE FROM {table} WHERE task <> 'a'")
    evaluate(warehouse, "b", methods=["best_single"], seeds=1)
    [board] = leaderboard(warehouse)
    assert not over_tasks(warehouse, board)

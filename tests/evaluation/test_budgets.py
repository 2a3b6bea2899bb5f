"""Budgets: one fit decides at each, what cannot keep to one is remembered, and the figures of merit."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from support.budget_policies import SAYS, FirstModels, held
from support.cli import Cli
from support.rows import put_choices

from rlfocal.base.errors import InputError
from rlfocal.data.policy import Budget
from rlfocal.evaluation import evaluate
from rlfocal.evaluation.leaderboard import leaderboard
from rlfocal.evaluation.merits import average_over_tasks, budget_curves, merits
from rlfocal.statistics.cost_curves import apgr
from rlfocal.statistics.intervals import mean_over_tasks, paired_over_tasks
from warehouse import Warehouse


def test_one_fit_decides_at_every_budget_and_never_again(warehouse: Warehouse) -> None:
    put_choices(warehouse, SAYS)
    method = FirstModels()
    expected = [(None, 3.0, 3.0), ("2", 2.0, 2.0), ("inf", 3.0, 3.0)]
    assert held(warehouse, method, "1", "2", "all") == expected
    assert method.fits == 1
    assert held(warehouse, method, "1", "2", "all") == expected
    assert method.fits == 1
    assert warehouse.rows("SELECT method, budget FROM ruled_out") == [("first_ones", "1")]


def test_budgets_stay_off_the_leaderboard_and_make_a_curve(warehouse: Warehouse) -> None:
    put_choices(warehouse, SAYS)
    held(warehouse, FirstModels(), "2", "all")
    evaluate(warehouse, "b", methods=["best_single", "oracle"], seeds=1)
    [board] = leaderboard(warehouse)
    assert [s.method for s in board.rows].count("first_ones") == 1
    [curve] = budget_curves(warehouse, board)
    assert [(p.budget, p.mean_pool_size) for p in curve.points] == [("2", 2.0), ("inf", 3.0)]
    [row] = warehouse.rows(
        "SELECT DISTINCT pool, rounds, probability FROM decisions JOIN evaluations USING (run_id, task) "
        "WHERE budget = '2'"
    )
    assert row == (["a", "b"], [{"model": "a", "round": 1}, {"model": "b", "round": 2}], 0.5)


BRIER = """
SELECT e.method, avg((d.probability - d.correct::INT) ** 2)
FROM decisions AS d JOIN (SELECT DISTINCT run_id, method FROM evaluations) AS e USING (run_id) GROUP BY ALL
"""


def test_merits_are_what_the_definitions_say(warehouse: Warehouse) -> None:
    put_choices(warehouse, SAYS)
    held(warehouse, FirstModels())
    evaluate(warehouse, "b", methods=["best_single", "plurality", "soft_vote", "oracle"], seeds=1)
    [board] = leaderboard(warehouse)
    found = {m.method: m for m in merits(warehouse, board)}
    brier = dict(warehouse.rows(BRIER))
    assert len({score for score in brier.values() if score is not None}) > 1
    by_name = {s.method: s.accuracy for s in board.rows}
    assert "oracle" not in found
    for name, m in found.items():
        assert m.gain == pytest.approx(by_name[name] / by_name["best_single"] - 1)
        assert m.brier == pytest.approx(brier[name] if brier[name] is not None else np.nan, nan_ok=True)
        assert m.gap_to_oracle == pytest.approx(1 - by_name[name] / by_name["oracle"])
    ones = found["first_ones"]
    assert ones.brier == pytest.approx(0.25)
    assert ones.ece == pytest.approx(abs(0.5 - by_name["first_ones"]))
    assert np.isnan(found["best_single"].p_best_single)
    assert ones.p_best_single >= 0


@pytest.mark.slow
def test_apgr_is_over_the_share_of_strong_calls(warehouse: Warehouse) -> None:
    put_choices(warehouse, SAYS)
    with warehouse.transaction("prices"):
        warehouse.connection.execute("UPDATE models SET price = CASE model WHEN 'a' THEN 2 ELSE 3 END")
    held(warehouse, FirstModels(), "2", "all")
    evaluate(warehouse, "b", methods=["best_single", "oracle"], seeds=1)
    [board] = leaderboard(warehouse)
    [ones] = [m for m in merits(warehouse, board) if m.method == "first_ones"]
    assert 0 <= ones.aiq <= 1
    strong, weak = board.singles[0], next(s for s in board.singles if s.model == "a")
    [curve] = budget_curves(warehouse, board)
    asked = sorted(SAYS)
    expected = [float(strong.model in asked[:2]), 1.0]
    assert [p.strong_share for p in curve.points] == expected
    own = np.array([p.accuracy for p in curve.points])
    expected_apgr = apgr(np.array(expected), own, weak.accuracy, strong.accuracy)
    assert ones.apgr == pytest.approx(expected_apgr, nan_ok=True)


@pytest.mark.parametrize("text", ["0", "-1", "four", "", "c", "nan", "1e"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a budget"):
        Budget.parse(text)
    assert str(Budget.parse("120c")) == "120c"
    assert str(Budget.parse("4")) == "4"


def test_the_commands_print_budgets_and_merits(warehouse: Warehouse, cli: Cli) -> None:
    put_choices(warehouse, SAYS)
    where = str(warehouse.location.directory)
    warehouse.connection.close()
    asked = ["--methods", "best_single,plurality,best_plurality", "--budgets", "1,all", "-w", where]
    shown = " ".join(cli("evaluate", "-b", "b", *asked, "--merit").out.split())  # long titles are wrapped
    assert "by budget" in shown
    assert "AURC" in shown
    merits = cli("evaluate", "-b", "b", *asked, "--merit", "--json").out
    assert json.loads(merits, parse_constant=pytest.fail)[0]["methods"]
    refused = cli("evaluate", "-b", "b", "--budgets", "lots", "-w", where)
    assert refused.code == 2
    assert "'lots'" in refused.err


@pytest.mark.slow
def test_methods_side_by_side_store_what_they_store_one_by_one(warehouse: Warehouse) -> None:
    put_choices(warehouse, SAYS)
    names = ["plurality", "log_linear"]
    apart = evaluate(warehouse, "b", methods=names, at_once=2)
    stored_apart = {(row.run_id, row.task): row.accuracy for row in apart.rows}
    assert len(apart.ran) == len(names)
    assert not evaluate(warehouse, "b", methods=names, at_once=2).ran
    together = evaluate(warehouse, "b", methods=names, force=True)
    assert {(row.run_id, row.task): row.accuracy for row in together.rows} == stored_apart


def test_settings_make_runs_of_their_own_off_the_leaderboard(warehouse: Warehouse) -> None:
    put_choices(warehouse, SAYS)
    usual = evaluate(warehouse, "b", methods=["plurality", "best_single"])
    for wrong, told in (("plurality.k=3", "unknown setting 'k'"), ("k", "'k' is not a setting")):
        with pytest.raises(InputError, match=told):
            evaluate(warehouse, "b", methods=["plurality"], settings=[wrong])
    assert not evaluate(warehouse, "b", methods=["plurality"], settings=["encoder=x"]).ran
    [board] = leaderboard(warehouse)
    assert {s.method for s in board.rows} == {row.method for row in usual.rows}


# The mean over tasks


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
    found = average_over_tasks(warehouse, board)
    assert found.keys() == set(asked)
    test = {task: np.array(right[1::2], dtype=float) for task, right in rights["m"].items()}
    tasks = np.repeat(list(test), [len(right) for right in test.values()])
    single = found["single:m"]
    expected = np.mean([right.mean() for right in test.values()])
    assert single.n_tasks == 3
    assert single.by_documents.mean == single.by_tasks.mean == pytest.approx(expected)
    by_name = {s.method: s for s in board.rows}
    for name, of in found.items():
        assert of.by_documents.mean == pytest.approx(by_name[name].task_mean)
    # The intervals are those of the tasks' documents, and of the tasks.
    own, of_k = (
        np.concatenate([np.array(right[1::2], dtype=float) for right in rights[m].values()])[None]
        for m in "mk"
    )
    alone, above = mean_over_tasks(own, tasks), paired_over_tasks(own, of_k, tasks)
    assert (single.by_documents.low, single.by_documents.high) == pytest.approx((alone.low, alone.high))
    whole = mean_over_tasks(own, tasks, whole=True)
    assert (single.by_tasks.low, single.by_tasks.high) == pytest.approx((whole.low, whole.high))
    if per == "benchmark":  # best_single is k on every task
        less = [own[0, tasks == task].mean() - of_k[0, tasks == task].mean() for task in test]
        fixed, drawn = single.above_by_documents, single.above_by_tasks
        assert fixed is not None
        assert drawn is not None
        assert fixed.mean == drawn.mean == pytest.approx(np.mean(less))
        assert (fixed.low, fixed.high) == pytest.approx((above.low, above.high))
        over = paired_over_tasks(own, of_k, tasks, whole=True)
        assert (drawn.low, drawn.high) == pytest.approx((over.low, over.high))
    assert found["best_single"].above_by_tasks is None


def test_one_task_has_no_mean_over_tasks(warehouse: Warehouse) -> None:
    put_tasks(warehouse, np.random.default_rng(0))
    with warehouse.transaction("one task"):
        for table in ("docs", "choice_logprobs"):
            warehouse.connection.execute(f"DELETE FROM {table} WHERE task <> 'a'")
    evaluate(warehouse, "b", methods=["best_single"], seeds=1)
    [board] = leaderboard(warehouse)
    assert not average_over_tasks(warehouse, board)

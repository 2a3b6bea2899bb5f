"""What decides in trained methods is stored and shown, with `rl_focal`'s start beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlfocal.data.loading import load_dataset
from rlfocal.evaluation import EvaluationRequest, Setup
from rlfocal.evaluation.explaining import explain
from rlfocal.evaluation.fitting import decide_groups
from rlfocal.evaluation.leaderboard import leaderboard
from rlfocal.evaluation.running import evaluate
from rlfocal.evaluation.storing import Evaluation
from rlfocal.methods import RLFocal
from rlfocal.methods.log_linear import fit_log_linear
from rlfocal.methods.rl_focal.agents import RLFocalAgents
from rlfocal.report.explained import heading
from rlfocal.report.tables import results_table
from warehouse import Warehouse

CONTROLS = ("rl_focal_start", "log_linear_team")


def pooled(rows: tuple[Evaluation, ...]) -> dict[str, Evaluation]:
    return {row.method: row for row in rows if row.task == "*"}


def test_the_start_of_rl_focal_stands_beside_it_and_what_decides_is_said(studied: Warehouse) -> None:
    rows = pooled(evaluate(studied, "b", methods=["rl_focal"], seeds=1).rows)
    data = load_dataset(studied, "b")
    own = RLFocal(store=Setup(studied, data, EvaluationRequest("b")).store)
    agents = own.load_agents(replace(data, tasks=np.full(len(data), "all")).train, 0)
    assert isinstance(agents, RLFocalAgents)
    assert agents.simple_policies is not None

    def accuracy(policy: RLFocalAgents | object) -> float:
        every = np.ones(len(data), dtype=np.bool_)
        decided = decide_groups(data, [every], [policy])  # type: ignore[list-item]
        return float(data.test.is_right(decided.predictions).mean())

    assert rows["rl_focal"].deciding == [agents.simple_policies.deciding_policies[-1]]
    assert rows["rl_focal"].accuracy == accuracy(agents)
    assert rows["rl_focal_start"].deciding == ["start"]
    assert rows["rl_focal_start"].accuracy == accuracy(agents.restore_start())
    assert rows["rl_focal_start"].mean_pool_size == agents.team.sum()
    assert rows["log_linear_team"].accuracy == accuracy(fit_log_linear(data.train, agents.team))
    assert rows["log_linear_team"].deciding is None
    assert not studied.rows("SELECT 1 FROM training_history WHERE method = 'rl_focal_start'")
    for name, row in rows.items():
        asked = studied.rows(
            "SELECT count(DISTINCT pool), max(n) / sum(n) FROM (SELECT pool, count(*) AS n FROM decisions "
            "WHERE run_id = ? GROUP BY pool)",
            [row.run_id],
        )
        assert asked == [(row.n_pools, pytest.approx(row.commonest_pool))], name
    [board] = leaderboard(studied)
    by_name = {standing.method: standing for standing in board.rows}
    assert by_name["rl_focal"].deciding == ((agents.simple_policies.deciding_policies[-1], 1),)
    for name in CONTROLS:  # each is compared with, and none is the best rival
        assert by_name[name].ours_above.keys() == {"rl_focal"}
    assert board.rival is not None
    assert board.rival.method not in CONTROLS
    table = results_table(board)
    shown = {row[0]: row[table.header.index("decides")] for row in table.rows}
    assert shown["rl_focal"].startswith(agents.simple_policies.deciding_policies[-1])
    assert shown["best_single"] == "–"


def test_the_start_keeps_to_a_budget_in_cents_whether_agents_are_loaded_or_fitted(studied: Warehouse) -> None:
    for method in ("rl_focal_start", "rl_focal", "rl_focal_start"):  # the last one loads a checkpoint
        rows = evaluate(studied, "b", methods=[method], budgets=["1000c"], seeds=1, force=True).rows
        assert {row.budget for row in rows if row.method == "rl_focal_start"} == {None, "1000c"}


def test_fits_for_each_task_say_what_decides_in_each(studied: Warehouse) -> None:
    rows = evaluate(studied, "b", methods=["rl_focal"], seeds=1, per="task").rows
    deciding = {row.task: row.deciding for row in rows if row.method == "rl_focal"}
    assert deciding["*"] == [*(deciding["s"] or ()), *(deciding["t"] or ())]
    assert len(deciding["*"]) == 2
    [standing] = [s for s in leaderboard(studied)[0].rows if s.method == "rl_focal"]
    assert sum(n for _, n in standing.deciding) == 2


def test_a_run_within_a_budget_does_not_say_what_decides_without_one(studied: Warehouse) -> None:
    evaluate(studied, "b", methods=["rl_focal"], seeds=1, budgets=["2"])
    told = dict(studied.rows("SELECT budget, deciding FROM runs WHERE method = 'rl_focal'"))
    assert told["2"] is None
    assert told[None]


@pytest.mark.slow
def test_the_start_is_the_same_with_agents_that_are_stored_and_without(studied: Warehouse) -> None:
    first = pooled(evaluate(studied, "b", methods=["rl_focal_start"], seeds=1).rows)["rl_focal_start"]
    evaluate(studied, "b", methods=["rl_focal"], seeds=1)
    again = evaluate(studied, "b", methods=list(CONTROLS), seeds=1, force=True)
    assert pooled(again.rows)["rl_focal_start"].accuracy == first.accuracy


@pytest.mark.parametrize("method", ["rl_focal_sequential", pytest.param("rl_focal", marks=pytest.mark.slow)])
def test_explain_says_what_decides(studied: Warehouse, method: str) -> None:
    evaluate(studied, "b", methods=[method], seeds=1)
    row = next(s for s in leaderboard(studied)[0].rows if s.method == method)
    told = explain(studied, "b", method=method)
    assert told.deciding == row.deciding
    assert (told.n_pools,) == row.n_pools
    assert told.commonest_pool == row.commonest_pool
    assert told.deciding[0][0] in heading(told)


def test_what_decides_is_not_known_of_other_policies(studied: Warehouse) -> None:
    row = pooled(evaluate(studied, "b", methods=["plurality"], seeds=1).rows)["plurality"]
    assert (row.deciding, row.n_pools, row.commonest_pool) == (None, 1, 1.0)

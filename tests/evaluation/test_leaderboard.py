"""The leaderboard and its verdicts, from a real warehouse filled with generated answers and decisions."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pytest
from rich.console import Console
from support.report_lab import MODELS, PRICES, Lab

from rlfocal.evaluation.conclusion import conclude
from rlfocal.evaluation.leaderboard import Board, LeaderboardRow, leaderboard
from rlfocal.evaluation.verdicts import title, verdict, verdict_table
from rlfocal.methods import entry_of, find_methods, methods_for
from rlfocal.statistics.intervals import Interval, paired_difference
from warehouse.corrections import remove_model


def standing(board: Board, method: str) -> LeaderboardRow:
    [found] = (s for s in board.rows if s.method == method)
    return found


def test_a_standing_is_the_mean_over_seeds_with_both_standard_errors(
    evaluated_lab: Lab, boards: list[Board]
) -> None:
    board, _ = boards
    [ours] = board.ours
    per_seed = np.array([run.accuracy for run in ours.runs])
    assert [run.seed for run in ours.runs] == [0, 1, 2]
    assert ours.accuracy == pytest.approx(per_seed.mean())
    assert ours.stderr_seeds == pytest.approx(per_seed.std(ddof=1) / np.sqrt(3))
    assert ours.stderr_docs == pytest.approx(np.sqrt(ours.accuracy * (1 - ours.accuracy) / 300))
    best_single = standing(board, "best_single")
    assert best_single.stderr_seeds is None
    assert best_single.against_baseline is None
    assert best_single.accuracy == pytest.approx(evaluated_lab.right["facts"][:, 0].mean())


def test_single_models_are_judged_on_test_documents(evaluated_lab: Lab, boards: list[Board]) -> None:
    board, _ = boards
    expected = {model: evaluated_lab.right["facts"][:, i].mean() for i, model in enumerate(MODELS)}
    assert {s.model: s.accuracy for s in board.singles} == pytest.approx(expected)
    assert {s.model: s.cost for s in board.singles} == dict(zip(MODELS, PRICES, strict=True))
    assert {s.n for s in board.singles} == {300}


def test_the_difference_to_best_single_is_paired(evaluated_lab: Lab, boards: list[Board]) -> None:
    found = standing(boards[0], "plurality").against_baseline
    assert found is not None
    right = evaluated_lab.right["facts"]
    differences = (right.sum(1) >= 3).astype(float) - right[:, 0]
    drawn = np.random.default_rng(7).integers(0, 300, (4000, 300))
    low, high = np.quantile(differences[drawn].mean(1), [0.025, 0.975])
    assert found.mean == pytest.approx(differences.mean())
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.006)


def test_each_of_our_methods_is_compared_with_every_rival(small_lab: Lab) -> None:
    for name, n_right in (("log_linear", 9), ("stacking", 17), ("oracle", 20), ("single:ada", 12)):
        small_lab.evaluate(name, n_right)
    small_lab.evaluate("best_plurality:3", 10, 3)
    small_lab.evaluate("best_plurality:2", 8, 2)
    for seed, n_right in enumerate((12, 16)):
        small_lab.evaluate("rl_focal", n_right, 3, seed=seed)
    small_lab.evaluate("rl_focal_literal", 15, 3, seed=0)
    small_lab.evaluate("rl_focal_released", 20, 3, seed=0)  # of earlier versions; it read every output
    [board] = leaderboard(small_lab.warehouse)
    assert board.rival is not None
    assert board.rival.method == "stacking"
    above = {
        name: {s.method: s.ours_above[name].mean for s in board.rows if name in s.ours_above}
        for name in ("rl_focal", "rl_focal_literal")
    }
    rivals = {"stacking": -0.15, "log_linear": 0.25, "best_plurality:3": 0.2, "best_plurality:2": 0.3}
    assert above["rl_focal"] == pytest.approx(rivals | {"rl_focal_literal": -0.05})
    assert above["rl_focal_literal"] == pytest.approx(
        {name: mean + 0.05 for name, mean in rivals.items()} | {"rl_focal": 0.05}
    )
    assert [s.method for s in board.ours] == ["rl_focal", "rl_focal_literal"]
    log_linear = standing(board, "log_linear").ours_above["rl_focal"]
    hits = np.array([np.arange(20) < n for n in (12, 16, 9)], dtype=float)
    assert log_linear == paired_difference(hits[:2], hits[2:])


def beside_rival(board: Board) -> dict[str, tuple[str, ...]]:
    """By method, what its row says of it beside the best rival."""
    return {row[-2]: row[-3:] for row in verdict_table([board]).rows}


def test_the_verdict_is_honest_about_losing(boards: list[Board]) -> None:
    _, riddles = boards
    rows = beside_rival(riddles)
    assert rows["best_single"][2] == "best so far", "usual methods are missing in this lab"
    assert rows["rl_focal"] == ("−25.0 [−34.2, −15.8]", "rl_focal", "behind")


def test_the_best_rival_is_none_of_ours_and_no_size_of_a_pool_beside_its_family(small_lab: Lab) -> None:
    shown = {"rl_focal": 19, "rl_focal_sequential": 20, "oracle": 20, "single:ada": 18, "stacking": 12}
    shown |= {"best_plurality": 10, "best_plurality:3": 15, "best_log_linear:3": 11}
    for name, n_right in shown.items():
        small_lab.evaluate(name, n_right, 3)
    [board] = leaderboard(small_lab.warehouse)
    assert board.rival is not None
    assert board.rival.method == "stacking"
    rows = beside_rival(board)
    for name, points in (("rl_focal", "+35.0 ["), ("rl_focal_sequential", "+40.0 [")):
        assert rows[name][0].startswith(points)
        assert rows[name][2] == "ahead"
    small_lab.evaluate("best_soft_vote:3", 13, 3)
    [board] = leaderboard(small_lab.warehouse)
    assert board.rival is not None
    assert board.rival.method == "best_soft_vote:3"  # nothing else stands for its family


def test_one_seed_is_said_to_leave_out_training_luck(small_lab: Lab) -> None:
    small_lab.evaluate("stacking", 12, 3)
    small_lab.evaluate("rl_focal", 19, 3, seed=0)
    [board] = leaderboard(small_lab.warehouse)
    [luck] = (caveat for caveat in conclude(board).caveats if "luck" in caveat)
    assert "rl_focal" in luck
    assert "stacking" not in luck  # nothing about it is drawn
    small_lab.evaluate("rl_focal", 18, 3, seed=1)
    [board] = leaderboard(small_lab.warehouse)
    assert "luck" not in str(conclude(board))


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (0.001, 0.002, "ahead"),
        (-0.002, -0.001, "behind"),
        (-0.03, 0.03, "level"),
        (-0.031, 0.0, "undecided"),
        (0.0, 0.031, "undecided"),
    ],
)
def test_a_verdict_is_that_of_its_interval(low: float, high: float, word: str) -> None:
    assert verdict(Interval((low + high) / 2, low, high)) == word
    assert verdict(None) == ""


def test_frozen_and_online_stay_apart_and_the_newest_counts(small_lab: Lab) -> None:
    right = small_lab.right["facts"]
    small_lab.evaluate("best_single", ~right[:, 0], 1)
    small_lab.evaluate("best_single", right[:, 0], 1)
    small_lab.evaluate("best_single", right[:, 1], 1, protocol="online")
    boards = leaderboard(small_lab.warehouse)
    assert [board.protocol for board in boards] == ["frozen", "online"]
    assert [board.rows[0].accuracy for board in boards] == pytest.approx(right[:, :2].mean(0))


def test_a_board_never_mixes_data(small_lab: Lab) -> None:
    right = small_lab.right["facts"]
    small_lab.evaluate("best_single", right[:, 0])
    small_lab.evaluate("plurality", right[:, 1])
    small_lab.evaluate("plurality", right[:, 2], data="second")
    old = small_lab.evaluate("oracle", np.asarray(right.any(1)), data="second")
    small_lab.evaluate("rl_focal", right[:, 3], seed=2, data="second")
    small_lab.evaluate("rl_focal", right[:, 3], seed=0)
    [board] = leaderboard(small_lab.warehouse)
    found = {s.method: s.accuracy for s in board.rows}
    assert found == pytest.approx(
        {"best_single": right[:, 0].mean(), "plurality": right[:, 1].mean(), "rl_focal": right[:, 3].mean()}
    )
    [ours] = board.ours
    assert [run.seed for run in ours.runs] == [0]
    note, missing = board.notes
    assert "left out: oracle, rl_focal." in note
    assert "soft_vote" in missing
    assert "--methods best_single,oracle,plurality,rl_focal --seeds 3" in note
    [alone] = leaderboard(small_lab.warehouse, runs={old})
    assert [s.method for s in alone.rows] == ["oracle"]


def test_the_best_single_of_each_task_stands_beside_the_best_of_all(small_lab: Lab) -> None:
    """One call, where tasks are told: a reference of every board, and a rival where all read their names."""
    right = small_lab.right["facts"]
    small_lab.evaluate("best_single", right[:, 0], 1)
    small_lab.evaluate("best_single+task", 20, 1)
    small_lab.evaluate("rl_focal", 10, 3, seed=0)
    [board] = leaderboard(small_lab.warehouse)  # none of its own, where nothing else reads tasks' names
    assert [s.method for s in board.rows] == ["best_single+task", "best_single", "rl_focal"]
    assert board.rival is not None
    assert board.rival.method == "best_single"
    rows = {row[5]: row[1:] for row in verdict_table([board]).rows}
    assert [*rows] == ["best_single", "best_single+task", "rl_focal"]  # the baseline first, ours last
    assert rows["best_single+task"] == ("100.0", "1.0", "60.0", "", "best_single+task", "")
    small_lab.evaluate("knn+task", 12, 1)
    plain, told = leaderboard(small_lab.warehouse)
    assert plain.rows == board.rows
    assert told.rival is not None
    assert told.rival.method == "best_single+task"
    assert [s.method for s in told.rows] == ["best_single+task", "knn+task"]


FEW = ("ada", "dora")


def test_the_widest_pool_stands_for_a_benchmark_and_others_are_named(small_lab: Lab) -> None:
    """An experiment on some models takes nothing from the board of all."""
    right = small_lab.right["facts"]
    for name in ("best_single", "rl_focal"):
        small_lab.evaluate(name, right[:, 0])
    alone = small_lab.evaluate("rl_focal", right[:, 3], data="few", models=FEW)
    whole, few = leaderboard(small_lab.warehouse)
    assert (whole.models, [s.method for s in whole.rows]) == (MODELS, ["best_single", "rl_focal"])
    assert (few.models, few.other_pool) == (FEW, FEW)
    assert "ada, dora" in few.notes[0]
    assert not any("ada, dora" in note for note in whole.notes)
    assert [title(board) for board in (whole, few)] == ["facts", "facts (2 models)"]
    assert "facts (2 models)" in {row[0] for row in verdict_table([whole, few]).rows}
    [same] = leaderboard(small_lab.warehouse, runs={alone})  # as `evaluate` shows its own
    assert same.key == few.key


def test_a_board_gives_way_to_a_newer_one_of_the_grown_pool(small_lab: Lab) -> None:
    right = small_lab.right["facts"]
    for name in ("plurality", "oracle"):
        small_lab.evaluate(name, right[:, 3], data="few", models=FEW)
    small_lab.evaluate("plurality", right[:, 0])
    [board] = leaderboard(small_lab.warehouse)
    assert (board.models, board.other_pool) == (MODELS, ())
    assert board.notes[0].startswith("Evaluated on other data and left out: oracle.")


def test_a_pool_that_lost_a_model_stands_for_nothing(small_lab: Lab) -> None:
    right = small_lab.right["facts"]
    small_lab.evaluate("plurality", right[:, 0])
    remove_model(small_lab.warehouse, "bert")
    left = tuple(model for model in MODELS if model != "bert")
    small_lab.evaluate("plurality", right[:, 0], data="left", models=left)
    assert [(board.models, board.other_pool) for board in leaderboard(small_lab.warehouse)] == [
        (left, ()),
        (MODELS, MODELS),
    ]


def test_only_models_of_the_board_stand_alone_on_it(small_lab: Lab) -> None:
    right = small_lab.right["facts"]
    small_lab.warehouse.connection.execute("DELETE FROM choice_logprobs WHERE model = 'bert' AND doc_id = 30")
    small_lab.evaluate("plurality", right[:, 0], models=("ada", "bert", "emil"))
    [board] = leaderboard(small_lab.warehouse)
    assert {s.model: s.accuracy for s in board.singles} == pytest.approx(
        {"ada": right[:, 0].mean(), "emil": right[:, 4].mean()}
    )


def test_single_models_answer_the_documents_of_the_board_only(small_lab: Lab) -> None:
    small_lab.evaluate("plurality", small_lab.right["facts"][:, 0])
    small_lab.warehouse.connection.execute("UPDATE docs SET split = 'test' WHERE doc_id < 10")
    [board] = leaderboard(small_lab.warehouse)
    assert [s.n for s in board.singles] == [20] * len(MODELS)


def test_the_table_of_verdicts_fits_80_columns_and_wraps_no_name(boards: list[Board]) -> None:
    out = StringIO()
    Console(file=out, width=80).print(verdict_table(boards))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    table = verdict_table(boards)
    assert len(lines) == 2 + len(table.rows)
    for board in boards:
        assert sum(board.benchmark in line for line in lines) == 1
        for s in (*board.ours, board.rival):
            assert any(f"{s.accuracy:.1%}"[:-1] in line and f" {s.method} " in line for line in lines if s)


def test_the_table_of_verdicts_says_where_rl_focal_was_not_evaluated(small_lab: Lab) -> None:
    right = small_lab.right["facts"]
    small_lab.evaluate("best_single", right[:, 1], 1)
    small_lab.evaluate("plurality", np.asarray(right.any(1)))
    found = {row[5]: row[6] for row in verdict_table(leaderboard(small_lab.warehouse)).rows}
    assert found == {"plurality": "best; RL-Focal was not evaluated", "best_single": ""}


def usual_rivals(board: Board) -> set[str]:
    """What `rlfocal evaluate` runs beside RL-Focal on the small lab's models."""
    roles = find_methods("reference", "constant_pool", "rival")
    own = (name for name in methods_for(len(board.models)) if not entry_of(name).package)
    return {name for name in own if name in roles}


def test_a_command_is_judged_beside_all_that_is_stored(small_lab: Lab) -> None:
    """`evaluate --methods rl_focal` on data that a better method, of an earlier command, is known on."""
    small_lab.evaluate("log_linear", 18)
    small_lab.evaluate("log_linear", 20, data="other")
    small_lab.evaluate("knn", 20, protocol="online")
    old = [small_lab.evaluate("rl_focal", 20, seed=seed) for seed in (0, 1)]
    small_lab.evaluate("best_single+task", 19, 1)
    small_lab.evaluate("knn+task", 19)
    wanted = {small_lab.evaluate("plurality", 12), small_lab.evaluate("rl_focal", 15, 3, seed=0)}
    [board] = leaderboard(small_lab.warehouse, runs=wanted)
    assert board.rival is not None
    assert board.rival.method == "log_linear"
    assert {s.method: s.accuracy for s in board.rows} == {
        "log_linear": 0.9, "plurality": 0.6, "rl_focal": 0.75, "best_single+task": 0.95,
    }  # fmt: skip
    assert not {run.run_id for s in board.rows for run in s.runs} & set(old)


def test_usual_methods_that_were_never_evaluated_are_named(small_lab: Lab) -> None:
    small_lab.evaluate("rl_focal", 15, 3, seed=0)
    [board] = leaderboard(small_lab.warehouse)
    assert set(board.missing) == usual_rivals(board)
    for name in usual_rivals(board) - {"stacking"}:
        small_lab.evaluate(name, 10)
    [board] = leaderboard(small_lab.warehouse)
    assert board.missing == ("stacking",)
    assert "1 usual method was not evaluated" in str(conclude(board))
    [note] = board.notes
    assert "stacking" in note
    assert "rlfocal evaluate --benchmark facts --seeds 1`" in note
    small_lab.evaluate("stacking", 10)
    [board] = leaderboard(small_lab.warehouse)
    assert (board.missing, board.notes) == ((), ())
    assert conclude(board).caveats == (
        "One seed of rl_focal: training luck is left out; `--seeds 5` includes it.",
    )

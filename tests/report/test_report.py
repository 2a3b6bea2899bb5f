"""The report, from a real warehouse filled with generated answers and decisions."""

from __future__ import annotations

import csv
import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from html import unescape
from html.parser import HTMLParser
from io import StringIO
from itertools import count
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from rich.console import Console
from scipy.stats import bootstrap
from support.pool_oracles import Answers, column, fill, insert, pool_oracle, same

from rlfocal.base.errors import InputError
from rlfocal.base.names import RL_FOCAL
from rlfocal.data.dataset import Kind
from rlfocal.data.policy import PHASES
from rlfocal.evaluation import evaluate
from rlfocal.evaluation.leaderboard import Board, Standing
from rlfocal.evaluation.verdicts import verdict_table
from rlfocal.methods.trained.settings import readable
from rlfocal.report import leaderboard, print_table, sections
from rlfocal.report.boards import results_table
from rlfocal.report.export import export_report
from rlfocal.report.figures.cost import cost
from rlfocal.report.figures.learning import TITLES, curves, learning
from rlfocal.report.figures.pools import every_pool
from rlfocal.report.html import write_report
from rlfocal.report.pools import pool_choice
from rlfocal.statistics.intervals import paired_bootstrap
from warehouse import Warehouse, open_warehouse
from warehouse.upkeep.corrections import remove_model

MODELS = ("ada", "bert", "cato", "dora", "emil", "<fritz>")
PRICES = (60.0, 20.0, 5.0, 30.0, 12.0, 8.0)
MAIN = ("rl_focal", "rl_focal_sequential")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Lab:
    """A warehouse that knows what was put into it: test documents × models that are right."""

    warehouse: Warehouse
    models: tuple[str, ...] = MODELS
    right: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    tasks: dict[str, NDArray[np.str_]] = field(default_factory=dict)
    clock: Iterator[int] = field(default_factory=count)

    def add_benchmark(
        self, name: str, tasks: tuple[str, ...], n: int, skills: tuple[float, ...], seed: int
    ) -> None:
        """n documents a task, the first half train; model i answers right with probability skills[i]."""
        rng = np.random.default_rng(seed)
        total = n * len(tasks)
        task = np.repeat(tasks, n)
        doc_id = np.tile(np.arange(n), len(tasks))
        label = rng.integers(0, 4, total)
        right = rng.random((total, len(self.models))) < np.array(skills)
        said = np.where(right, label[:, None], (label[:, None] + rng.integers(1, 4, right.shape)) % 4)
        logprob = np.where(np.arange(4) == said[..., None], -0.5, -3.0)
        split = np.where(doc_id < n // 2, "train", "test")
        docs = {"benchmark": [name] * total, "task": task, "doc_id": doc_id, "label": label, "split": split}
        docs["choices"] = [list("abcd")] * total
        t, m, c = (axis.ravel() for axis in np.indices(logprob.shape))
        scores = {
            "benchmark": [name] * t.size,
            "task": task[t],
            "doc_id": doc_id[t],
            "model": np.array(self.models)[m],
        }
        scores |= {"choice": c, "logprob": logprob.ravel()}
        owner = {"benchmark": name, "extraction_id": "made", "n_docs": n}
        partitions = [owner | {"task": t, "model": model} for t in tasks for model in self.models]
        with self.warehouse.transaction("answers"):
            self.warehouse.append("extractions", pa.Table.from_pylist(partitions))
            self.warehouse.append("docs", pa.table(docs))
            self.warehouse.append("choice_logprobs", pa.table(scores))
        self.right[name], self.tasks[name] = right[split == "test"], task[split == "test"]

    def evaluate(
        self,
        benchmark: str,
        method: str,
        correct: NDArray[np.bool_],
        pools: NDArray[np.bool_],
        *,
        seed: int | None = None,
        protocol: str = "frozen",
        data: str = "first",
        models: tuple[str, ...] | None = None,
        prices: tuple[float | None, ...] = PRICES,
    ) -> str:
        """Store one run's evaluations and decisions, as `rlfocal evaluate` does."""
        moment = next(self.clock)
        run_id = f"{benchmark}-{method}-{seed}-{moment}"
        task = self.tasks[benchmark]
        sizes = [int((task == t).sum()) for t in dict.fromkeys(task)]
        position = np.concatenate([np.arange(size, 2 * size) for size in sizes])
        shared: dict[str, Any] = {
            "run_id": run_id,
            "benchmark": benchmark,
            "method": method,
            "settings": "{}",
            "seed": seed,
        }
        shared |= {"protocol": protocol, "split": "test", "per": "benchmark", "seconds": 1.0, "snapshot": 3}
        shared |= {
            "models": list(models or self.models),
            "data": data,
            "created_at": NOON + timedelta(minutes=moment),
        }
        known = np.array([*prices, *[1.0] * len(self.models)][: len(self.models)], dtype=float)
        cost = np.where(pools, known, 0.0).sum(1)
        masks = [("*", np.ones(len(task), bool)), *((t, task == t) for t in dict.fromkeys(task.tolist()))]
        rows = [
            shared
            | {"task": name, "n": int(mask.sum()), "accuracy": float(correct[mask].mean())}
            | {
                "mean_pool_size": float(pools[mask].sum(1).mean()),
                "cost": None if np.isnan(cost).any() else float(cost[mask].mean()),
            }
            for name, mask in masks
        ]
        decisions = {
            "run_id": [run_id] * len(task),
            "benchmark": [benchmark] * len(task),
            "task": task,
            "doc_id": position,
            "pool": [[m for m, asked in zip(self.models, pool, strict=True) if asked] for pool in pools],
            "correct": correct,
        }
        with self.warehouse.transaction("evaluate"):
            self.warehouse.append("evaluations", pa.Table.from_pylist(rows))
            self.warehouse.append("decisions", pa.table(decisions))
        return run_id

    def evaluate_all(self, benchmark: str) -> None:
        right = self.right[benchmark]
        n = len(right)
        everyone = np.ones_like(right)
        one = np.eye(len(MODELS), dtype=bool)[np.zeros(n, int)]
        self.evaluate(benchmark, "best_single", right[:, 0], one)
        self.evaluate(benchmark, "plurality", np.asarray(right.sum(1) >= 3), everyone)
        self.evaluate(benchmark, "oracle", np.asarray(right.any(1)), everyone)
        self.evaluate(benchmark, "constant_choice", np.asarray(np.arange(n) % 4 == 0), np.zeros_like(right))
        for seed in range(3):
            rng = np.random.default_rng(seed)
            pools = np.where(rng.random((n, 1)) < 0.7, [[1, 0, 1, 0, 1, 1]], [[1, 1, 1, 0, 0, 0]]).astype(
                bool
            )
            pools[0] = one[0]
            self.evaluate(benchmark, "rl_focal", (right & pools).sum(1) >= 2, pools, seed=seed)


def standing(board: Board, method: str) -> Standing:
    [found] = (s for s in board.standings if s.method == method)
    return found


SKILLS = (0.8, 0.7, 0.6, 0.7, 0.65, 0.5)


@pytest.fixture
def small(warehouse: Warehouse) -> Lab:
    """20 test documents and no evaluation yet."""
    lab = Lab(warehouse)
    lab.add_benchmark("facts", ("birds",), 40, SKILLS, seed=1)
    return lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with open_warehouse(tmp_path_factory.mktemp("report") / "warehouse") as warehouse:
        lab = Lab(warehouse)
        with warehouse.transaction("models"):
            warehouse.append("models", pa.table({"model": MODELS, "price": PRICES}))
        lab.add_benchmark(
            "facts", ("birds", "cities", "stones"), 200, (0.8, 0.7, 0.6, 0.7, 0.65, 0.5), seed=1
        )
        lab.add_benchmark("riddles", ("all",), 200, (0.9, 0.5, 0.4, 0.4, 0.4, 0.3), seed=2)
        for name in ("facts", "riddles"):
            lab.evaluate_all(name)
        yield lab


@pytest.fixture(scope="module")
def boards(lab: Lab) -> list[Board]:
    return leaderboard(lab.warehouse)


@pytest.mark.slow
def test_boards_make_the_same_page_side_by_side_and_one_after_the_other(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(processes: int) -> str:
        monkeypatch.setattr(sections, "cores", lambda: processes)
        return write_report(lab.warehouse, tmp_path / f"{processes}.html", made_at=NOON).read_text("utf-8")

    assert write(1) == write(2)


def test_a_standing_is_the_mean_over_seeds_with_both_standard_errors(lab: Lab, boards: list[Board]) -> None:
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
    assert best_single.accuracy == pytest.approx(lab.right["facts"][:, 0].mean())


def test_single_models_are_judged_on_test_documents(lab: Lab, boards: list[Board]) -> None:
    board, _ = boards
    expected = {model: lab.right["facts"][:, i].mean() for i, model in enumerate(MODELS)}
    assert {s.model: s.accuracy for s in board.singles} == pytest.approx(expected)
    assert {s.model: s.cost for s in board.singles} == dict(zip(MODELS, PRICES, strict=True))
    assert {s.n for s in board.singles} == {300}


def test_the_difference_to_best_single_is_paired(lab: Lab, boards: list[Board]) -> None:
    board, _ = boards
    plurality = standing(board, "plurality")
    assert plurality.against_baseline is not None
    right = lab.right["facts"]
    differences = (right.sum(1) >= 3).astype(float) - right[:, 0]
    drawn = np.random.default_rng(7).integers(0, 300, (4000, 300))
    low, high = np.quantile(differences[drawn].mean(1), [0.025, 0.975])
    assert plurality.against_baseline.mean == pytest.approx(differences.mean())
    assert plurality.against_baseline.low == pytest.approx(low, abs=0.006)
    assert plurality.against_baseline.high == pytest.approx(high, abs=0.006)


def _hits(n_seeds: int) -> st.SearchStrategy[list[list[float]]]:
    column = st.lists(st.sampled_from([0.0, 1.0]), min_size=n_seeds, max_size=n_seeds)
    return st.lists(column, min_size=1, max_size=40)


@given(st.integers(2, 4).flatmap(_hits))
def test_the_bootstrap_interval_stays_in_range_and_repeats(columns: list[list[float]]) -> None:
    hits = np.array(columns).T
    one, other = hits[:-1], hits[-1:]
    found = paired_bootstrap(one, other, draws=500)
    assert found == paired_bootstrap(one, other, draws=500)
    assert found.mean == pytest.approx(one.mean() - other.mean())
    differences = one - other
    assert differences.min() - 1e-9 <= found.low <= found.high <= differences.max() + 1e-9
    assert paired_bootstrap(np.vstack([other] * 3), other, draws=500).excludes_zero is False


def test_the_interval_resamples_seeds_and_documents_together() -> None:
    rng = np.random.default_rng(3)
    ours = (rng.random((3, 200)) < np.array([[0.9], [0.7], [0.5]])).astype(float)
    rival = (rng.random((1, 200)) < 0.55).astype(float)
    found = paired_bootstrap(ours, rival)
    drawn = []
    for _ in range(4000):
        seeds, documents = rng.integers(0, 3, 3), rng.integers(0, 200, 200)
        drawn.append((ours[seeds].mean(0) - rival[0])[documents].mean())
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.015)
    over_documents = paired_bootstrap(ours.mean(0, keepdims=True), rival)
    assert over_documents.excludes_zero
    assert not found.excludes_zero


@pytest.mark.parametrize("shares", [(0.8, 0.7), (0.5, 0.5), (0.99, 0.9)])
def test_the_interval_of_one_seed_is_scipys(shares: tuple[float, float]) -> None:
    rng = np.random.default_rng(5)
    both = (rng.random((2, 400)) < np.array(shares)[:, None]).astype(float)
    found = paired_bootstrap(both[:1], both[1:])

    def difference(one: NDArray[np.float64], other: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        return np.asarray(one.mean(axis=axis) - other.mean(axis=axis))

    resampled = bootstrap(
        tuple(both), difference, paired=True, method="percentile", n_resamples=9_999, rng=rng
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx(tuple(resampled), abs=0.004)


def test_each_of_our_methods_is_compared_with_every_rival(small: Lab) -> None:
    right = small.right["facts"]
    everyone, three = np.ones_like(right), np.tile(np.arange(6) < 3, (20, 1))
    for name, n_right in (("log_linear", 9), ("stacking", 17), ("oracle", 20), ("single:ada", 12)):
        small.evaluate("facts", name, np.arange(20) < n_right, everyone)
    small.evaluate("facts", "best_plurality:3", np.arange(20) < 10, three)
    small.evaluate("facts", "best_plurality:2", np.arange(20) < 8, three & (np.arange(6) < 2))
    for seed, n_right in enumerate((12, 16)):
        small.evaluate("facts", "rl_focal", np.arange(20) < n_right, three, seed=seed)
    small.evaluate("facts", "rl_focal_released", np.arange(20) < 15, three, seed=0)
    [board] = leaderboard(small.warehouse)
    above = {
        name: {s.method: s.ours_above[name].mean for s in board.standings if name in s.ours_above}
        for name in ("rl_focal", "rl_focal_released")
    }
    rivals = {"stacking": -0.15, "log_linear": 0.25, "best_plurality:3": 0.2, "best_plurality:2": 0.3}
    assert above["rl_focal"] == pytest.approx(rivals | {"rl_focal_released": -0.05})
    assert above["rl_focal_released"] == pytest.approx(
        {name: mean + 0.05 for name, mean in rivals.items()} | {"rl_focal": 0.05}
    )
    assert [s.method for s in board.ours] == ["rl_focal", "rl_focal_released"]
    sized = [s.method for s in board.standings if board.has_size_of(s, board.ours[0])]
    assert sized == ["best_plurality:3"]
    log_linear = standing(board, "log_linear").ours_above["rl_focal"]
    hits = np.array([np.arange(20) < n for n in (12, 16, 9)], dtype=float)
    assert log_linear == paired_bootstrap(hits[:2], hits[2:])
    out = StringIO()
    print_table([board], Console(file=out, width=100))
    text = " ".join(out.getvalue().split())
    for name, points in (("rl_focal", "−15.0"), ("rl_focal_released", "−10.0")):
        assert f"{name} minus others, in points with paired 95 % intervals: stacking {points} [" in text
    assert "; best_plurality:3, a constant pool of its size, +20.0 [" in text
    assert "; log_linear +25.0 [" in text
    assert "oracle +" not in text


def test_the_verdict_rests_on_seeds_as_well(small: Lab) -> None:
    everyone = np.ones_like(small.right["facts"])
    small.evaluate("facts", "plurality", np.arange(20) < 8, everyone)
    for seed, n_right in enumerate((20, 20, 5)):
        correct = np.arange(20) < n_right
        small.evaluate("facts", "rl_focal", correct, everyone, seed=seed)
    [board] = leaderboard(small.warehouse)
    [verdict] = board.verdicts
    assert str(verdict).startswith(
        "rl_focal may be level with plurality at as many calls: 35.0 points above, interval"
    )
    assert verdict.words.startswith("undecided, −")


def test_a_float_error_is_a_tie(small: Lab) -> None:
    everyone = np.ones_like(small.right["facts"])
    small.evaluate("facts", "plurality", np.arange(20) < 7, everyone)
    for seed, shift in enumerate((0, 5, 9)):
        correct = np.roll(np.arange(20) < 7, shift)
        small.evaluate("facts", "rl_focal", correct, everyone, seed=seed)
    [board] = leaderboard(small.warehouse)
    assert str(board.verdicts[0]).startswith(
        "rl_focal may be level with plurality at as many calls: 0.0 points"
    )


def test_the_verdict_is_honest_about_losing(boards: list[Board]) -> None:
    _, riddles = boards
    [verdict] = riddles.verdicts
    assert str(verdict) == (
        "rl_focal is 25.0 points behind best_single at 3.7 times the calls; interval −34.7 to −15.7."
    )
    assert verdict.words == "25.0 points behind, −34.7 to −15.7"


def test_the_best_rival_is_none_of_ours_and_no_size_of_a_pool_beside_its_family(small: Lab) -> None:
    three = np.tile(np.arange(6) < 3, (20, 1))
    shown = {"rl_focal": 19, "rl_focal_sequential": 20, "oracle": 20, "single:ada": 18, "stacking": 12}
    shown |= {"best_plurality": 10, "best_plurality:3": 15, "best_log_linear:3": 11}
    for name, n_right in shown.items():
        small.evaluate("facts", name, np.arange(20) < n_right, three)
    [board] = leaderboard(small.warehouse)
    assert board.rival is not None
    assert board.rival.method == "stacking"
    assert [str(verdict).split(" at ")[0] for verdict in board.verdicts] == [
        "rl_focal is 35.0 points above stacking",
        "rl_focal_sequential is 40.0 points above stacking",
    ]
    small.evaluate("facts", "best_soft_vote:3", np.arange(20) < 13, three)
    [board] = leaderboard(small.warehouse)
    assert board.rival is not None
    assert board.rival.method == "best_soft_vote:3"  # nothing else stands for its family


def test_level_is_said_only_of_a_narrow_interval(small: Lab) -> None:
    small.add_benchmark("many", ("t",), 4000, (0.5,) * 6, seed=1)
    right = np.arange(2000) < 1500
    small.evaluate("many", "stacking", right, np.ones((2000, 6), bool))
    small.evaluate("many", "rl_focal", np.roll(right, 5), np.tile(np.arange(6) < 2, (2000, 1)))
    [board] = leaderboard(small.warehouse, ["many"])
    [verdict] = board.verdicts
    assert str(verdict).startswith("rl_focal is level with stacking at a third of the calls; interval −0.")
    assert verdict.words == "level at a third of the calls"


def test_frozen_and_online_stay_apart_and_the_newest_counts(small: Lab) -> None:
    right = small.right["facts"]
    one = np.eye(len(MODELS), dtype=bool)[np.zeros(len(right), int)]
    small.evaluate("facts", "best_single", ~right[:, 0], one)
    small.evaluate("facts", "best_single", right[:, 0], one)
    small.evaluate("facts", "best_single", right[:, 1], one, protocol="online")
    boards = leaderboard(small.warehouse)
    assert [board.protocol for board in boards] == ["frozen", "online"]
    assert [board.standings[0].accuracy for board in boards] == pytest.approx(right[:, :2].mean(0))
    assert str(boards[0].verdicts[0]).startswith("RL-Focal was not evaluated")


def test_a_board_never_mixes_data(small: Lab) -> None:
    right = small.right["facts"]
    everyone = np.ones_like(right)
    small.evaluate("facts", "best_single", right[:, 0], everyone)
    small.evaluate("facts", "plurality", right[:, 1], everyone)
    small.evaluate("facts", "plurality", right[:, 2], everyone, data="second")
    old = small.evaluate("facts", "oracle", np.asarray(right.any(1)), everyone, data="second")
    small.evaluate("facts", "rl_focal", right[:, 3], everyone, seed=2, data="second")
    small.evaluate("facts", "rl_focal", right[:, 3], everyone, seed=0)
    [board] = leaderboard(small.warehouse)
    found = {s.method: s.accuracy for s in board.standings}
    assert found == pytest.approx(
        {"best_single": right[:, 0].mean(), "plurality": right[:, 1].mean(), "rl_focal": right[:, 3].mean()}
    )
    [ours] = board.ours
    assert [run.seed for run in ours.runs] == [0]
    [note] = board.notes
    assert note == (
        "Evaluated on other data and left out: oracle, rl_focal. To compare, run `rlfocal evaluate "
        "--benchmark facts --methods best_single,oracle,plurality,rl_focal --seeds 3`."
    )
    [alone] = leaderboard(small.warehouse, runs={old})
    assert [s.method for s in alone.standings] == ["oracle"]
    assert alone.notes == ()


def test_a_note_misses_nothing_that_could_not_run_any_more(small: Lab) -> None:
    right = small.right["facts"]
    everyone = np.ones_like(right)
    for name in ("constant_choice", "single:ada", "oracle"):
        small.evaluate("facts", name, right[:, 0], everyone)
    small.evaluate("facts", "plurality", right[:, 1], everyone, data="second")
    small.warehouse.connection.execute("UPDATE docs SET label = NULL, gold = 'a'")
    remove_model(small.warehouse, "ada")
    [board] = leaderboard(small.warehouse)
    assert board.notes[1:] == (
        "Evaluated on other data and left out: oracle. To compare, run `rlfocal evaluate --benchmark facts "
        "--methods oracle,plurality`.",
    )


def test_the_command_of_a_note_names_the_pool_where_it_is_not_every_model(small: Lab) -> None:
    right = small.right["facts"]
    small.evaluate("facts", "single:dora", right[:, 3], np.ones_like(right))
    small.evaluate(
        "facts", "plurality", right[:, 1], np.ones_like(right), data="second", models=("ada", "<fritz>")
    )
    [board] = leaderboard(small.warehouse)
    assert board.notes[0].endswith(
        "--benchmark facts --methods plurality,single:dora --models '<fritz>,ada,dora'`."
    )


def test_only_models_of_the_board_stand_alone_on_it(small: Lab) -> None:
    right = small.right["facts"]
    small.warehouse.connection.execute("DELETE FROM choice_logprobs WHERE model = 'bert' AND doc_id = 30")
    pool = ("ada", "bert", "emil")
    small.evaluate("facts", "plurality", right[:, 0], np.ones_like(right), models=pool)
    [board] = leaderboard(small.warehouse)
    assert {s.model: s.accuracy for s in board.singles} == pytest.approx(
        {"ada": right[:, 0].mean(), "emil": right[:, 4].mean()}
    )


def test_single_models_answer_the_documents_of_the_board_only(small: Lab) -> None:
    right = small.right["facts"]
    small.evaluate("facts", "plurality", right[:, 0], np.ones_like(right))
    small.warehouse.connection.execute("UPDATE docs SET split = 'test' WHERE doc_id < 10")
    [board] = leaderboard(small.warehouse)
    assert [s.n for s in board.singles] == [20] * len(MODELS)


@pytest.mark.parametrize(("of_ada", "shown"), [(0.0, "0.00"), (None, "–")])
def test_a_free_model_has_a_price_and_an_unknown_price_has_none(
    small: Lab, of_ada: float | None, shown: str
) -> None:
    prices = (of_ada, *PRICES[1:])
    with small.warehouse.transaction("models"):
        small.warehouse.append("models", pa.table({"model": MODELS, "price": prices}))
    right = small.right["facts"]
    for name, model in (("best_single", 0), ("single:bert", 1)):
        one = np.eye(6, dtype=bool)[np.full(20, model)]
        small.evaluate("facts", name, right[:, model], one, prices=prices)
    [board] = leaderboard(small.warehouse)
    drawn = cost(small.warehouse, board)
    assert drawn is not None
    assert ("cents per 1,000" in drawn.description) is (of_ada is not None)
    out = StringIO()
    print_table([board], Console(file=out, width=100))
    cells = {line.split()[0]: line.split()[-1] for line in out.getvalue().splitlines() if line.strip()}
    assert cells["method"] == "¢/1k"
    assert (cells["best_single"], cells["single:bert"]) == (shown, "20.0")
    found = {row[0]: row for row in results_table(board).rows}
    assert shown in found["best_single"]
    assert "20.0" in found["single:bert"]


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_every_pool_is_as_by_definition_whatever_is_missing(warehouse: Warehouse, kind: Kind) -> None:
    rng = np.random.default_rng(5)
    answered = rng.random((30, 5)) < (1, 0.7, 1, 1, 0.8)
    said = rng.integers(0 if kind == "choices" else -1, 4, answered.shape)
    data = Answers(kind, said, rng.integers(0, 3, 30), answered)
    models = fill(warehouse.connection, data)
    shared = {"run_id": "r", "benchmark": "b", "task": "t00", "correct": True}
    chosen = [["gone", "m00"], ["m04", "m01"], ["m04", "m01"]]
    insert(
        warehouse.connection, "decisions", [shared | {"doc_id": i, "pool": p} for i, p in enumerate(chosen)]
    )
    choice = pool_choice(warehouse, "b", ["r"], [*models, "gone"])
    assert choice is not None
    assert [(pool.models, pool.share) for pool in choice.chosen] == [
        (("m01", "m04"), 2 / 3),
        (("gone", "m00"), 1 / 3),
    ]
    lost = choice.chosen[1], choice.full
    assert all((pool.focal_diversity, pool.plurality_accuracy) == (None, None) for pool in lost)
    found = {pool.models: pool for pool in (*choice.others, choice.chosen[0], choice.best)}
    assert len(found) == 2**5 - 1 - 5
    for members, pool in found.items():
        oracle = pool_oracle(data, tuple(map(models.index, members)))
        same(column([pool.focal_diversity])[0], oracle["focal_diversity"])
        same(column([pool.plurality_accuracy])[0], oracle["plurality_accuracy"])
    assert choice.best.plurality_accuracy == max(pool.plurality_accuracy or 0 for pool in found.values())


@pytest.mark.parametrize(("n", "max_size"), [(40, 2), (110, 1)])
def test_pools_of_many_models_are_small(warehouse: Warehouse, n: int, max_size: int) -> None:
    rng = np.random.default_rng(6)
    shape = (4, n)
    data = Answers("choices", rng.integers(0, 2, shape), np.zeros(4, np.int64), np.ones(shape, np.bool_))
    models = fill(warehouse.connection, data)
    choice = pool_choice(warehouse, "b", [], models)
    assert choice is not None
    assert choice.max_size == max_size
    pairs = {pool.models for pool in (*choice.others, choice.best) if len(pool.models) == 2}
    assert len(pairs) == (n * (n - 1) // 2 if max_size == 2 else 0)
    assert choice.full.plurality_accuracy == pool_oracle(data, tuple(range(n)))["plurality_accuracy"]
    drawn = every_pool(warehouse, "b", [], models)
    assert drawn is not None
    assert f"a pool of {'2 ' if max_size == 2 else ''}models, on" in drawn.caption
    few = pool_choice(warehouse, "b", [], models[:5])
    assert few is not None
    assert few.max_size == 5


def test_chosen_pools_carry_their_share_and_the_statistics_of_the_macro(
    lab: Lab, boards: list[Board]
) -> None:
    board, _ = boards
    [ours] = board.ours
    choice = pool_choice(lab.warehouse, "facts", [run.run_id for run in ours.runs], MODELS)
    assert choice is not None
    assert choice.distinct == 3
    assert choice.max_size == len(MODELS)
    assert sum(pool.share for pool in choice.chosen) == pytest.approx(1)
    assert choice.chosen[0].models == ("<fritz>", "ada", "cato", "emil")
    assert choice.chosen[-1].models == ("ada",)
    assert choice.chosen[-1].focal_diversity is None
    failed = ~lab.right["facts"][:, [MODELS.index(m) for m in choice.chosen[0].models]]
    assert choice.chosen[0].focal_diversity == pytest.approx(_focal_diversity(failed), abs=1e-9)
    assert choice.best.plurality_accuracy is not None
    assert all(
        (p.plurality_accuracy or 0) <= choice.best.plurality_accuracy for p in [*choice.others, choice.full]
    )


def _focal_diversity(failed: NDArray[np.bool_]) -> float:
    """Equation 8, member by member."""
    size = failed.shape[1]
    found = []
    for member in range(size):
        k = failed[failed[:, member]].sum(1)
        found.append(1 - (k * (k - 1) / (size * (size - 1))).mean() / (k / size).mean())
    return float(np.mean(found))


@pytest.mark.parametrize(
    "method",
    [name if name in MAIN else pytest.param(name, marks=pytest.mark.slow) for name in RL_FOCAL],
)
def test_the_learning_figure_shows_every_phase_of_training(small: Lab, method: str) -> None:
    """Trained here for two episodes of whatever phases the method has: no phase is unknown to the figure."""
    short = [f"{method}.{name}=2" for name in readable(method) if name.endswith("_episodes")]
    found = evaluate(small.warehouse, "facts", methods=[method], settings=short, seeds=2)
    runs = [row.run_id for row in found.rows if row.method == method and row.task == "*"]
    means = small.warehouse.rows(
        "SELECT phase, avg(accuracy) FROM training_history WHERE list_contains(?, run_id) "
        "GROUP BY phase, episode ORDER BY episode",
        [runs],
    )
    phases = curves(small.warehouse, runs)
    assert list(phases) == [phase for phase in PHASES if phase in dict(means)]
    assert len(phases) == max(len(short), 1)
    for phase, points in phases.items():
        assert [p["accuracy"] for p in points] == pytest.approx(
            [100 * mean for of, mean in means if of == phase]
        )
        for name in ("accuracy", "asked"):
            assert all(p[f"{name}_low"] <= p[name] <= p[f"{name}_high"] for p in points)
    [board] = leaderboard(small.warehouse, runs=runs)
    drawn = learning(small.warehouse, board)
    assert drawn is not None
    titles = [panel["title"] for panel in drawn.spec["concat"]]
    assert all(f"{method}, {TITLES[phase]}" in titles for phase in phases)
    assert "phase" not in drawn.caption


def test_stages_are_drawn_over_models_and_not_called_walks(small: Lab) -> None:
    right = small.right["facts"]
    run = small.evaluate("facts", "rl_focal_sequential", right[:, 0], np.ones_like(right), seed=0)
    shared = {"run_id": run, "benchmark": "facts", "task": "*", "method": "rl_focal_sequential", "seed": 0}
    rows = [
        shared | {"phase": "stage", "episode": at, "accuracy": 0.5 + at / 10, "mean_pool_size": float(size)}
        for at, size in enumerate((1, 2, 3, 4, 6))
    ]
    with small.warehouse.transaction("train"):
        small.warehouse.append("training_history", pa.Table.from_pylist(rows))
    [(phase, points)] = curves(small.warehouse, [run]).items()
    assert phase == "stage"
    assert [p["x"] for p in points] == [1, 2, 3, 4, 6]
    assert [p["accuracy"] for p in points] == pytest.approx([50, 60, 70, 80, 90])
    [board] = leaderboard(small.warehouse)
    drawn = learning(small.warehouse, board)
    assert drawn is not None
    assert "Fusion is fitted once for each number of models" in drawn.caption
    text = json.dumps(drawn.spec) + drawn.caption
    assert "models that have answered" in text
    assert "episode" not in text


def test_the_terminal_table_fits_and_names_every_method(boards: list[Board]) -> None:
    out = StringIO()
    print_table(boards, Console(file=out, width=80))
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    for name in ("rl_focal", "best_single", "oracle", "vs best_single", "±seeds", "±docs"):
        assert name in text
    assert re.search(
        r"plurality +89\.00 +– +±1\.81 +89\.00 +\+11\.3 \[\+6\.3, \+16\.3\] +o +6\.00 +135\.0", text
    )
    assert "points behind best_single at 3.7 times the calls" in " ".join(text.split())


def test_the_table_of_verdicts_fits_80_columns_and_wraps_no_name(boards: list[Board]) -> None:
    out = StringIO()
    Console(file=out, width=80).print(verdict_table(boards))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == 1 + sum(1 + len(board.ours) for board in boards)
    for board in boards:
        [single] = (s for s in board.standings if s.method == "best_single")
        assert any(f"best_single {single.accuracy:.1%}"[:-1] in line for line in lines) is (
            board.rival is not single
        )
        assert sum(board.benchmark in line for line in lines) == 1
        for s in (*board.ours, board.rival):
            assert any(f"{s.accuracy:.1%}"[:-1] in line and f" {s.method} " in line for line in lines if s)
    named = verdict_table(boards, ["plurality"], before={(boards[0].key, "rl_focal"): 0.0})
    assert {"plurality", "rl_focal", "best_single"} <= {row[5] for row in named.rows}
    assert {row[4] for row in named.rows} > {"new"}


class _Page(HTMLParser):
    """Collects what a browser would complain about or fetch."""

    void = frozenset({"meta", "br", "link", "img", "hr", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in self.void:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in {"href", "src", "xlink:href"}:
                self.links.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.void:
            self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_self_contained_well_formed_small_and_the_same_again(lab: Lab, tmp_path: Path) -> None:
    path, again = (
        write_report(lab.warehouse, tmp_path / name / "report.html", made_at=NOON)
        for name in ("out", "again")
    )
    assert path.read_bytes() == again.read_bytes()
    text = path.read_text(encoding="utf-8")
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert not page.tags & {"link", "img", "iframe"}
    assert "default-src 'none'" in text
    assert len(text.encode()) < 3_000_000
    assert "&lt;fritz&gt;" in text
    assert "<fritz>" not in text
    assert text.count("<figure id=") == 2 * 6
    assert "2026-01-01 12:00 UTC" in text
    assert 'id="paper"' not in text
    assert list(path.parent.iterdir()) == [path]


def test_an_empty_warehouse_gets_a_page_that_says_what_to_run(tmp_path: Path) -> None:
    with open_warehouse(tmp_path / "warehouse") as empty:
        page = write_report(empty, tmp_path / "report.html").read_text("utf-8")
        assert "<code>rlfocal regenerate --pool lab</code>" in page
        Lab(empty, models=MODELS[:2]).add_benchmark("facts", ("birds",), 40, SKILLS[:2], seed=1)
        page = write_report(empty, tmp_path / "report.html").read_text("utf-8")
        assert "<code>rlfocal evaluate -b facts</code>" in page
        with pytest.raises(InputError, match="no evaluation of facts"):
            write_report(empty, tmp_path / "other.html", benchmarks=["facts"])
    assert not (tmp_path / "other.html").exists()


def test_a_pool_of_one_is_told_what_to_add(warehouse: Warehouse, tmp_path: Path) -> None:
    lab = Lab(warehouse, models=("ada",))
    lab.add_benchmark("facts", ("birds",), 40, (0.8,), seed=1)
    lab.evaluate("facts", "best_single", lab.right["facts"][:, 0], np.ones((20, 1), bool))
    page = write_report(warehouse, tmp_path / "report.html").read_text("utf-8")
    assert "With one model there is nothing to choose." in page


HOSTILE = (
    "x^{",
    "$x^{$",
    "$\\frac{1}{0}$ \\1 \\g<0>",
    "#010101 'DejaVu Sans', sans",
    'id="a" href="#b" url(#c)',
    "</svg></style><script>alert(1)</script>&amp;",
    "[/bold] {{ 7 * 7 }} {% raw %}",
    "模型 \N{ROBOT FACE} \u202etxt",
    '=HYPERLINK("http://127.0.0.1")',
    "m" * 300,
)


def test_names_stay_names(warehouse: Warehouse, tmp_path: Path) -> None:
    """On the page, in its figures and on the terminal, whatever a model or a benchmark is called."""
    names = tuple(sorted(HOSTILE))
    lab = Lab(warehouse, models=names)
    with warehouse.transaction("models"):
        warehouse.append("models", pa.table({"model": names, "price": np.arange(len(names)) + 1.0}))
    benchmark = '$b_{$ \\1 <b> [/b] "'
    lab.add_benchmark(benchmark, ("$t^{$", "u"), 40, tuple(np.linspace(0.4, 0.9, len(names))), seed=3)
    right = lab.right[benchmark]
    for at, name in enumerate(names):
        alone = np.tile(np.arange(len(names)) == at, (len(right), 1))
        lab.evaluate(benchmark, f"single:{name}", right[:, at], alone)
    for seed in range(2):
        pools = np.tile(np.arange(len(names)) < 3 + seed, (len(right), 1))
        lab.evaluate(benchmark, "rl_focal", right[:, 0], pools, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = write_report(warehouse, tmp_path / "report.html").read_text("utf-8")
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    for name in names:
        assert any(name in words for words in page.words), name
    assert any(benchmark in words for words in page.words)
    written = export_report(warehouse, tmp_path / "out")
    assert all(tmp_path / "out" in path.resolve().parents for path in written)
    drawn = {path.stem: ElementTree.parse(path).getroot() for path in written if path.suffix == ".svg"}
    words = unescape("".join(drawn["failures"].itertext()))
    assert all(name[:8] in words for name in names)
    [table] = [path for path in written if path.name == "models.csv"]
    with table.open(encoding="utf-8", newline="") as file:
        assert {row["model"] for row in csv.DictReader(file)} == {plain(name) for name in names}
    [table] = [path for path in written if path.name == "models.tex"]
    assert not re.search(r"(?<!\\)[#%]|(?<!\\)\$(?![-\\])", table.read_text("utf-8"))
    out = StringIO()
    print_table(leaderboard(warehouse), Console(file=out, width=400))
    assert all(name in out.getvalue() for name in names)


def plain(name: str) -> str:
    """As a spreadsheet reads it: never a formula."""
    return f"'{name}" if name.startswith("=") else name

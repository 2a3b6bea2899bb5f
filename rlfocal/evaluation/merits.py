"""Figures of merit for every method of a board, and the results of each method at each budget."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import nan

import numpy as np

from rlfocal.base.arrays import Bools, Floats
from rlfocal.base.names import CEILING_METHOD
from rlfocal.base.wording import number_or_none
from rlfocal.evaluation.leaderboard import Board, LeaderboardRow, correct_by_document
from rlfocal.methods import reads_task
from rlfocal.statistics.calibration import brier_score, reliability
from rlfocal.statistics.cost_curves import (
    aiq,
    apgr,
    cost_save,
    cpt,
    gap_to_oracle,
    pareto_distance,
    perf_gain,
)
from rlfocal.statistics.intervals import (
    Difference,
    Hits,
    Interval,
    Tasks,
    holm,
    mean_over_seeds,
    mean_over_tasks,
    paired_over_tasks,
)
from rlfocal.statistics.selective import SelectiveFigures, selective
from warehouse import Warehouse
from warehouse.scripts import script


@dataclass(frozen=True)
class BudgetResult:
    """The results of one method within one budget, as means over its seeds."""

    budget: str
    """The budget as text, as `Budget.parse` reads it."""
    seeds: int
    accuracy: float
    stderr_docs: float
    mean_pool_size: float
    cost: float | None
    """Cents per 1,000 queries; None if a price is unknown."""
    mean_rounds: float | None
    strong_share: float | None = None
    """The share of documents on which the most accurate model was asked; None if decisions were deleted."""


@dataclass(frozen=True)
class BudgetCurve:
    """The results of one method at every budget that it can keep to."""

    method: str
    points: tuple[BudgetResult, ...]
    """The results at each budget, from the fewest calls to the most."""

    def find_point(self, budget: str) -> BudgetResult | None:
        return next((point for point in self.points if point.budget == budget), None)


def budget_curves(warehouse: Warehouse, board: Board) -> tuple[BudgetCurve, ...]:
    """The curves of a board's methods; the method with the best accuracy at any budget comes first."""
    about = {
        "models": list(board.models),
        "benchmark": board.benchmark,
        "protocol": board.protocol,
        "per": board.per,
        "split": board.split,
        "trials": board.trials,
        "untuned": [s.method for s in board.rows if not s.is_tuned],
        "strong": board.singles[0].model if board.singles else "",
    }
    points = defaultdict(list)
    rows = warehouse.query(script("queries/budgets"), about)
    for row in rows.to_pylist():
        if reads_task(row["method"]) != board.reads_task:
            continue
        accuracy, _, stderr_docs = mean_over_seeds([row["accuracy"]], row["n"])
        points[row["method"]].append(
            BudgetResult(
                row["budget"],
                row["seeds"],
                accuracy,
                stderr_docs,
                row["mean_pool_size"],
                number_or_none(row["cost"]),
                number_or_none(row["mean_rounds"]),
                number_or_none(row["strong_share"]),
            )
        )
    curves = [BudgetCurve(method, tuple(of_method)) for method, of_method in points.items()]
    return tuple(sorted(curves, key=lambda curve: (-max(p.accuracy for p in curve.points), curve.method)))


@dataclass(frozen=True)
class TaskMean:
    """The mean over tasks of one method's accuracy, as a fraction, with 95 % intervals over documents and
    over tasks."""

    n_tasks: int
    by_documents: Interval
    """The mean over these tasks; its interval is for other documents of the same tasks."""
    by_tasks: Interval
    """The same mean; its interval is for other tasks of the same kind."""
    above_by_documents: Difference | None
    """The paired difference to the board's baseline, over documents; None for the baseline and without it."""
    above_by_tasks: Difference | None


@dataclass(frozen=True)
class Merits:
    """The figures of merit of one method on one board; NaN for a figure that the data do not give."""

    method: str
    accuracy: float
    gain: float
    """Accuracy / accuracy of the baseline - 1; its mean over data sets is PerfGain."""
    cost_save: float
    gap_to_oracle: float
    pareto_distance: float
    aiq: float
    """The AIQ over the method's budgets; the cheapest and the dearest model alone are among the points."""
    apgr: float
    """The APGR over the method's budgets, by the share of documents on which it asks the best model."""
    cpt_50: float
    cpt_80: float
    ece: float
    """The expected calibration error of the probabilities of the method's answers."""
    brier: float
    selective: SelectiveFigures | None
    """The risk and coverage if only the likeliest answers are given; None if the method gives no
    probability."""
    p_best_single: float
    """The p-value of the paired difference to the baseline, by Holm's method over the board's methods."""
    p_ours: Mapping[str, float]
    """For each of RL-Focal's methods, the p-value of its difference to `method`, also by Holm's method."""
    over_tasks: TaskMean | None
    """The method's mean over tasks; None if the benchmark has one task."""


def merits(warehouse: Warehouse, board: Board) -> tuple[Merits, ...]:
    """The figures of merit of a board's methods, in the board's order, without the oracle."""
    rivals = [s for s in board.rows if s.method != CEILING_METHOD]
    by_name = {s.method: s for s in board.rows}
    baseline, oracle = by_name.get(board.baseline), by_name.get(CEILING_METHOD)
    curves = {curve.method: curve for curve in budget_curves(warehouse, board)}
    distances = _rate_distances(rivals, board)
    calibrations = _rate_calibration(warehouse, rivals)
    p_baseline = _adjust_p_values(rivals, lambda s: s.against_baseline)
    of_tasks = average_over_tasks(warehouse, board)
    p_ours = {
        ours.method: _adjust_p_values(rivals, partial(_find_difference, ours.method)) for ours in board.ours
    }
    rows = []
    for s in rivals:
        ece, brier, kept = calibrations.get(s.method, (nan, nan, None))
        rows.append(
            Merits(
                s.method,
                s.accuracy,
                perf_gain(np.array([s.accuracy]), np.array([baseline.accuracy])) if baseline else nan,
                cost_save(s.accuracy, _cost(s), baseline.accuracy, _cost(baseline)) if baseline else nan,
                gap_to_oracle(s.accuracy, oracle.accuracy) if oracle else nan,
                distances.get(s.method, nan),
                *_summarise_budgets(curves.get(s.method), board),
                ece,
                brier,
                kept,
                p_baseline.get(s.method, nan),
                {name: p[s.method] for name, p in p_ours.items() if s.method in p},
                of_tasks.get(s.method),
            )
        )
    return tuple(rows)


def _summarise_budgets(curve: BudgetCurve | None, board: Board) -> tuple[float, float, float, float]:
    """AIQ, APGR and both CPTs; NaN without budgets, or where a price or a single model's result is unknown.

    The weak model is the cheapest, the strong one the most accurate.
    """
    priced = [s for s in board.singles if s.cost is not None]
    if curve is None or len(priced) < len(board.models) or any(p.cost is None for p in curve.points):
        return nan, nan, nan, nan
    weak = min(priced, key=lambda s: (s.cost or 0.0, -s.accuracy))
    strong = max(priced, key=lambda s: s.accuracy)
    ends = [(s.cost or 0.0, s.accuracy) for s in (weak, max(priced, key=lambda s: s.cost or 0.0))]
    points = [(p.cost or 0.0, p.accuracy) for p in curve.points]
    quality = aiq(*np.array([*points, *ends]).T)
    shares = np.array([p.strong_share for p in curve.points], dtype=np.float64)
    if np.isnan(shares).any():
        return quality, nan, nan, nan
    between = shares, np.array([p.accuracy for p in curve.points]), weak.accuracy, strong.accuracy
    return quality, apgr(*between), cpt(*between, 0.5), cpt(*between, 0.8)


def _find_difference(ours: str, row: LeaderboardRow) -> Difference | None:
    return row.ours_above.get(ours)


def _adjust_p_values(
    rivals: Sequence[LeaderboardRow], difference: Callable[[LeaderboardRow], Difference | None]
) -> dict[str, float]:
    pairs = [(s.method, d.p_value) for s in rivals if (d := difference(s)) is not None]
    adjusted = holm(np.array([p for _, p in pairs])).tolist()
    return {name: p for (name, _), p in zip(pairs, adjusted, strict=True)}


def _rate_distances(rivals: Sequence[LeaderboardRow], board: Board) -> dict[str, float]:
    """For each method, the distance to the Pareto front of all methods and single models.

    Methods and models that cost nothing are left out, because 0 has no logarithm.
    """
    points = {s.method: (s.cost, s.accuracy) for s in rivals if s.cost}
    points |= {f"single:{s.model}": (s.cost, s.accuracy) for s in board.singles if s.cost}
    if not points:
        return {}
    costs, accuracies = np.array(list(points.values()), dtype=np.float64).T
    return dict(zip(points, pareto_distance(costs, accuracies).tolist(), strict=True))


def _rate_calibration(
    warehouse: Warehouse, rows: Sequence[LeaderboardRow]
) -> dict[str, tuple[float, float, SelectiveFigures | None]]:
    """For each method with probabilities, ECE, Brier score and selective figures over all seeds' answers."""
    runs_of = {s.method: [run.run_id for run in s.runs] for s in rows}
    by_run = probabilities_of(warehouse, [run for runs in runs_of.values() for run in runs])
    by_method: dict[str, tuple[float, float, SelectiveFigures | None]] = {}
    for method, runs in runs_of.items():
        sure, right = map(np.stack, zip(*(by_run[run] for run in runs), strict=True))
        if not np.isnan(sure).all():
            ece = reliability(sure.ravel(), right.ravel()).expected_error
            by_method[method] = ece, brier_score(sure.ravel(), right.ravel()), selective(sure, right)
    return by_method


def probabilities_of(warehouse: Warehouse, runs: Sequence[str]) -> dict[str, tuple[Floats, Bools]]:
    """For each run, (T,) its answers' probabilities, NaN where unknown, and (T,) whether they are right."""
    table = warehouse.query(script("queries/probabilities"), [list(runs)])
    owner = table["run_id"].to_numpy()
    probability, correct = table["probability"].to_numpy(), table["correct"].to_numpy().astype(np.bool_)
    return {run: (probability[owner == run], correct[owner == run]) for run in runs}


def _cost(row: LeaderboardRow) -> float:
    return nan if row.cost is None else row.cost


def average_over_tasks(warehouse: Warehouse, board: Board) -> Mapping[str, TaskMean]:
    """For each method, its mean over tasks, from documents that all its seeds decided; empty for one task."""
    runs = {s.method: [run.run_id for run in s.runs] for s in board.rows}
    every = [run for of_method in runs.values() for run in of_method]
    about = (board.benchmark, every)
    tasks = warehouse.query(script("queries/tasks_of_documents"), about)["task"].to_numpy().astype(np.str_)
    if len(set(tasks.tolist())) < 2:
        return {}
    by_run = correct_by_document(warehouse, *about)
    hits = {name: np.stack([by_run[run] for run in of_method]) for name, of_method in runs.items()}
    baseline = hits.get(board.baseline)
    return {
        name: _make_task_mean(own, None if name == board.baseline else baseline, tasks)
        for name, own in hits.items()
        if not np.isnan(own).any(axis=0).all()
    }


def _make_task_mean(all_hits: Hits, baseline: Hits | None, tasks: Tasks) -> TaskMean:
    decided = ~np.isnan(all_hits).any(axis=0)
    hits, of = all_hits[:, decided], tasks[decided]
    shared = decided if baseline is None else decided & ~np.isnan(baseline).any(axis=0)
    above: list[Difference | None] = [None, None]
    if baseline is not None and shared.any():
        pair = all_hits[:, shared], baseline[:, shared], tasks[shared]
        above = [paired_over_tasks(*pair, whole=whole) for whole in (False, True)]
    return TaskMean(
        len(np.unique(of)),
        mean_over_tasks(hits, of),
        mean_over_tasks(hits, of, whole=True),
        *above,
    )

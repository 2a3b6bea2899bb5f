"""What methods reach at each budget: one curve per method, read from the warehouse alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from rlfocal.base.wording import known
from rlfocal.evaluation.leaderboard import Board
from rlfocal.methods import reads_task
from rlfocal.statistics.intervals import mean_over_seeds
from warehouse import Warehouse
from warehouse.scripts import script


@dataclass(frozen=True)
class AtBudget:
    """One method held to one budget, averaged over its seeds."""

    budget: str
    """As `Budget` writes it."""
    seeds: int
    accuracy: float
    stderr_docs: float
    mean_pool_size: float
    cost: float | None
    """Cents per 1,000 queries; None if a price is unknown."""
    mean_rounds: float | None
    strong_share: float | None = None
    """The share of documents on which the most accurate model was asked; None if decisions are gone."""


@dataclass(frozen=True)
class BudgetCurve:
    """One method at every budget that it was held to and can keep to."""

    method: str
    points: tuple[AtBudget, ...]
    """From the fewest calls to the most."""

    def at(self, budget: str) -> AtBudget | None:
        return next((point for point in self.points if point.budget == budget), None)


def budget_curves(warehouse: Warehouse, board: Board) -> tuple[BudgetCurve, ...]:
    """The curves of a board's methods, the most accurate at their best budget first."""
    about = {
        "models": list(board.models),
        "benchmark": board.benchmark,
        "protocol": board.protocol,
        "per": board.per,
        "split": board.split,
        "trials": board.trials,
        "untuned": [s.method for s in board.standings if not s.is_tuned],
        "strong": board.singles[0].model if board.singles else "",
    }
    points = defaultdict(list)
    rows = warehouse.query(script("queries/budgets"), about)
    for row in rows.to_pylist():
        if reads_task(row["method"]) != board.reads_task:
            continue
        accuracy, _, stderr_docs = mean_over_seeds([row["accuracy"]], row["n"])
        points[row["method"]].append(
            AtBudget(
                row["budget"],
                row["seeds"],
                accuracy,
                stderr_docs,
                row["mean_pool_size"],
                known(row["cost"]),
                known(row["mean_rounds"]),
                known(row["strong_share"]),
            )
        )
    curves = [BudgetCurve(method, tuple(of_method)) for method, of_method in points.items()]
    return tuple(sorted(curves, key=lambda curve: (-max(p.accuracy for p in curve.points), curve.method)))

"""What methods reach at each budget: one curve per method, read from the warehouse alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import sqrt

from rlfocal.evaluation.comparable import known
from rlfocal.evaluation.leaderboard import Board
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
    untuned = [s.method for s in board.standings if not s.is_tuned]
    about = [list(board.models), *board.key, untuned]
    points = defaultdict(list)
    for row in warehouse.query(script("queries/budgets"), about).to_pylist():
        accuracy, n = row["accuracy"], row["n"]
        points[row["method"]].append(
            AtBudget(
                row["budget"],
                row["seeds"],
                accuracy,
                sqrt(max(accuracy * (1 - accuracy), 0) / n),
                row["mean_pool_size"],
                known(row["cost"]),
                known(row["mean_rounds"]),
            )
        )
    curves = [BudgetCurve(method, tuple(of_method)) for method, of_method in points.items()]
    return tuple(sorted(curves, key=lambda curve: (-max(p.accuracy for p in curve.points), curve.method)))

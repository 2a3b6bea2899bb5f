"""The figure of accuracy over cost, with its Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from rlfocal.base.names import CEILING_METHOD
from rlfocal.base.wording import percent
from rlfocal.evaluation.comparable import SINGLE_PREFIX
from rlfocal.evaluation.leaderboard import Board
from rlfocal.evaluation.merits import budget_curves
from rlfocal.evaluation.verdicts import BY_TASK
from rlfocal.report.figures import Figure, board_figure
from rlfocal.report.figures.style import (
    ACCENT,
    BLUE,
    HEIGHT,
    INK,
    MAX_LABEL_PIXELS,
    MUTED_COLOUR,
    THIRD,
    WIDTH,
    number_tooltip,
    percent_axis,
    rows,
    text_tooltip,
)
from warehouse import Warehouse

BUDGETS, OTHER_METHODS, SINGLES = "RL-Focal within a budget", "other methods", "single models"
SHAPES = ("diamond", "triangle-up", "cross", "triangle-down")
"""The shapes of the points of RL-Focal's methods, used in turn."""


@board_figure(place=1)
def cost(warehouse: Warehouse, board: Board) -> Figure | None:
    """The figure of methods' and models' accuracy over cost; None if only single models have points."""
    priced = board.is_priced
    points = _make_points(board, priced)
    if all(point["kind"] == SINGLES for point in points):
        return None
    within = [
        {"name": f"{curve.method}, at most {p.budget.replace('c', ' ¢')}", "kind": BUDGETS}
        | _place(p.cost if priced else p.mean_pool_size, p.accuracy, p.stderr_docs, p.mean_pool_size)
        for curve in budget_curves(warehouse, board)
        if curve.method in {s.method for s in board.ours}
        for p in curve.points
        if not priced or p.cost is not None
    ]
    points = [*within, *points]
    front = _find_front(points)
    drawn = {point["name"] for point in points}
    wanted = [*([board.rival.method] if board.rival else []), board.baseline, BY_TASK]
    named_ones = [name for name in dict.fromkeys(wanted) if name in drawn]
    unit = "cost, cents per 1,000 queries" if priced else "models asked per document"
    unpriced = (
        "" if priced else "Not every price is known, so the number of models asked stands for the cost. "
    )
    ours = (
        "; ".join(f"{s.method} {percent(s.accuracy)} %" for s in board.ours) or "RL-Focal was not evaluated"
    )
    best = ", ".join(str(p["name"]) for p in front)
    return Figure(
        _chart(points, front, named_ones, unit, priced),
        "Accuracy over cost.",
        f"{unpriced}Up and to the left is better; the line is the Pareto front. Bars are 95 % intervals over "
        "documents. The oracle is left out.",
        f"Accuracy over {unit} on {board.benchmark}: {ours}. On the Pareto front: {best}.",
    )


def _chart(
    points: Sequence[dict[str, Any]],
    front: Sequence[dict[str, Any]],
    named_ones: Sequence[str],
    unit: str,
    priced: bool,
) -> alt.LayerChart:
    """The chart of accuracy over cost; RL-Focal's methods differ in shape, and `named_ones` are labelled."""
    kinds = list(dict.fromkeys(p["kind"] for p in reversed(points)))
    ours = [kind for kind in kinds if kind not in (BUDGETS, OTHER_METHODS, SINGLES)]
    looks = {kind: (ACCENT, SHAPES[place % len(SHAPES)]) for place, kind in enumerate(ours)}
    looks |= {BUDGETS: (THIRD, "circle"), OTHER_METHODS: (BLUE, "circle"), SINGLES: (MUTED_COLOUR, "square")}
    colours, shapes = (
        alt.Scale(domain=kinds, range=[looks[kind][place] for kind in kinds]) for place in (0, 1)
    )
    costs = [p["cost"] for p in points]
    axis = alt.Axis() if priced else alt.Axis(tickMinStep=1)
    x = alt.X("cost", type="quantitative", title=unit, scale=cost_scale(costs), axis=axis)
    y = percent_axis("accuracy")
    colour = alt.Color("kind:N", scale=colours, title=None)
    base = alt.Chart(rows(points)).encode(x=x, color=colour)
    bars = base.mark_rule(opacity=0.3).encode(y=percent_axis("low"), y2="high:Q")
    marks = base.mark_point(filled=True, size=52, opacity=1).encode(
        y=y,
        shape=alt.Shape("kind:N", scale=shapes, title=None),
        tooltip=[
            text_tooltip("name", "name"),
            number_tooltip("accuracy", "accuracy, %"),
            number_tooltip("low", "from"),
            number_tooltip("high", "to"),
            number_tooltip("cost", unit, ",.3~f"),
            number_tooltip("asked", "models asked"),
        ],
    )
    line = (
        alt.Chart(rows(front))
        .mark_line(interpolate="step-after", color=INK, strokeWidth=1, strokeDash=[3, 3], opacity=0.7)
        .encode(x=x, y=y)
    )
    labels = []
    for name, dy in zip(named_ones, (-9, 14, -9), strict=False):
        of_name = [p for p in points if p["name"] == name]
        # Away from the axis where a point is next to it.
        align, dx = ("left", 6) if of_name[0]["cost"] == min(costs) else ("right", -6)
        text = alt.Chart(rows(of_name)).mark_text(
            align=align, dx=dx, dy=dy, color=INK, limit=2 * MAX_LABEL_PIXELS
        )
        labels.append(text.encode(x=x, y=y, text="name:N"))
    return alt.layer(line, bars, marks, *labels).properties(width=WIDTH, height=HEIGHT)


def cost_scale(costs: Sequence[float]) -> alt.Scale:
    """A scale of costs: logarithmic if they span more than a factor of eight and none is 0, else linear."""
    low, high = min(costs), max(costs)
    if high > 8 * low > 0:
        spare = (high / low) ** 0.08
        return alt.Scale(type="log", domain=[low / spare, high * spare], nice=False)
    spare = 0.05 * ((high - low) or high or 1.0)
    return alt.Scale(domain=[low - spare if low else -spare, high + spare], nice=False, zero=False)


def _make_points(board: Board, priced: bool) -> list[dict[str, Any]]:
    """The points of methods and models; RL-Focal's methods come last, so that they are drawn on top."""
    points: list[dict[str, Any]] = [
        {"name": s.model, "kind": SINGLES} | _place(s.cost if priced else 1.0, s.accuracy, s.stderr_docs, 1.0)
        for s in board.singles
    ]
    others = [
        s for s in board.rows if not s.is_ours and not s.method.startswith((SINGLE_PREFIX, CEILING_METHOD))
    ]
    return points + [
        {"name": s.method, "kind": s.method if s.is_ours else OTHER_METHODS}
        | _place(s.cost if priced else s.mean_pool_size, s.accuracy, s.stderr_docs, s.mean_pool_size)
        for s in (*others, *reversed(board.ours))
        if s.mean_pool_size > 0
    ]


def _place(paid: float | None, accuracy: float, stderr: float, n_asked: float) -> dict[str, float]:
    low, high = (100 * (accuracy + side * 1.96 * stderr) for side in (-1, 1))
    return {"cost": paid or 0.0, "accuracy": 100 * accuracy, "low": max(low, 0), "high": min(high, 100)} | {
        "asked": n_asked
    }


def _find_front(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The points of the Pareto front by rising cost: no other point is both cheaper and more accurate."""
    front: list[dict[str, Any]] = []
    for point in sorted(points, key=lambda p: (p["cost"], -p["accuracy"])):
        if not front or point["accuracy"] > front[-1]["accuracy"]:
            front.append(point)
    return front

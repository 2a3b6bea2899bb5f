"""Accuracy over cost: who is on the Pareto front."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from typing import Any, Literal

import altair as alt

from rlfocal.base.wording import percent
from rlfocal.evaluation.budgets import budget_curves
from rlfocal.evaluation.comparable import Run
from rlfocal.evaluation.leaderboard import CEILING, Board, Standing
from rlfocal.report.figures import Figure, board_figure
from rlfocal.report.figures.style import (
    ACCENT,
    BLUE,
    HEIGHT,
    INK,
    MUTED,
    PAPER,
    THIRD,
    WIDTH,
    named,
    percent_axis,
    rows,
    tip,
)
from warehouse import Warehouse

KINDS = {"RL-Focal": ACCENT, "RL-Focal, one seed": ACCENT, "RL-Focal within a budget": THIRD}
KINDS |= {"other methods": BLUE, "single models": MUTED}
SHAPES = ("diamond", "circle", "triangle-up", "circle", "square")
LONGEST = 32
"""Letters of a name in the figure; hovering shows all."""
LETTER = 6.5
"""How wide a letter is, in pixels."""
Side = tuple[Literal["left", "right"], int, int]
"""Of a name: which of its ends is at the point, moved by so many pixels to the right and down."""
SIDES: list[Side] = [side for dy in (16, 28, 40, -10, -22) for side in (("left", 8, dy), ("right", -8, dy))]
Box = tuple[float, float, float, float]
"""Left, right, top and bottom, in pixels."""


@board_figure(place=1)
def cost(warehouse: Warehouse, board: Board) -> Figure | None:
    """Where the board's methods and single models stand; None if nothing costs anything."""
    priced = board.is_priced
    points = _points(board, priced)
    if all(point["kind"] == "single models" for point in points):
        return None
    points += [
        {"name": f"{curve.method}, at most {p.budget.replace('c', ' ¢')}", "kind": "RL-Focal within a budget"}
        | _place(p.cost if priced else p.mean_pool_size, p.accuracy, p.stderr_docs, p.mean_pool_size)
        for curve in budget_curves(warehouse, board)
        if curve.method in {s.method for s in board.ours}
        for p in curve.points
        if not priced or p.cost is not None
    ]
    front = _front([p for p in points if p["kind"] != "RL-Focal, one seed"])
    unit = "cost, cents per 1,000 queries" if priced else "models asked per document"
    unpriced = (
        "" if priced else "Not every price is known, so the number of models asked stands for the cost. "
    )
    ours = (
        "; ".join(f"{s.method} {percent(s.accuracy)} %" for s in board.ours) or "RL-Focal was not evaluated"
    )
    best = ", ".join(str(p["name"]) for p in front)
    return Figure(
        _chart(points, front, unit),
        "Accuracy over cost.",
        f"{unpriced}Up and to the left is better: the line is the Pareto front, where nothing else is both "
        "cheaper and more accurate. Bars are 95 % intervals over documents. The oracle is left out.",
        f"Accuracy over {unit} on {board.benchmark}: {ours}. On the Pareto front: {best}.",
    )


def _chart(points: Sequence[dict[str, Any]], front: Sequence[dict[str, Any]], unit: str) -> alt.LayerChart:
    x = alt.X("cost", type="quantitative", title=unit, scale=cost_scale([p["cost"] for p in points]))
    y = percent_axis("accuracy")
    shown = [kind for kind in KINDS if any(p["kind"] == kind for p in points)]
    colours = alt.Scale(domain=shown, range=[KINDS[kind] for kind in shown])
    shapes = alt.Scale(domain=shown, range=[SHAPES[list(KINDS).index(kind)] for kind in shown])
    fills = alt.Scale(
        domain=shown, range=["transparent" if kind == "RL-Focal, one seed" else KINDS[kind] for kind in shown]
    )
    base = alt.Chart(rows(points)).encode(x=x, color=alt.Color("kind:N", scale=colours, title=None))
    bars = (
        base.transform_filter("datum.kind != 'RL-Focal, one seed'")
        .mark_rule(opacity=0.3)
        .encode(y=percent_axis("low"), y2="high:Q")
    )
    marks = base.mark_point(size=52, strokeWidth=1.5).encode(
        y=y,
        shape=alt.Shape("kind:N", scale=shapes, title=None),
        fill=alt.Fill("kind:N", scale=fills, title=None),
        tooltip=[
            named("name", "name"),
            tip("accuracy", "accuracy, %"),
            tip("low", "from"),
            tip("high", "to"),
            tip("cost", unit, ",.3~f"),
            tip("asked", "models asked"),
        ],
    )
    line = (
        alt.Chart(rows(front))
        .mark_line(interpolate="step-after", color=INK, strokeWidth=1, strokeDash=[3, 3], opacity=0.7)
        .encode(x=x, y=y)
    )
    labels = [
        alt.Chart(rows([{**point, "short": shortened(point["name"])}]))
        .mark_text(align=align, dx=dx, dy=dy, color=ACCENT if point["kind"] == "RL-Focal" else INK, **look)
        .encode(x=x, y=y, text="short:N")
        for point, (align, dx, dy) in _names(front, points)
        for look in ({"stroke": PAPER, "strokeWidth": 3}, {})
    ]
    return alt.layer(line, bars, marks, *labels).properties(width=WIDTH, height=HEIGHT)


def _names(
    front: Sequence[dict[str, Any]], points: Sequence[dict[str, Any]]
) -> list[tuple[dict[str, Any], Side]]:
    """The points that are named, and where their names stand.

    Names of the front stand where nothing else can be, above to the left, as far as they do not cover one
    another: RL-Focal's first, then the most accurate. The rest of RL-Focal's stand where they cover least.
    """
    pixels = _pixels(points)
    dots = [(x, x, y, y) for x, y in map(pixels, points)]
    found: list[tuple[dict[str, Any], Side]] = []
    boxes: list[Box] = []
    for p in sorted(front, key=lambda p: (p["kind"] != "RL-Focal", -p["accuracy"])):
        side: Side = ("left", 5, -9) if p is front[0] else ("right", -5, -9)
        box = _box(p, pixels(p), side)
        if not any(_overlap(box, other) for other in boxes):
            found.append((p, side))
            boxes.append(box)
    for p in points:
        if p["kind"] != "RL-Focal" or p in [point for point, _ in found]:
            continue

        def covered(side: Side, p: dict[str, Any] = p) -> tuple[int, int]:
            own = _box(p, pixels(p), side)
            return sum(_overlap(own, box) for box in boxes), sum(_overlap(own, dot) for dot in dots)

        side = min(SIDES, key=covered)
        found.append((p, side))
        boxes.append(_box(p, pixels(p), side))
    return found


def _pixels(points: Sequence[dict[str, Any]]) -> Callable[[dict[str, Any]], tuple[float, float]]:
    """From a point to about where it is drawn, from the upper left."""
    axis = cost_scale([p["cost"] for p in points]).to_dict()
    scale = log if axis.get("type") == "log" else float
    left, right = map(scale, axis["domain"])
    low, high = min(p["low"] for p in points), max(p["high"] for p in points)

    def pixels(p: dict[str, Any]) -> tuple[float, float]:
        x, y = (scale(p["cost"]) - left) / (right - left), (high - p["accuracy"]) / (high - low or 1.0)
        return WIDTH * x, HEIGHT * y

    return pixels


def _box(point: dict[str, Any], at: tuple[float, float], side: Side) -> Box:
    """Left, right, top and bottom of the point's name, in pixels."""
    align, dx, dy = side
    x, y = at[0] + dx, at[1] + dy
    width = LETTER * len(shortened(point["name"]))
    return (x, x + width, y - 11, y + 3) if align == "left" else (x - width, x, y - 11, y + 3)


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


def shortened(name: str, longest: int = LONGEST) -> str:
    """The name, or its beginning and end."""
    return name if len(name) <= longest else f"{name[: longest // 2]}…{name[1 - longest // 2 :]}"


def cost_scale(costs: Sequence[float]) -> alt.Scale:
    """Logarithmic where costs span more than a factor of eight; linear where a model is free."""
    low, high = min(costs), max(costs)
    if high > 8 * low > 0:
        spare = (high / low) ** 0.08
        return alt.Scale(type="log", domain=[low / spare, high * spare], nice=False)
    spare = 0.05 * ((high - low) or high or 1.0)
    return alt.Scale(domain=[low - spare if low else -spare, high + spare], nice=False, zero=False)


def _points(board: Board, priced: bool) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = [
        {"name": s.model, "kind": "single models"}
        | _place((s.cost or 0.0) if priced else 1.0, s.accuracy, s.stderr_docs, 1.0)
        for s in board.singles
    ]
    for s in board.standings:
        if s.method == CEILING or s.mean_pool_size <= 0 or s.method.startswith("single:"):
            continue
        kind = "RL-Focal" if s.is_ours else "other methods"
        points.append({"name": s.method, "kind": kind, **_at(s, s.stderr_docs, priced)})
        if s.is_ours and len(s.runs) > 1:
            points += [
                {"name": f"{s.method}, seed {run.seed}", "kind": "RL-Focal, one seed"} | _at(run, 0.0, priced)
                for run in s.runs
            ]
    return points


def _at(what: Standing | Run, stderr: float, priced: bool) -> dict[str, float]:
    paid = (what.cost or 0.0) if priced else what.mean_pool_size
    return _place(paid, what.accuracy, stderr, what.mean_pool_size)


def _place(paid: float | None, accuracy: float, stderr: float, asked: float) -> dict[str, float]:
    low, high = (100 * (accuracy + side * 1.96 * stderr) for side in (-1, 1))
    return {"cost": paid or 0.0, "accuracy": 100 * accuracy, "low": max(low, 0), "high": min(high, 100)} | {
        "asked": asked
    }


def _front(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What nothing else is both cheaper and more accurate than, by rising cost."""
    front: list[dict[str, Any]] = []
    for point in sorted(points, key=lambda p: (p["cost"], -p["accuracy"])):
        if not front or point["accuracy"] > front[-1]["accuracy"]:
            front.append(point)
    return front

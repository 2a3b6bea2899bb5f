"""Accuracy over cost: who is on the Pareto front."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any

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
LETTER = 0.011
"""How wide a letter is, as a share of the figure."""


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
    named_here = _apart(front, points)
    labels: list[alt.Chart | alt.LayerChart] = [label(named_here, x, y, side) for side in ("start", "end")]
    ours = [
        {**p, "short": shortened(p["name"])}
        for p in points
        if p["kind"] == "RL-Focal" and p not in named_here
    ]
    ours.sort(key=lambda p: p["cost"])
    for at, point in enumerate(ours):  # the cheapest to the left, the others to the right
        side: dict[str, Any] = (
            {"align": "right", "dx": -8} if at == 0 < len(ours) - 1 else {"align": "left", "dx": 8}
        )
        text = alt.Chart(rows([point])).encode(x=x, y=y, text="short:N")
        for look in ({"stroke": PAPER, "strokeWidth": 3}, {}):
            labels.append(text.mark_text(dy=16, color=ACCENT, **side, **look))
    return alt.layer(line, bars, marks, *labels).properties(width=WIDTH, height=HEIGHT)


def label(points: Sequence[dict[str, Any]], x: alt.X, y: alt.Y, side: str) -> alt.LayerChart:
    """Names of a front's points: above to the left, where nothing else can be; the first to the right."""
    of_side = [
        {**p, "short": shortened(p["name"])} for at, p in enumerate(points) if (at == 0) == (side == "start")
    ]
    text = alt.Chart(rows(of_side)).encode(x=x, y=y, text="short:N")
    dx = 5 if side == "start" else -5
    align = "left" if side == "start" else "right"
    halo = text.mark_text(align=align, dx=dx, dy=-9, color=INK, stroke=PAPER, strokeWidth=3)
    return alt.layer(halo, text.mark_text(align=align, dx=dx, dy=-9, color=INK))


def _apart(front: Sequence[dict[str, Any]], points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The front's points whose names do not cover one another: RL-Focal's first, then the most accurate."""
    scale = log if cost_scale([p["cost"] for p in points]).to_dict().get("type") == "log" else float
    wide, high = (
        max(map(of, points)) - min(map(of, points)) or 1.0
        for of in (lambda p: scale(p["cost"]), lambda p: p["accuracy"])
    )

    def covers(p: dict[str, Any], q: dict[str, Any]) -> bool:
        left, right = sorted((p, q), key=lambda one: float(one["cost"]))
        letters = len(shortened(right["name"]))  # they end at their point
        apart = (scale(right["cost"]) - scale(left["cost"])) / wide
        return apart < LETTER * letters and abs(p["accuracy"] - q["accuracy"]) <= 0.06 * high

    kept: list[dict[str, Any]] = []
    for p in sorted(front, key=lambda p: (p["kind"] != "RL-Focal", -p["accuracy"])):
        if not any(covers(p, q) for q in kept):
            kept.append(p)
    return sorted(kept, key=lambda p: float(p["cost"]))


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

"""Diversity against accuracy of every pool, with the pools that RL-Focal chose."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import altair as alt

from rlfocal.base.wording import decimal, percent
from rlfocal.evaluation.leaderboard import Board
from rlfocal.report.figures import Figure, board_figure
from rlfocal.report.figures.style import (
    ACCENT,
    BLUE,
    INK,
    MUTED,
    PAPER,
    named,
    percent_axis,
    rows,
    short_label,
    tip,
)
from rlfocal.report.pools import Pool, pool_choice
from warehouse import Warehouse

OTHERS = "other pools"
KINDS = {"chosen by RL-Focal": ACCENT, "all models": BLUE, "best in hindsight": INK, OTHERS: MUTED}
WIDE, SIDE = 430, 190


@board_figure(place=3)
def pools(warehouse: Warehouse, board: Board) -> Figure | None:
    """None where there are no two models."""
    runs = [run.run_id for standing in board.ours for run in standing.runs]
    return every_pool(warehouse, board.benchmark, runs, board.models)


def every_pool(
    warehouse: Warehouse, benchmark: str, runs: Sequence[str], models: Sequence[str]
) -> Figure | None:
    """Pools of these models, with those that the runs, which may be none, chose."""
    choice = pool_choice(warehouse, benchmark, runs, models)
    if choice is None:
        return None
    points = [
        *(_point(pool, models) for pool in choice.others),
        *(_point(pool, models, "chosen by RL-Focal", pool.share) for pool in choice.chosen),
        _point(choice.full, models, "all models"),
        _point(choice.best, models, "best in hindsight"),
    ]
    points = [p for p in points if p["d"] is not None and p["a"] is not None]
    if not points:
        return None
    asked = (
        f"It used {choice.distinct:,} pools, of which the {len(choice.chosen)} most frequent are shown; area "
        "is their share of its decisions. "
        if choice.chosen
        else ""
    )
    sizes = {1: "", 2: "2 "}.get(choice.max_size, f"2 to {choice.max_size} ")
    most = choice.chosen[0] if choice.chosen else None
    best = choice.best
    often = f"Chosen most often: {', '.join(most.models)} ({percent(most.share, 0)} %). " if most else ""
    return Figure(
        _chart(points, models),
        "Diversity against accuracy of every pool.",
        f"Each point is a pool of {sizes}models, on the test documents. {asked}Draw a "
        "rectangle: the bars count in how many of its pools each model is. A pool's plurality accuracy is "
        "not that of RL-Focal, which can fuse better or worse than a vote.",
        f"Focal diversity against plurality accuracy of {len(points):,} pools on {benchmark}. {often}"
        f"Best in hindsight: {', '.join(best.models)}, diversity {decimal(best.focal_diversity)}, accuracy "
        f"{percent(best.plurality_accuracy)} %.",
    )


def _point(pool: Pool, models: Sequence[str], kind: str = "", share: float = 0.0) -> dict[str, Any]:
    """Of thousands: what others have in common is left out."""
    rank = {model: at for at, model in enumerate(models)}
    diversity, accuracy = pool.focal_diversity, pool.plurality_accuracy
    members = [rank[model] for model in pool.models if model in rank]
    point = {"m": members, "d": _rounded(diversity, 4), "a": _rounded(accuracy, 4, 100)}
    return point | ({"kind": kind, "share": 100 * share} if kind else {})


def _rounded(value: float | None, digits: int, scale: int = 1) -> float | None:
    return None if value is None else round(scale * value, digits)


def _chart(points: Sequence[dict[str, Any]], models: Sequence[str]) -> alt.ConcatChart:
    brush = alt.selection_interval(name="brush")
    names = json.dumps(list(models))
    # Vega has no loop over a list: a term for each model.
    members = " + ".join(
        f"(indexof(datum.m, {at}) >= 0 ? {json.dumps(name + ', ')} : '')" for at, name in enumerate(models)
    )
    shown = [kind for kind in KINDS if any(p.get("kind", OTHERS) == kind for p in points)]
    colours = alt.Scale(domain=shown, range=[KINDS[kind] for kind in shown])
    data = rows(points)
    base = (
        alt.Chart(data)
        .transform_calculate(members=members)
        .transform_calculate(size="length(datum.m)")
        .transform_calculate(kind=f"datum.kind || '{OTHERS}'")
        .transform_calculate(share="datum.share || 0")
        .encode(
            x=alt.X("d:Q", title="focal diversity", scale=alt.Scale(zero=False)),
            y=percent_axis("a", "plurality accuracy on test documents, %"),
            color=alt.Color("kind:N", scale=colours, title=None, legend=alt.Legend(columns=2)),
            tooltip=[
                named("members", "pool"),
                tip("size", "models", "d"),
                tip("d", "focal diversity", ".3f"),
                tip("a", "plurality accuracy, %"),
                tip("share", "share of RL-Focal's decisions, %", ".1f"),
            ],
        )
    )
    faded = alt.condition(brush, alt.value(0.55), alt.value(0.12))
    others = (
        base.transform_filter("datum.kind == 'other pools'").mark_circle(size=14).encode(opacity=faded)
    ).add_params(brush)
    special = (
        base.transform_filter("datum.kind != 'other pools'")
        .mark_circle(stroke=PAPER, strokeWidth=0.8, opacity=0.85)
        .encode(size=alt.Size("share:Q", scale=alt.Scale(domain=[0, 100], range=[60, 900]), legend=None))
    )
    bars = (
        alt.Chart(data)
        .transform_filter(brush)
        .transform_flatten(["m"])
        .transform_calculate(model=f"{names}[datum.m]")
        .mark_bar(color=BLUE)
        .encode(
            y=alt.Y(
                "model:N",
                title=None,
                sort="-x",
                axis=alt.Axis(titleY=0, labelExpr=short_label(), labelOverlap=True),
            ),
            x=alt.X("count():Q", title="pools in the rectangle"),
            tooltip=[named("model", "model"), alt.Tooltip("count():Q", title="pools")],
        )
    )
    height = max(330, min(13 * len(models), 900))
    plane = alt.layer(others, special).properties(width=WIDE, height=330)
    return alt.concat(plane, bars.properties(width=SIDE, height=height), columns=2).resolve_scale(
        color="independent"
    )

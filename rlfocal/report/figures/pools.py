"""The figure of accuracy over diversity for every pool, with the pools that RL-Focal chose."""

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
    HEIGHT,
    INK,
    MUTED_COLOUR,
    PAPER,
    WIDTH,
    number_tooltip,
    percent_axis,
    rows,
    text_tooltip,
)
from rlfocal.report.pools import PoolFigures, pool_choice
from warehouse import Warehouse

OTHER_POOLS = "other pools"
POOL_KINDS = {
    "chosen by RL-Focal": ACCENT,
    "all models": BLUE,
    "best in hindsight": INK,
    OTHER_POOLS: MUTED_COLOUR,
}


@board_figure(place=2)
def pools(warehouse: Warehouse, board: Board) -> Figure | None:
    """The figure of every pool's accuracy over its diversity; None if fewer than two models have answers."""
    runs, models = [run.run_id for standing in board.ours for run in standing.runs], board.models
    choice = pool_choice(warehouse, board.benchmark, runs, models)
    if choice is None:
        return None
    points = [
        *(_plot(pool, models) for pool in choice.other_pools),
        *(_plot(pool, models, "chosen by RL-Focal", pool.share) for pool in choice.chosen_pools),
        _plot(choice.whole_pool, models, "all models"),
        _plot(choice.best_pool, models, "best in hindsight"),
    ]
    points = [p for p in points if p["d"] is not None and p["a"] is not None]
    if not points:
        return None
    asked = (
        f"It used {choice.n_distinct:,} pools, of which the {len(choice.chosen_pools)} most frequent are "
        "shown; area is their share of its decisions. "
        if choice.chosen_pools
        else ""
    )
    sizes = {1: "", 2: "2 "}.get(choice.max_size, f"2 to {choice.max_size} ")
    most = choice.chosen_pools[0] if choice.chosen_pools else None
    best = choice.best_pool
    often = f"Chosen most often: {', '.join(most.models)} ({percent(most.share, 0)} %). " if most else ""
    return Figure(
        _chart(points, models),
        "Diversity against accuracy of every pool.",
        f"Each point is a pool of {sizes}models, on the test documents. {asked}A pool's "
        "plurality accuracy is not that of RL-Focal, which can fuse better or worse than a vote.",
        f"Focal diversity against plurality accuracy of {len(points):,} pools on {board.benchmark}. {often}"
        f"Best in hindsight: {', '.join(best.models)}, diversity {decimal(best.focal_diversity)}, accuracy "
        f"{percent(best.plurality_accuracy)} %.",
    )


def _plot(pool: PoolFigures, models: Sequence[str], kind: str = "", share: float = 0.0) -> dict[str, Any]:
    """One pool's point, kept short for a page with thousands: members `m` are their positions in `models`."""
    members = [models.index(model) for model in pool.models if model in models]
    diversity, accuracy = _round(pool.focal_diversity, 4), _round(pool.plurality_accuracy, 4, 100)
    point = {"m": members, "d": diversity, "a": accuracy}
    return point | ({"kind": kind, "share": 100 * share} if kind else {})


def _round(value: float | None, digits: int, scale: int = 1) -> float | None:
    return None if value is None else round(scale * value, digits)


def _chart(points: Sequence[dict[str, Any]], models: Sequence[str]) -> alt.LayerChart:
    # Vega has no loop over a list: a term for each model.
    members = " + ".join(
        f"(indexof(datum.m, {place}) >= 0 ? {json.dumps(name + ', ')} : '')"
        for place, name in enumerate(models)
    )
    shown = [kind for kind in POOL_KINDS if any(p.get("kind", OTHER_POOLS) == kind for p in points)]
    colours = alt.Scale(domain=shown, range=[POOL_KINDS[kind] for kind in shown])
    base = (
        alt.Chart(rows(points))
        .transform_calculate(members=members)
        .transform_calculate(size="length(datum.m)")
        .transform_calculate(kind=f"datum.kind || '{OTHER_POOLS}'")
        .transform_calculate(share="datum.share || 0")
        .encode(
            x=alt.X("d:Q", title="focal diversity", scale=alt.Scale(zero=False)),
            y=percent_axis("a", "plurality accuracy on test documents, %"),
            color=alt.Color("kind:N", scale=colours, title=None),
            tooltip=[
                text_tooltip("members", "pool"),
                number_tooltip("size", "models", "d"),
                number_tooltip("d", "focal diversity", ".3f"),
                number_tooltip("a", "plurality accuracy, %"),
                number_tooltip("share", "share of RL-Focal's decisions, %", ".1f"),
            ],
        )
    )
    others = base.transform_filter(f"datum.kind == '{OTHER_POOLS}'").mark_circle(size=14, opacity=0.3)
    special = (
        base.transform_filter(f"datum.kind != '{OTHER_POOLS}'")
        .mark_circle(stroke=PAPER, strokeWidth=0.8, opacity=0.85)
        .encode(size=alt.Size("share:Q", scale=alt.Scale(domain=[0, 100], range=[60, 900]), legend=None))
    )
    return alt.layer(others, special).properties(width=WIDTH, height=HEIGHT)

"""Who fails together: a heat map of every two models, ordered so that those alike stand side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from rlfocal.base.arrays import Floats
from rlfocal.base.wording import decimal, known
from rlfocal.evaluation.comparable import about_models, answering
from rlfocal.evaluation.leaderboard import Board
from rlfocal.report.figures import Figure, board_figure
from rlfocal.report.figures.style import ACCENT, BLUE, INK, named, rows, short_label, tip
from warehouse import Warehouse

WRITTEN = 14
"""The most models between which numbers are written."""
FAINTEST = 0.2
"""The least correlation that may have the strongest colour, or chance would."""


@board_figure(place=4)
def failures(warehouse: Warehouse, board: Board) -> Figure | None:
    """None where there are no two models."""
    models = sorted(set(board.models) & answering(warehouse, board.benchmark))
    if len(models) < 2:
        return None
    found = about_models(warehouse, "failures", board.benchmark, models)
    pairs = {(a, b): known(correlation) for a, b, correlation, *_ in found}
    order = clustered(models, pairs)
    rank = {model: at for at, model in enumerate(order)}
    data = rows(
        {"a": rank[a], "b": rank[b], "correlation": known(r), "both": 100 * both, "n": n}
        for a, b, r, both, n in found
    )
    alike = max(pairs, key=lambda pair: -2.0 if pairs[pair] is None else pairs[pair] or 0.0)
    strongest = max(FAINTEST, *(abs(r or 0.0) for r in pairs.values()))
    return Figure(
        _chart(data, order, strongest),
        "Who fails together.",
        "The correlation of failures of every two models on test documents: red, they fail on the same ones; "
        "blue, where one fails the other tends to be right. The strongest colour stands for "
        f"{strongest:.2f}. Models that fail alike stand side by side (average linkage).",
        f"Correlation of failures between {len(models)} models on {board.benchmark}; most alike: {alike[0]} "
        f"and {alike[1]}, {decimal(pairs[alike], 2)}.",
    )


def clustered(models: Sequence[str], correlations: Mapping[tuple[str, str], float | None]) -> list[str]:
    """The models in the order of a dendrogram over one minus correlation; where it is undefined, over 1."""
    rank = {model: at for at, model in enumerate(models)}
    distances: Floats = np.ones((len(models), len(models)))
    np.fill_diagonal(distances, 0)
    for (a, b), correlation in correlations.items():
        distances[rank[a], rank[b]] = distances[rank[b], rank[a]] = max(1 - (correlation or 0.0), 0)
    if len(models) < 3:
        return list(models)
    tree = linkage(squareform(distances), method="average", optimal_ordering=len(models) <= 150)
    return [models[at] for at in leaves_list(tree)]


def _chart(data: alt.Data, order: Sequence[str], strongest: float) -> alt.LayerChart:
    names = json.dumps(list(order))
    n, step = len(order), max(min(620 // len(order), 44), 7)
    label = short_label(f"{names}[datum.value]")
    every = {"domain": list(range(n)), "paddingInner": 0.06}

    def side(x: str, y: str) -> alt.Chart:
        return (
            alt.Chart(data)
            .transform_calculate(first=f"{names}[datum.a]")
            .transform_calculate(second=f"{names}[datum.b]")
            .encode(
                x=alt.X(f"{x}:O", title=None, scale=alt.Scale(**every)).axis(
                    labelExpr=label,
                    labelAngle=-60,
                    labelOverlap=step < 10,
                    ticks=False,
                    domain=False,
                ),
                y=alt.Y(f"{y}:O", title=None, scale=alt.Scale(**every)).axis(
                    labelExpr=label, labelOverlap=step < 10, titleY=0
                ),
            )
        )

    def cells(of: alt.Chart) -> alt.Chart:
        return (
            of.transform_calculate(strength="abs(datum.correlation)")
            .mark_rect()
            .encode(
                color=alt.condition("datum.correlation < 0", alt.value(BLUE), alt.value(ACCENT)),
                opacity=alt.Opacity(
                    "strength:Q", legend=None, scale=alt.Scale(domain=[0, strongest], range=[0.04, 0.6])
                ),
                tooltip=[
                    named("first", "one"),
                    named("second", "the other"),
                    tip("correlation", "correlation of failures"),
                    tip("both", "both wrong, % of documents", ".1f"),
                    tip("n", "documents", ",d"),
                ],
            )
        )

    halves = [side("a", "b"), side("b", "a")]
    layers = [cells(half) for half in halves]
    if n <= WRITTEN:
        layers += [
            half.transform_filter("isValid(datum.correlation)")
            .mark_text(fontSize=9, color=INK)
            .encode(text=alt.Text("correlation:Q", format=".2f"))
            for half in halves
        ]
    return alt.layer(*layers).properties(usermeta={"cells": True}, width=step * n, height=step * n)

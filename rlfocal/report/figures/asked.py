"""Whom RL-Focal asks, and in which round of calls."""

from __future__ import annotations

import altair as alt

from rlfocal.base.wording import percent
from rlfocal.evaluation.leaderboard import Board
from rlfocal.report.figures import Figure, board_figure
from rlfocal.report.figures.style import ACCENT, named, rows, tip
from warehouse import Warehouse
from warehouse.scripts import script


@board_figure(place=6)
def asked(warehouse: Warehouse, board: Board) -> Figure | None:
    """None where RL-Focal was not evaluated."""
    methods = {run.run_id: standing.method for standing in board.ours for run in standing.runs}
    about = {"benchmark": board.benchmark, "runs": list(methods), "methods": list(methods.values())}
    found = warehouse.rows(script("queries/asked_by_round"), about) if methods else []
    if not found:
        return None
    points = [
        {"method": method, "model": model, "round": number, "share": 100 * share}
        for method, model, number, share in found
    ]
    first = sorted(found, key=lambda row: (row[2], -row[3]))[0]
    order = list(dict.fromkeys(p["model"] for p in sorted(points, key=lambda p: (p["round"], -p["share"]))))
    panels = [
        alt.Chart(rows(p for p in points if p["method"] == name))
        .mark_bar(color=ACCENT)
        .encode(
            y=alt.Y("model:N", title=None, sort=order, scale=alt.Scale(domain=order)).axis(labelOverlap=True),
            x=alt.X("share:Q", title="asked, % of documents", scale=alt.Scale(domain=[0, 100])),
            opacity=alt.Opacity(
                "round:O", title="round", scale=alt.Scale(range=[0.95, 0.18]), sort="ascending"
            ),
            order="round:Q",
            tooltip=[
                named("model", "model"),
                tip("round", "round", "d"),
                tip("share", "asked in it, % of documents", ".1f"),
            ],
        )
        .properties(width=260, height=max(min(18 * len(order), 900), 60), title=name)
        for name in dict.fromkeys(methods.values())
        if any(p["method"] == name for p in points)
    ]
    return Figure(
        alt.concat(*panels, columns=2).resolve_scale(opacity="shared"),
        "Whom it asks, in which order.",
        "On which share of test documents, over all seeds, each model is asked, and in which round of calls: "
        "the darkest first. A document waits for one round after the other; models of one round are asked at "
        "once.",
        f"The models asked on {board.benchmark}, by round. {first[0]} asks {first[1]} in round {first[2]} on "
        f"{percent(first[3], 0)} % of documents.",
    )

"""Models by tasks: how accurate each is, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from rlfocal.base.wording import counted
from rlfocal.evaluation.comparable import about_models
from rlfocal.evaluation.leaderboard import Board
from rlfocal.report.figures import Figure, board_figure
from rlfocal.report.figures.style import ACCENT, BLUE, INK, named, rows, short_label, tip
from warehouse import Warehouse

WRITTEN = 16
"""The most models whose accuracies are written into the cells."""


@board_figure(place=7)
def models(warehouse: Warehouse, board: Board) -> Figure | None:
    """None for a benchmark without documents."""
    order = list(dict.fromkeys([*(s.model for s in board.singles), *board.models]))
    return coverage(warehouse, board.benchmark, order)


def coverage(warehouse: Warehouse, benchmark: str, models: Sequence[str]) -> Figure | None:
    """The models, in this order, by the tasks of a benchmark; None without documents or models."""
    found = about_models(warehouse, "coverage", benchmark, models)
    if not found:
        return None
    cells = [
        {"model": model, "task": task, "n": n, "documents": total, "missing": n < total}
        | {"accuracy": None if accuracy is None else 100 * accuracy}
        for model, task, n, total, accuracy in found
    ]
    tasks = list(dict.fromkeys(c["task"] for c in cells))
    order = list(models)
    gaps = sum(bool(c["missing"]) for c in cells)
    lacking = f"{counted(gaps, 'cell')} of {len(cells):,} {'lacks' if gaps == 1 else 'lack'} answers"
    wide, high = max(min(640 // len(order), 46), 6), 20 if len(tasks) < 40 else 12
    base = alt.Chart(rows(cells)).encode(
        x=alt.X("model:N", title=None, sort=order, scale=alt.Scale(domain=order, paddingInner=0.06)).axis(
            labelExpr=short_label(),
            labelAngle=-60,
            labelOverlap=wide < 10,
            ticks=False,
            domain=False,
        ),
        y=alt.Y("task:N", title=None, sort=tasks, scale=alt.Scale(domain=tasks, paddingInner=0.08)).axis(
            titleY=0
        ),
        tooltip=[
            named("model", "model"),
            named("task", "task"),
            tip("accuracy", "accuracy, %"),
            tip("n", "documents answered", ",d"),
            tip("documents", "of", ",d"),
        ],
    )
    shade = alt.Opacity("accuracy:Q", scale=alt.Scale(range=[0.04, 0.5]), legend=None)
    layers: list[alt.Chart] = [base.mark_rect(color=BLUE).encode(opacity=shade)]
    if gaps:
        marks = base.transform_filter("datum.missing").mark_rect(
            filled=False, stroke=ACCENT, strokeWidth=1.5, strokeDash=[3, 2]
        )
        layers.append(marks)
    if len(order) <= WRITTEN:
        layers.append(base.mark_text(fontSize=9, color=INK).encode(text=alt.Text("accuracy:Q", format=".0f")))
    return Figure(
        alt.layer(*layers).properties(
            usermeta={"cells": True}, width=wide * len(order), height=high * len(tasks)
        ),
        "Models by tasks.",
        "Accuracy in % on all documents of a task that a model answered, the darker the higher; "
        + (f"framed: {lacking}." if gaps else "nothing is missing."),
        f"Accuracy of {len(order)} models on {counted(len(tasks), 'task')} of {benchmark}; "
        + (f"{lacking}." if gaps else "nothing is missing."),
    )

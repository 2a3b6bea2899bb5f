"""The figure of learning curves: mean and range over seeds, by episode, or by stage for staged training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from rlfocal.base.wording import percent
from rlfocal.data.policy import PHASES
from rlfocal.evaluation.leaderboard import Board
from rlfocal.report.figures import Figure, board_figure
from rlfocal.report.figures.style import ACCENT, BLUE, number_tooltip, percent_axis, rows
from warehouse import Warehouse
from warehouse.scripts import script

TITLES = {
    "decider": "Decider",
    "fusion": "Fusion",
    "joint": "both agents",
    "stage": "Fusion, by models asked",
    "online": "online",
}
ASKING = {"decider", "joint"}
"""The phases in which the Decider learns."""


@board_figure(place=3)
def learning(warehouse: Warehouse, board: Board) -> Figure | None:
    """The figure of learning curves; None if RL-Focal was not evaluated, or its training history is not
    stored."""
    panels, ends = [], []
    for standing in board.ours:
        for phase, points in curves(warehouse, [run.run_id for run in standing.runs]).items():
            title = TITLES.get(phase, phase)
            panels.append(_draw_panel(points, f"{standing.method}, {title}", "accuracy", phase))
            if phase in ASKING:
                panels.append(_draw_panel(points, f"{standing.method}, models asked", "asked", phase))
            ends.append(f"{standing.method} {phase} ends at {percent(points[-1]['accuracy'] / 100)} %")
    if not panels:
        return None
    return Figure(
        alt.concat(*panels, columns=2),
        "How RL-Focal learned.",
        "Accuracy and models asked on train documents, phase by phase: the line is the mean over seeds, the "
        "band the range.",
        f"Learning curves on the train documents of {board.benchmark}: {'; '.join(ends)}.",
    )


def curves(warehouse: Warehouse, runs: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """The points of each phase of training of the runs; phases are in the order of training.

    For agents trained per task, points are means over tasks. The x of a stage is the number of models that
    have answered.
    """
    by_phase: dict[str, list[dict[str, Any]]] = {}
    for phase, episode, accuracy, low, high, asked, least, most in warehouse.rows(
        script("queries/learning_curve"), [list(runs)]
    ):
        x = asked if phase == "stage" else episode
        point = {"x": x, "accuracy": 100 * accuracy, "accuracy_low": 100 * low, "accuracy_high": 100 * high}
        by_phase.setdefault(phase, []).append(
            point | {"asked": asked, "asked_low": least, "asked_high": most}
        )
    return {
        phase: by_phase[phase] for phase in sorted(by_phase, key=lambda p: (p not in PHASES, _place(p), p))
    }


def _place(phase: str) -> int:
    return PHASES.index(phase) if phase in PHASES else len(PHASES)


def _draw_panel(points: Sequence[dict[str, Any]], title: str, field: str, phase: str) -> alt.LayerChart:
    words = {"accuracy": "accuracy, %", "asked": "models asked"}[field]
    axis = "models that have answered" if phase == "stage" else "episode"
    colour = ACCENT if field == "accuracy" else BLUE
    x = alt.X("x:Q", title=axis, axis=alt.Axis(tickMinStep=1, format="d"), scale=alt.Scale(zero=False))
    base = alt.Chart(rows(points)).encode(x=x)
    band = base.mark_area(color=colour, opacity=0.18).encode(
        y=percent_axis(f"{field}_low", words), y2=f"{field}_high:Q"
    )
    line = base.mark_line(
        color=colour, strokeWidth=1.6, point=alt.OverlayMarkDef(color=colour, size=18)
    ).encode(
        y=percent_axis(field, words),
        tooltip=[
            number_tooltip("x", axis, ".3~g"),
            number_tooltip(field, words),
            number_tooltip(f"{field}_low", "from"),
            number_tooltip(f"{field}_high", "to"),
        ],
    )
    return alt.layer(band, line).properties(width=300, height=180, title=title)

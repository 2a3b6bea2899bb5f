"""The figure of risk over coverage: how many answers are wrong if only the likeliest are given."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt
import numpy as np

from rlfocal.evaluation.leaderboard import Board, LeaderboardRow
from rlfocal.evaluation.merits import probabilities_of
from rlfocal.report.figures import Figure, board_figure
from rlfocal.report.figures.style import ACCENT, BLUE, HEIGHT, THIRD, number_tooltip, rows, text_tooltip
from rlfocal.statistics.selective import RiskCoverage, risk_coverage
from warehouse import Warehouse

DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [10, 4])
"""The line styles of RL-Focal's methods, used in turn."""
N_CURVE_POINTS = 100
"""The most points that are drawn of each curve."""
MIN_COVERAGE = 0.02
"""The smallest coverage that is drawn, because curves are noise below it."""


@board_figure(place=4)
def selective(warehouse: Warehouse, board: Board) -> Figure | None:
    """The figure of risk over coverage; None if no answers have probabilities."""
    curves = dict(_make_curves(warehouse, board))
    if not curves:
        return None
    ours = [name for name in curves if name in {s.method for s in board.ours}]
    colours = {name: ACCENT if name in ours else BLUE if name == board.baseline else THIRD for name in curves}
    dashes = [DASHES[ours.index(name) % len(DASHES)] if name in ours else [1, 0] for name in curves]
    points = [
        {"name": name, "coverage": 100 * covered, "risk": 100 * wrong, "threshold": sure}
        for name, curve in curves.items()
        for sure, covered, wrong in _thin_steps(curve)
    ]
    legend = alt.Legend(title=None, symbolType="stroke", symbolSize=300)
    domain = list(curves)
    lines = (
        alt.Chart(rows(points))
        .mark_line(strokeWidth=1.6)
        .encode(
            x=alt.X("coverage:Q", title="answered, % of documents", scale=alt.Scale(domain=[0, 100])),
            y=alt.Y("risk:Q", title="wrong, % of the answered"),
            color=alt.Color(
                "name:N", scale=alt.Scale(domain=domain, range=list(colours.values())), legend=legend
            ),
            strokeDash=alt.StrokeDash("name:N", scale=alt.Scale(domain=domain, range=dashes), legend=legend),
            tooltip=[
                text_tooltip("name", "name"),
                number_tooltip("coverage", "answered, %", ".1f"),
                number_tooltip("risk", "wrong, %", ".1f"),
                number_tooltip("threshold", "from a probability of", ".3f"),
            ],
        )
    )
    ends = [f"{name} at 5 % wrong: {100 * curve.coverage_at(0.05):.0f} %" for name, curve in curves.items()]
    return Figure(
        lines.properties(width=460, height=HEIGHT + 40),
        "Risk over coverage.",
        "Share of wrong answers on test documents, if only those are answered whose probability is highest; "
        "lower is better. Methods with seeds: the first.",
        f"Documents answered on {board.benchmark}, {'; '.join(ends)}.",
    )


def _make_curves(warehouse: Warehouse, board: Board) -> Iterator[tuple[str, RiskCoverage]]:
    """Yields, by name, the curves of RL-Focal's methods, the baseline and the best rival, if there are
    probabilities."""
    by_name = {s.method: s for s in board.rows}
    shown: dict[str, LeaderboardRow] = {s.method: s for s in board.ours}
    shown |= {name: by_name[name] for name in [board.baseline] if name in by_name}
    shown |= {} if board.rival is None else {board.rival.method: board.rival}
    runs = {name: standing.runs[0].run_id for name, standing in shown.items()}
    by_run = probabilities_of(warehouse, list(runs.values()))
    for name, run in runs.items():
        probability, correct = by_run[run]
        if not np.isnan(probability).all():
            yield name, risk_coverage(probability, correct)


def _thin_steps(curve: RiskCoverage) -> list[tuple[float, float, float]]:
    """The threshold, coverage and risk of evenly spaced steps of a curve."""
    places = np.flatnonzero(curve.coverage >= MIN_COVERAGE)
    places = (
        places[np.linspace(0, len(places) - 1, min(N_CURVE_POINTS, len(places))).round().astype(int)]
        if len(places)
        else places
    )
    columns = (curve.threshold, curve.coverage, curve.risk)
    return list(zip(*(column[places].tolist() for column in columns), strict=True))

"""Accuracy over calls: what methods reach when they are held to budgets."""

from __future__ import annotations

import altair as alt

from rlfocal.evaluation.budgets import BudgetCurve, budget_curves
from rlfocal.evaluation.leaderboard import Board, is_ours
from rlfocal.report.figures import Figure, board_figure
from rlfocal.report.figures.cost import cost_scale
from rlfocal.report.figures.style import (
    ACCENT,
    BLUE,
    HEIGHT,
    INK,
    MUTED,
    WIDTH,
    named,
    percent_axis,
    rows,
    tip,
)
from warehouse import Warehouse

NAMED = 5
"""Rivals, the most accurate ones at their best budget, that are drawn in colour."""
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [10, 4])


@board_figure(place=2)
def budgets(warehouse: Warehouse, board: Board) -> Figure | None:
    """Every method's accuracy over the models it asks, budget by budget; None if there are no budgets."""
    curves = budget_curves(warehouse, board)
    if not curves:
        return None
    ours = [curve for curve in curves if is_ours(curve.method)]
    rivals = [curve for curve in curves if not is_ours(curve.method)]
    looks = {c.method: (ACCENT, DASHES[at % len(DASHES)]) for at, c in enumerate(ours)}
    looks |= {c.method: (BLUE, DASHES[at]) if at < NAMED else (MUTED, [1, 3]) for at, c in enumerate(rivals)}
    points = [
        {"method": curve.method, "budget": "all models" if p.budget == "inf" else p.budget}
        | {"asked": p.mean_pool_size, "accuracy": 100 * p.accuracy, "stderr": 100 * p.stderr_docs}
        for curve in (*ours, *rivals)
        for p in curve.points
    ]
    names, counts = list(looks), [p.mean_pool_size for curve in curves for p in curve.points]
    legend = alt.Legend(title=None, values=names[: len(ours) + NAMED], columns=4)
    scales = [alt.Scale(domain=names, range=[looks[name][at] for name in names]) for at in (0, 1)]
    x = alt.X("asked", type="quantitative", title="models asked per document, on average")
    x = x.scale(cost_scale(counts))
    lines = (
        alt.Chart(rows(points))
        .mark_line(point=alt.OverlayMarkDef(size=36), strokeWidth=1.6)
        .encode(
            x=x,
            y=percent_axis("accuracy"),
            color=alt.Color("method:N", scale=scales[0], legend=legend),
            strokeDash=alt.StrokeDash("method:N", scale=scales[1], legend=legend),
            tooltip=[
                named("method", "method"),
                named("budget", "budget"),
                tip("accuracy", "accuracy, %"),
                tip("stderr", "± over documents"),
                tip("asked", "models asked"),
            ],
        )
    )
    baseline = [{"accuracy": 100 * s.accuracy} for s in board.standings if s.method == board.baseline]
    across = (
        alt.Chart(rows(baseline)).mark_rule(color=INK, strokeDash=[2, 2], opacity=0.7).encode(y="accuracy:Q")
    )
    spans = "; ".join(f"{curve.method} from {_span(curve)}" for curve in [*ours, *rivals[:1]])
    return Figure(
        alt.layer(across, lines).properties(width=WIDTH, height=HEIGHT),
        "Accuracy over calls.",
        "Each line is one method, fitted once and held to budgets. In colour: RL-Focal and the most accurate "
        f"rivals; the broken line across is {board.baseline}. Up and to the left is better.",
        f"Accuracy over models asked on {board.benchmark}: {spans}",
    )


def _span(curve: BudgetCurve) -> str:
    first, last = (100 * curve.points[at].accuracy for at in (0, -1))
    few, many = (curve.points[at].mean_pool_size for at in (0, -1))
    return f"{first:.2f} % at {few:.1f} calls to {last:.2f} % at {many:.1f}"

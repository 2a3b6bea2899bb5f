"""Reliability: how often models and RL-Focal are right when they are so sure."""

from __future__ import annotations

import altair as alt

from rlfocal.evaluation.comparable import answering
from rlfocal.evaluation.leaderboard import Board
from rlfocal.report.figures import Figure, board_figure
from rlfocal.report.figures.style import ACCENT, BLUE, HEIGHT, INK, MUTED, named, rows, tip
from warehouse import Warehouse
from warehouse.scripts import script

BINS = 10
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [10, 4])
"""Of RL-Focal's methods, by turns."""


@board_figure(place=4)
def reliability(warehouse: Warehouse, board: Board) -> Figure | None:
    """None where nothing has a confidence."""
    methods = {run.run_id: standing.method for standing in board.ours for run in standing.runs}
    present = answering(warehouse, board.benchmark)
    models = [single.model for single in board.singles if single.model in present]
    best = models[0] if models else None
    about = {"benchmark": board.benchmark, "bins": BINS, "models": models}
    about |= {"runs": list(methods), "methods": list(methods.values())}
    found = warehouse.rows(script("queries/reliability"), about) if best else []
    if not found:
        return None
    of_models = {f"{best}, the best model": BLUE, "other models": MUTED}
    points = [
        {"name": name, "confidence": 100 * sure, "accuracy": 100 * right, "n": n}
        | {"kind": name if is_ours else list(of_models)[name != best]}
        for name, is_ours, n, sure, right in found
    ]
    ours = {name: DASHES[at % len(DASHES)] for at, name in enumerate(dict.fromkeys(methods.values()))}
    kinds = dict.fromkeys(ours, ACCENT) | of_models
    shown = [kind for kind in kinds if any(p["kind"] == kind for p in points)]
    dashes = alt.Scale(domain=shown, range=[ours.get(kind, [1, 0]) for kind in shown])
    colours = alt.Scale(domain=shown, range=[kinds[kind] for kind in shown])
    legend = alt.Legend(title=None, symbolType="stroke", symbolSize=300)
    base = alt.Chart(rows(points)).encode(
        x=alt.X("confidence:Q", title="confidence, %", scale=alt.Scale(domain=[0, 100])),
        y=alt.Y("accuracy:Q", title="right, % of documents", scale=alt.Scale(domain=[0, 100])),
        color=alt.Color("kind:N", scale=colours, legend=legend),
        detail="name:N",
    )
    faint = alt.condition(alt.datum.kind == "other models", alt.value(0.25), alt.value(0.95))
    lines = base.mark_line(strokeWidth=1.4).encode(
        opacity=faint, strokeDash=alt.StrokeDash("kind:N", scale=dashes, legend=legend)
    )
    dots = base.mark_circle().encode(
        opacity=faint,
        size=alt.Size("n:Q", scale=alt.Scale(range=[10, 260]), legend=None),
        tooltip=[
            named("name", "name"),
            tip("confidence", "mean confidence, %", ".1f"),
            tip("accuracy", "right, %", ".1f"),
            tip("n", "documents", ",d"),
        ],
    )
    ideal = (
        alt.Chart(rows([{"x": 0, "y": 0}, {"x": 100, "y": 100}]))
        .mark_line(color=INK, strokeDash=[3, 3], strokeWidth=1, opacity=0.6)
        .encode(x="x:Q", y="y:Q")
    )
    sure = [p for p in points if p["name"] == best and p["n"]]
    said = f"{best} is right on {sure[-1]['accuracy']:.0f} % where it is {sure[-1]['confidence']:.0f} % sure"
    return Figure(
        alt.layer(ideal, lines, dots).properties(width=460, height=HEIGHT + 40),
        "Reliability.",
        f"Test documents in {BINS} bins of confidence; the area of a point is their number. Above the broken "
        "line a model is right more often than it believes, below it less often.",
        f"Confidence against accuracy on {board.benchmark}: {said}."
        if sure
        else "Confidence against accuracy.",
    )

"""The report's part about drift: whether the last extraction left models' answers as they were."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from rlfocal.base.errors import InputError
from rlfocal.base.tables import Table
from rlfocal.base.wording import counted
from rlfocal.report.figures import Figure
from rlfocal.upkeep.drift import Drift, before_last_extraction, drift_since, sentences
from rlfocal.upkeep.drift.wording import LISTED, table
from warehouse import Warehouse


@dataclass(frozen=True)
class DriftPart:
    """What the page shows of it."""

    said: tuple[str, ...]
    table: Table
    """The drifted partitions first, marked as ours."""
    more: str
    """How many rows are left out, in words; empty for none."""
    figure: Figure | None
    """None where nothing moved."""


def drift_part(warehouse: Warehouse) -> DriftPart | None:
    """None if the last extraction began the warehouse, or if the state before it is lost."""
    try:
        drift = drift_since(warehouse, before_last_extraction(warehouse))
    except (duckdb.IOException, duckdb.InvalidInputException, InputError):
        return None  # files that only earlier snapshots need may be gone: `rlfocal doctor` tells
    if not (drift.same or drift.rows or drift.gone):
        return None
    return _part(drift)


def _part(drift: Drift) -> DriftPart:
    left_out = len(drift.rows) - LISTED
    more = f"and {counted(left_out, 'partition')} more: rlfocal drift --json" if left_out > 0 else ""
    return DriftPart(tuple(sentences(drift)), table(drift), more, _figure(drift))


def _figure(drift: Drift) -> Figure | None:
    """Every moved partition, by how its accuracy changed and how many of its predictions flipped."""
    if not drift.rows:
        return None
    import altair as alt

    from rlfocal.report.figures import style

    kinds = {"beyond the thresholds": style.ACCENT, "within them": style.MUTED}
    points = [
        {"model": row.model, "task": f"{row.benchmark}/{row.task}", "flipped": 100 * row.flipped / row.n_docs}
        | {name: 100 * of for name, of in vars(row.change).items() if name in {"mean", "low", "high"}}
        | {"kind": list(kinds)[not row.reasons], "moved": row.logprobs.largest if row.logprobs else None}
        for row in drift.rows
    ]
    shown = [kind for kind in kinds if any(point["kind"] == kind for point in points)]
    colours = alt.Scale(domain=shown, range=[kinds[kind] for kind in shown])
    x = alt.X("flipped:Q", title="predictions that flipped, %", scale=alt.Scale(zero=True))
    base = alt.Chart(style.rows(points)).encode(x=x, color=alt.Color("kind:N", scale=colours, title=None))
    bars = base.mark_rule(opacity=0.3).encode(y="low:Q", y2="high:Q")
    dots = base.mark_point(filled=True, size=48).encode(
        y=style.percent_axis("mean", "change of accuracy, points"),
        tooltip=[
            style.named("model", "model"),
            style.named("task", "task"),
            style.tip("flipped", "predictions that flipped, %"),
            style.tip("mean", "change of accuracy, points"),
            style.tip("low", "from"),
            style.tip("high", "to"),
            style.tip("moved", "largest move of a log-prob, nats", ".3g"),
        ],
    )
    none = alt.Chart(style.rows([{"y": 0}])).mark_rule(color=style.INK, strokeDash=[2, 2]).encode(y="y:Q")
    return Figure(
        alt.layer(none, bars, dots).properties(width=style.WIDTH, height=240),
        f"Drift from snapshot {drift.before} to {drift.after}.",
        "Each point is a model on a task whose stored answers changed; bars are 95 % intervals, paired over "
        "documents.",
        f"Change of accuracy over flipped predictions of {counted(len(points), 'partition')}, "
        f"{len(drift.beyond):,} beyond the thresholds.",
        name="drift",
    )

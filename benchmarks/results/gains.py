"""Writes a figure of the docs, and the gains that `rlfocal advise` looks up, from labels.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.results.labels import METHODS, SINGLE
from benchmarks.results.pages import RESULTS, ROOT, read_rows
from rlfocal.base.atomic import write_file
from rlfocal.report.figures import Figure
from rlfocal.report.figures.style import ACCENT, BLUE, INK, MUTED_COLOUR, PAPER, THIRD, rows, svg

FIGURE = RESULTS.parent / "gain-by-labels.svg"
GAINS = ROOT / "rlfocal" / "evaluation" / "gains.json"


def write_gains(path: Path) -> None:
    """Writes the figure and the table of gains, from the results file at `path`."""
    write_file(FIGURE, svg(draw_gains(path).spec, PAPER))
    write_file(GAINS, list_gains(path))


def list_gains(path: Path) -> str:
    """The gains of `rl_focal` over the best single model as JSON, a line per number of labels and group of
    pools. A group is a third of the pools, by their ceiling."""
    lines = [
        json.dumps([row["x"], row["from"], row["to"], row["pools"], row["above"][SINGLE][:3]])
        for row in read_rows(path)
        if row.get("measure") == "ceiling" and row["method"] == "rl_focal"
    ]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def draw_gains(path: Path) -> Figure:
    """The figure: for each benchmark, a panel of each method's gain by number of labels, with intervals."""
    import altair as alt

    shown = [row for row in read_rows(path) if row["study"] == "labels" and row["method"] in METHODS]
    names = list(dict.fromkeys(row["benchmark"] for row in shown))
    colour = alt.Color(
        "method:N",
        scale=alt.Scale(domain=list(METHODS), range=[MUTED_COLOUR, BLUE, ACCENT, THIRD]),
        legend=alt.Legend(title=None),
    )

    def panel(name: str) -> alt.LayerChart:
        base = alt.Chart(rows(_make_point(row) for row in shown if row["benchmark"] == name)).encode(
            alt.X("x:Q", title="labels", scale=alt.Scale(type="log", nice=False, padding=12)), colour
        )
        axis = alt.Y("gain:Q", title="above the best single model, points")
        zero = alt.Chart(rows([{"at": 0}])).mark_rule(color=INK, strokeWidth=0.8).encode(y="at:Q")
        bars = base.mark_rule(opacity=0.6).encode(alt.Y("low:Q"), y2="high:Q")
        lines, dots = (
            mark.encode(axis) for mark in (base.mark_line(strokeWidth=1.2), base.mark_circle(size=24))
        )
        return alt.layer(zero, bars, lines, dots).properties(width=250, height=260, title=name)

    chart = alt.concat(*map(panel, names), columns=3).resolve_scale(color="shared")
    return Figure(
        chart, "Gain by labels.", "Bars: 95 % intervals.", "Gain over the best single model by labels."
    )


def _make_point(row: dict[str, Any]) -> dict[str, Any]:
    """The fields that the chart reads of a results row; x is shifted a little by method."""
    mean, low, high = (100 * value for value in row["above"][SINGLE][:3])
    apart = 1.05 ** (METHODS.index(row["method"]) - 1.5)
    return {"x": row["x"] * apart, "method": row["method"], "gain": mean, "low": low, "high": high}

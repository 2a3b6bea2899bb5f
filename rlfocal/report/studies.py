"""What a study found, as a table on a terminal and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from rich.console import Console
from rich.text import Text

from rlfocal.base.arrays import Floats
from rlfocal.base.tables import Table
from rlfocal.base.wording import cents, decimal, percent
from rlfocal.evaluation.studies.findings import OURS, Findings, Point
from rlfocal.report.figures._axes import WIDTH, show_percents
from rlfocal.report.svg import ACCENT, BLUE, INK, MUTED, inline, style
from rlfocal.report.tables import plus_minus

COLOURS = (ACCENT, BLUE, INK, MUTED)
MARKERS = ("D", "o", "s", "^")
BESIDE = {"mean_pool_size": "models asked", "seconds": "seconds per seed"}
LIGHT = {"ink": "#1d1c1a", "muted": "#6b675f", "rule": "#dfdbd1", "accent": "#b23a12", "blue": "#2b5c8a"}


def print_findings(findings: Findings, console: Console | None = None) -> None:
    """The table and the notes."""
    console = console or Console()
    several = len({p.series for p in findings.points if p.x is not None}) > 1
    asked = any(p.mean_pool_size is not None for p in findings.points)
    priced = any(p.cost is not None for p in findings.points)
    timed = findings.beside == "seconds"
    columns = ["acc %", "±seeds", "±docs", "n", "seeds"]
    columns += ["asked"] * asked + ["¢/1,000"] * priced + ["seconds"] * timed
    table = Table(findings.axis, *columns, title=findings.title)
    for p in findings.points:
        name = f"{p.series}, {p.label}" if several and p.series != p.label else p.label
        cells = [percent(p.accuracy), plus_minus(p.stderr_seeds), plus_minus(p.stderr_docs)]
        cells += [f"{p.n:,}", str(p.seeds), *[decimal(p.mean_pool_size, 2)] * asked]
        table.add(name, *cells, *[cents(p.cost)] * priced, *[decimal(p.seconds, 1)] * timed)
    console.print(table)
    for note in findings.notes:
        console.print(Text(note), width=min(console.width, 100))


def figure(findings: Findings, name: str) -> str:
    """Inline SVG: accuracy with standard errors over seeds (dark) and documents (light); beside it models
    asked, or seconds. `name` keeps its ids apart."""
    description = f"{findings.title}: {findings.question}"
    with style():
        if any(p.x is not None for p in findings.points):
            return inline(_lines(findings), name, description)
        return inline(_dots(findings), name, description)


def write_figure(findings: Findings, path: Path) -> Path:
    """The figure as an SVG file of its own, in the report's light colours."""
    drawn = figure(findings, "study")
    colours = "".join(f"--{name}:{value};" for name, value in LIGHT.items())
    head = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
    css = f"<style>svg{{{colours}--paper:#fcfbf8;--sans:sans-serif;background:#fcfbf8}}</style>"
    start = drawn.index(">") + 1
    title = f"<title>{escape(findings.title)}</title>"
    text = drawn[:start].replace("<svg ", head, 1) + title + css + drawn[start:]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _lines(findings: Findings) -> Figure:
    """Over a number: a line for each series; what has no place on the axis lies across."""
    figure = Figure(figsize=(WIDTH, 3.1), layout="constrained")
    panels = 1 if findings.beside is None else 2
    axes = figure.add_subplot(1, panels, 1)
    beside = None if findings.beside is None else figure.add_subplot(1, panels, 2)
    for at, name in enumerate(dict.fromkeys(p.series for p in findings.points if p.x is not None)):
        points = sorted((p for p in findings.points if p.series == name), key=lambda p: p.x or 0.0)
        x, y = [p.x or 0.0 for p in points], [p.accuracy for p in points]
        look: dict[str, Any] = {"color": COLOURS[at % len(COLOURS)], "lw": 1.2, "ms": 4}
        look["marker"] = MARKERS[at % len(MARKERS)]
        colour = look["color"]
        axes.errorbar(x, y, [p.stderr_docs for p in points], color=colour, fmt="none", lw=0.7, alpha=0.4)
        axes.errorbar(x, y, [p.stderr_seeds or 0.0 for p in points], color=colour, fmt="none", lw=1.8)
        axes.plot(x, y, label=name, **look)
        if beside is not None:
            beside.plot(x, [np.nan if (v := _beside(findings, p)) is None else v for p in points], **look)
    for p, dashes in zip([p for p in findings.points if p.x is None], (":", "--", "-."), strict=False):
        axes.axhline(p.accuracy, color=MUTED, lw=1, ls=dashes, label=p.label)
    if min(p.x for p in findings.points if p.x is not None) < 0:
        axes.axvline(0, color=MUTED, lw=0.8)
    show_percents(axes.yaxis)
    _axis(axes, findings)
    axes.set_title("accuracy on test documents, %")
    handles, names = axes.get_legend_handles_labels()
    if len(names) > 1:  # outside, where it hides no error bar
        figure.legend(handles, names, loc="outside lower center", ncols=5, frameon=False, fontsize=7)
    if beside is not None and findings.beside is not None:
        beside.set_title(BESIDE[findings.beside])
        beside.margins(y=0.1)
        beside.set_ylim(bottom=0)
        _axis(beside, findings)
    return figure


def _dots(findings: Findings) -> Figure:
    """By name: one row each, the first on top."""
    points = findings.points
    drawn = Figure(figsize=(WIDTH, 0.9 + 0.22 * len(points)), layout="constrained")
    panels = 1 if findings.beside is None else 2
    grid = drawn.add_gridspec(1, panels, width_ratios=[2, 1][:panels])
    axes = drawn.add_subplot(grid[0])
    rows = np.arange(len(points))
    colours = [ACCENT if p.series == OURS else BLUE for p in points]
    for row, p, colour in zip(rows, points, colours, strict=True):
        axes.errorbar(p.accuracy, row, xerr=p.stderr_docs, color=colour, fmt="none", lw=0.7, alpha=0.4)
        axes.errorbar(p.accuracy, row, xerr=p.stderr_seeds or 0.0, color=colour, fmt="none", lw=1.8)
        axes.plot([p.accuracy], [row], color=colour, marker="D" if colour == ACCENT else "o", ms=4)
    axes.set_yticks(rows, [p.label for p in points])
    axes.set_ylim(len(points) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    show_percents(axes.xaxis)
    axes.set_title("accuracy on test documents, %")
    if findings.beside is not None:
        beside = drawn.add_subplot(grid[1], sharey=axes)
        values = [_beside(findings, p) or 0.0 for p in points]
        beside.barh(rows, values, height=0.55, color=colours, alpha=0.6)
        beside.tick_params(labelleft=False)
        beside.grid(axis="y", visible=False)
        beside.set_title(BESIDE[findings.beside])
    return drawn


def _axis(axes: Axes, findings: Findings) -> None:
    """Logarithmic where values span more than a factor of twelve."""
    axes.set_xlabel(findings.axis)
    axes.grid(axis="x", visible=False)
    values = sorted({p.x for p in findings.points if p.x is not None})
    is_log = values[0] > 0 and values[-1] > 12 * values[0]
    if is_log:
        axes.set_xscale("log")
    if len(values) <= 8:
        axes.set_xticks(values, _apart(values, np.log(values) if is_log else np.array(values)))
        axes.set_xticks([], minor=True)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xticks([], minor=True)


def _apart(values: Sequence[float], places: Floats) -> list[str]:
    """The values as labels, left empty where one would overlap the previous one."""
    labels: list[str] = []
    taken = -np.inf
    for value, place in zip(values, places, strict=True):
        fits = place - taken >= 0.06 * (places[-1] - places[0])
        labels.append(f"{value:g}" if fits else "")
        taken = place if fits else taken
    return labels


def _beside(findings: Findings, p: Point) -> float | None:
    return p.seconds if findings.beside == "seconds" else p.mean_pool_size

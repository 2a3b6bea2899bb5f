"""What a study found, as a table on a terminal and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from rlfocal.base.terminal import Listing
from rlfocal.evaluation.leaderboard import cents, percent
from rlfocal.evaluation.studies.findings import OURS, Findings, Point
from rlfocal.report.svg import ACCENT, BLUE, INK, MUTED, inline, style

WIDTH = 7.0  # inches
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
    columns = ["acc %", "±seeds", "±docs", "n", "seeds"]
    timed = findings.beside == "seconds"
    columns += ["asked"] * asked + ["¢/1,000"] * priced + ["seconds"] * timed
    table = Listing(findings.axis, *columns, title=findings.title)
    for p in findings.points:
        name = f"{p.series}, {p.label}" if several and p.series != p.label else p.label
        table.add(name, *_cells(p, asked, priced, timed))
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
    series = list(dict.fromkeys(p.series for p in findings.points if p.x is not None))
    panels = 1 if findings.beside is None else 2
    drawn = Figure(figsize=(WIDTH, 3.1), layout="constrained")
    axes = drawn.add_subplot(1, panels, 1)
    for at, name in enumerate(series):
        points = sorted((p for p in findings.points if p.series == name), key=lambda p: p.x or 0.0)
        x, y = [p.x or 0.0 for p in points], [p.accuracy for p in points]
        colour, marker = COLOURS[at % len(COLOURS)], MARKERS[at % len(MARKERS)]
        axes.errorbar(x, y, [p.stderr_docs for p in points], color=colour, fmt="none", lw=0.7, alpha=0.4)
        axes.errorbar(x, y, [p.stderr_seeds or 0.0 for p in points], color=colour, fmt="none", lw=1.8)
        axes.plot(x, y, color=colour, marker=marker, ms=4, lw=1.2, label=name)
    for p, dashes in zip([p for p in findings.points if p.x is None], (":", "--", "-."), strict=False):
        axes.axhline(p.accuracy, color=MUTED, lw=1, ls=dashes, label=p.label)
    if min(p.x for p in findings.points if p.x is not None) < 0:
        axes.axvline(0, color=MUTED, lw=0.8)
    _percents(axes, "y")
    _axis(axes, findings)
    axes.set_title("accuracy on test documents, %")
    handles, names = axes.get_legend_handles_labels()
    if len(names) > 1:  # outside, where it hides no error bar
        drawn.legend(handles, names, loc="outside lower center", ncols=5, frameon=False, fontsize=7)
    if findings.beside is not None:
        beside = drawn.add_subplot(1, panels, 2)
        for at, name in enumerate(series):
            points = sorted((p for p in findings.points if p.series == name), key=lambda p: p.x or 0.0)
            values = [np.nan if (v := _beside(findings, p)) is None else v for p in points]
            beside.plot(
                [p.x or 0.0 for p in points],
                values,
                color=COLOURS[at % len(COLOURS)],
                marker=MARKERS[at % len(MARKERS)],
                ms=4,
                lw=1.2,
            )
        beside.set_title(BESIDE[findings.beside])
        beside.margins(y=0.1)
        beside.set_ylim(bottom=0)
        _axis(beside, findings)
    return drawn


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
    _percents(axes, "x")
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


def _apart(values: Sequence[float], places: NDArray[np.float64]) -> list[str]:
    """The values as labels, left empty where one would overlap the previous one."""
    labels: list[str] = []
    taken = -np.inf
    for value, place in zip(values, places, strict=True):
        fits = place - taken >= 0.06 * (places[-1] - places[0])
        labels.append(f"{value:g}" if fits else "")
        taken = place if fits else taken
    return labels


def _percents(axes: Axes, which: str) -> None:
    axis = axes.yaxis if which == "y" else axes.xaxis
    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}"))


def _beside(findings: Findings, p: Point) -> float | None:
    return p.seconds if findings.beside == "seconds" else p.mean_pool_size


def _cells(p: Point, asked: bool, priced: bool, timed: bool) -> Sequence[str]:
    over_seeds = "–" if p.stderr_seeds is None else f"±{100 * p.stderr_seeds:.2f}"
    cells = [percent(p.accuracy), over_seeds, f"±{100 * p.stderr_docs:.2f}", f"{p.n:,}", str(p.seeds)]
    cells += ["–" if p.mean_pool_size is None else f"{p.mean_pool_size:.2f}"] * asked
    cells += [cents(p.cost)] * priced
    return [*cells, *(["–" if p.seconds is None else f"{p.seconds:.1f}"] * timed)]

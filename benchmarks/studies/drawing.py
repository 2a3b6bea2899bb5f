"""Shows a study's findings as a table on a terminal and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from benchmarks.studies.diversity import HINDSIGHT, NOISE, WITHOUT
from benchmarks.studies.study import RL_FOCAL_LABEL, Point, StudyFindings
from rlfocal.base.atomic import write_file
from rlfocal.base.tables import Table
from rlfocal.base.wording import cents, decimal, interval, percent, points
from rlfocal.report.figures import Figure
from rlfocal.report.tables import plus_minus

if TYPE_CHECKING:
    import altair as alt

EXTRA_COLUMNS = {"mean_pool_size": "models asked", "seconds": "seconds per seed"}


def print_findings(findings: StudyFindings, console: Console | None = None) -> None:
    """Prints a study's table and notes."""
    console = console or Console()
    console.print(findings_table(findings))
    for note in findings.notes:
        console.print(Text(note), width=min(console.width, 100))


def findings_table(findings: StudyFindings) -> Table:
    """A study's table: a row for each point, or `gains_table` if the points are gains of metrics."""
    if has_gains(findings.points):
        return gains_table(findings)
    several = len({p.series for p in findings.points if p.x is not None}) > 1
    asked = any(p.mean_pool_size is not None for p in findings.points)
    priced = any(p.cost is not None for p in findings.points)
    columns = ["acc %", "±seeds", "±docs", "n", "seeds"]
    gained = any(p.gain is not None for p in findings.points)
    timed = findings.beside == "seconds"
    columns += ["asked"] * asked + ["¢/1,000"] * priced + ["seconds"] * timed + ["gain"] * gained
    table = Table(findings.axis, *columns, title=findings.title)
    for p in findings.points:
        name = f"{p.series}, {p.label}" if several and p.series != p.label else p.label
        cells = [percent(p.accuracy), plus_minus(p.stderr_seeds), plus_minus(p.stderr_docs)]
        cells += [f"{p.n:,}", str(p.seeds), *[decimal(p.mean_pool_size, 2)] * asked]
        table.add(
            name,
            *cells,
            *[cents(p.cost)] * priced,
            *[decimal(p.seconds, 1)] * timed,
            *[interval(p.gain)] * gained,
        )
    return table


def figure(findings: StudyFindings) -> Figure:
    """A study's figure: accuracies beside models asked or seconds, or gains of metrics."""
    named = filter(None, ("study", findings.study, findings.benchmark, findings.method))
    if has_gains(findings.points):
        chart, read, finding = (
            gains_chart(findings),
            "Bars: 95 % intervals, each by itself.",
            findings.notes[0],
        )
    else:
        best = max(findings.points, key=lambda p: p.accuracy)
        chart, read = _chart(findings), "Dark bars: standard error over seeds, light ones over documents."
        finding = (
            f"Best of {len(findings.points)}: {best.series}, {best.label}, at {percent(best.accuracy)} %."
        )
    return Figure(
        chart,
        f"{findings.title}.",
        " ".join([read, *findings.notes]),
        f"{findings.question} {finding}",
        "-".join(named),
    )


def write_figure(findings: StudyFindings, path: Path) -> Path:
    """Writes a study's figure as an SVG file; returns its path."""
    from rlfocal.report.figures.style import svg

    write_file(path, svg(figure(findings).spec))
    return path


def _chart(findings: StudyFindings) -> alt.ConcatChart:
    """A chart with a line for each series, and a level line for a point without x; dots if no point has x."""
    import altair as alt

    from rlfocal.report.figures import style
    from rlfocal.report.figures.cost import cost_scale

    is_numbered = any(p.x is not None for p in findings.points)
    beside = findings.beside or "mean_pool_size"
    points = [_make_row(p, beside) for p in findings.points]
    placed = [p for p in points if p["x"] is not None] if is_numbered else points
    names = sorted({p["series"]: None for p in placed}, key=lambda name: name != RL_FOCAL_LABEL)
    palette = [style.ACCENT, style.BLUE, style.THIRD, style.INK, style.MUTED_COLOUR]
    scale = alt.Scale(domain=names, range=[palette[number % 5] for number in range(len(names))])
    legend = alt.Legend(title=None) if is_numbered and len(names) > 1 else None
    colour = alt.Color("series:N", scale=scale, legend=legend)
    labels = list(dict.fromkeys(p["label"] for p in placed))
    place: alt.X | alt.Y = alt.Y("label:N", title=None, sort=labels, axis=alt.Axis(titleY=0))
    if is_numbered:
        place = alt.X("x:Q", title=findings.axis, scale=cost_scale([p["x"] for p in placed]))
    tips = [style.text_tooltip("series", "method"), style.text_tooltip("label", findings.axis)]
    tips += [
        style.number_tooltip("accuracy", "accuracy, %"),
        style.number_tooltip("beside", EXTRA_COLUMNS[beside]),
    ]
    tips += [style.number_tooltip("seeds", "± seeds"), style.number_tooltip("docs", "± documents")]

    def panel(field: str, title: str, width: int) -> alt.LayerChart:
        axis, side = (alt.Y, "y") if is_numbered else (alt.X, "x")

        def value(name: str) -> alt.X | alt.Y:
            return axis(f"{name}:Q", title=title, scale=alt.Scale(zero=field == "beside"))

        base = alt.Chart(style.rows(placed)).encode(place, colour, tooltip=tips)
        layers: list[alt.Chart] = []
        for name, thick, opacity in (("docs", 1, 0.4), ("seeds", 2.5, 0.9)) if field == "accuracy" else ():
            ends = {side: value(f"low_{name}"), f"{side}2": f"high_{name}:Q"}
            layers.append(base.mark_rule(strokeWidth=thick, opacity=opacity).encode(**ends))
        if is_numbered:
            layers.append(base.mark_line(strokeWidth=1.4).encode(value(field)))
        layers.append(base.mark_circle(size=42, opacity=1).encode(value(field)))
        if across := [p for p in points if p not in placed and field == "accuracy"]:
            lines = alt.Chart(style.rows(across)).encode(y="accuracy:Q", tooltip=tips)
            layers.append(lines.mark_rule(strokeDash=[3, 3], color=style.MUTED_COLOUR))
            words = lines.mark_text(align="left", dy=-6, color=style.MUTED_COLOUR)
            layers.append(words.encode(x=alt.value(4), text="label:N"))
        return alt.layer(*layers).properties(
            width=width, height=250 if is_numbered else max(22 * len(labels), 60)
        )

    panels = [panel("accuracy", "accuracy on test documents, %", 330)]
    panels += [panel("beside", EXTRA_COLUMNS[beside], 240)] if findings.beside else []
    return alt.concat(*panels, columns=2).resolve_scale(color="shared")


def _make_row(p: Point, beside: str) -> dict[str, Any]:
    row: dict[str, Any] = {"series": p.series, "label": p.label, "x": p.x, "accuracy": 100 * p.accuracy}
    for name, error in (("seeds", p.stderr_seeds), ("docs", p.stderr_docs)):
        row[name] = 100 * (error or 0.0)
        row[f"low_{name}"], row[f"high_{name}"] = (row["accuracy"] + s * row[name] for s in (-1, 1))
    return row | {"beside": getattr(p, beside)}


FIRST_METRIC = "focal_diversity"
"""The metric with its own column in the table of gains."""

_GAINS_LEGEND = (
    "alone: of the team chosen by accuracies alone. room: what the best in hindsight is above it; noise: "
    "what a shuffled metric adds; most: what any metric adds, its p corrected for all of the study's."
)


def gains_table(findings: StudyFindings) -> Table:
    """A table of the accuracy that focal diversity, noise and the best metric add, by source of labels."""
    columns = ["alone %", "room", NOISE, FIRST_METRIC.replace("_", " "), "most", "p"]
    table = Table("team chosen from", *columns, texts=("of",), title=findings.title, caption=_GAINS_LEGEND)
    for label in dict.fromkeys(p.label for p in findings.points):
        of = {p.series: p for p in findings.points if p.label == label}
        most = max((p for p in of.values() if p.p_value is not None), key=lambda p: p.accuracy)
        table.add(
            label,
            percent(of[WITHOUT].accuracy),
            *(points(of[name].accuracy - of[WITHOUT].accuracy) for name in (HINDSIGHT, NOISE)),
            interval(of[FIRST_METRIC].gain),
            points(most.accuracy - of[WITHOUT].accuracy),
            decimal(most.p_value, 2),
            most.series,
        )
    return table


def gains_chart(findings: StudyFindings) -> alt.ConcatChart:
    """A chart of metrics' gains: a panel per fusion, a line per metric, a dot per source of labels."""
    import altair as alt

    from rlfocal.report.figures import style

    shown = [p for p in findings.points if p.gain is not None and p.series not in (WITHOUT, HINDSIGHT)]
    ways = list(dict.fromkeys(_name_source(p) for p in shown))
    names = list(dict.fromkeys(p.series.replace("_", " ") for p in shown))
    palette = [style.ACCENT, style.BLUE, style.THIRD, style.INK]
    scale = alt.Scale(domain=ways, range=[palette[number % len(palette)] for number in range(len(ways))])

    tips = [style.text_tooltip("metric", "metric"), style.text_tooltip("setting", "team chosen from")]
    tips += [
        style.number_tooltip("gain", "gain, points"),
        style.number_tooltip("low", "from"),
        style.number_tooltip("high", "to"),
    ]

    def panel(fusion: str) -> alt.LayerChart:
        rows = [_make_gain_row(p) for p in shown if _name_fusion(p) == fusion]
        base = alt.Chart(style.rows(rows)).encode(
            alt.Y("metric:N", title=None, sort=names),
            alt.YOffset("setting:N", sort=[str(row["setting"]) for row in rows]),
            alt.Color("way:N", scale=scale, legend=alt.Legend(title=None, orient="bottom", columns=2)),
            tooltip=tips,
        )
        axis = alt.X("gain:Q", title="gain in accuracy over the accuracies alone, points")
        zero = alt.Chart(style.rows([{"at": 0}])).mark_rule(color=style.MUTED_COLOUR).encode(x="at:Q")
        rules = base.mark_rule(opacity=0.5).encode(alt.X("low:Q"), x2="high:Q")
        return alt.layer(zero, rules, base.mark_circle(size=12, opacity=1).encode(axis)).properties(
            width=290, height=46 * len(names), title=fusion
        )

    panels = [panel(fusion) for fusion in dict.fromkeys(_name_fusion(p) for p in shown)]
    return alt.concat(*panels, columns=2).resolve_scale(color="shared", x="shared")


def has_gains(points: Sequence[Point]) -> bool:
    """Whether the points show gains of metrics over a choice by accuracies alone."""
    return any(p.series == WITHOUT for p in points)


def _make_gain_row(p: Point) -> dict[str, object]:
    mean, low, high = (round(100 * value, 3) for value in p.gain or ())
    return {
        "metric": p.series.replace("_", " "),
        "setting": p.label.partition("; ")[0],
        "way": _name_source(p),
        "gain": mean,
        "low": low,
        "high": high,
    }


def _name_source(p: Point) -> str:
    return p.label.partition("; ")[0].partition(",")[0]


def _name_fusion(p: Point) -> str:
    return p.label.partition("; ")[2]

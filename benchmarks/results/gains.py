"""What was compared with a choice made without something: a table and a figure of the gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
from rich.console import Console
from rich.text import Text

from rlfocal.base.tables import Table
from rlfocal.base.wording import DASH, decimal, percent, points
from rlfocal.evaluation.studies.study import Point
from rlfocal.report.figures import style
from rlfocal.statistics.intervals import Difference, mean_over_seeds

WITHOUT, NOISE, HINDSIGHT = "the accuracies alone", "noise", "best in hindsight"
FIRST = "focal_diversity"
"""The metric that has a column of its own."""

_GAINS = (
    "alone: of the team chosen by accuracies alone. room: what the best in hindsight is above it; noise: "
    "what a shuffled metric adds; most: what any metric adds, its p corrected for all of the study's."
)


@dataclass(frozen=True)
class Compared(Point):
    """A point beside another."""

    gain: tuple[float, float, float] | None = None
    """How much higher the accuracy is than the other's, as a fraction, with its 95 % interval."""
    p_value: float | None = None
    """Of the gain, corrected for all comparisons."""


def compared(
    series: str, label: str, x: float | None, n: int, accuracies: Sequence[float], gain: Difference | None
) -> Compared:
    """A point with its gain; None: it is what others are compared with."""
    told = None if gain is None else (gain.mean, gain.low, gain.high)
    summary = mean_over_seeds(accuracies, n)
    p_value = None if gain is None else gain.p_value
    return Compared(series, label, x, n, len(accuracies), *summary, gain=told, p_value=p_value)


def print_with_notes(table: Table, notes: Sequence[str]) -> None:
    """On the terminal."""
    console = Console()
    console.print(table)
    for note in notes:
        console.print(Text(note), width=min(console.width, 100))


def gains_table(found: Sequence[Compared], title: str) -> Table:
    """A row for each way to come by labels: what focal diversity, noise and the best metric add."""
    columns = ["alone %", "room", NOISE, FIRST.replace("_", " "), "most", "p"]
    table = Table("team chosen from", *columns, texts=("of",), title=title, caption=_GAINS)
    for label in dict.fromkeys(p.label for p in found):
        of = {p.series: p for p in found if p.label == label}
        most = max((p for p in of.values() if p.p_value is not None), key=lambda p: p.accuracy)
        table.add(
            label,
            percent(of[WITHOUT].accuracy),
            *(points(of[name].accuracy - of[WITHOUT].accuracy) for name in (HINDSIGHT, NOISE)),
            gain_in_words(of[FIRST]),
            points(most.accuracy - of[WITHOUT].accuracy),
            decimal(most.p_value, 2),
            most.series,
        )
    return table


def gains_chart(found: Sequence[Compared]) -> alt.ConcatChart:
    """A panel for each fusion: a line for each metric, with a dot and an interval for each choice."""
    shown = [p for p in found if p.gain is not None and p.series not in (WITHOUT, HINDSIGHT)]
    ways = list(dict.fromkeys(_way(p) for p in shown))
    names = list(dict.fromkeys(p.series.replace("_", " ") for p in shown))
    palette = [style.ACCENT, style.BLUE, style.THIRD, style.INK]
    scale = alt.Scale(domain=ways, range=[palette[at % len(palette)] for at in range(len(ways))])

    tips = [style.named("metric", "metric"), style.named("setting", "team chosen from")]
    tips += [style.tip("gain", "gain, points"), style.tip("low", "from"), style.tip("high", "to")]

    def panel(fusion: str) -> alt.LayerChart:
        rows = [_row(p) for p in shown if _fusion(p) == fusion]
        base = alt.Chart(style.rows(rows)).encode(
            alt.Y("metric:N", title=None, sort=names),
            alt.YOffset("setting:N", sort=[str(row["setting"]) for row in rows]),
            alt.Color("way:N", scale=scale, legend=alt.Legend(title=None, orient="bottom", columns=2)),
            tooltip=tips,
        )
        axis = alt.X("gain:Q", title="gain in accuracy over the accuracies alone, points")
        zero = alt.Chart(style.rows([{"at": 0}])).mark_rule(color=style.MUTED).encode(x="at:Q")
        rules = base.mark_rule(opacity=0.5).encode(alt.X("low:Q"), x2="high:Q")
        return alt.layer(zero, rules, base.mark_circle(size=12, opacity=1).encode(axis)).properties(
            width=290, height=46 * len(names), title=fusion
        )

    panels = [panel(fusion) for fusion in dict.fromkeys(_fusion(p) for p in shown)]
    return alt.concat(*panels, columns=2).resolve_scale(color="shared", x="shared")


def _row(p: Compared) -> dict[str, object]:
    mean, low, high = (round(100 * value, 3) for value in p.gain or ())
    return {
        "metric": p.series.replace("_", " "),
        "setting": p.label.partition("; ")[0],
        "way": _way(p),
        "gain": mean,
        "low": low,
        "high": high,
    }


def _way(p: Point) -> str:
    return p.label.partition("; ")[0].partition(",")[0]


def _fusion(p: Point) -> str:
    return p.label.partition("; ")[2]


def gain_in_words(p: Compared) -> str:
    """In points, with the interval."""
    if p.gain is None:
        return DASH
    mean, low, high = map(points, p.gain)
    return f"{mean} [{low}, {high}]"

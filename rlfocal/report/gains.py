"""What a study found about gains over a choice made without something: a table and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlfocal.base.tables import Table
from rlfocal.base.wording import DASH, decimal, percent, points
from rlfocal.evaluation.studies.diversity import HINDSIGHT, NOISE, WITHOUT
from rlfocal.evaluation.studies.study import Findings, Point

if TYPE_CHECKING:
    import altair as alt

FIRST = "focal_diversity"
"""The metric that has a column of its own."""

_GAINS = (
    "alone: of the team chosen by accuracies alone. room: what the best in hindsight is above it; noise: "
    "what a shuffled metric adds; most: what any metric adds, its p corrected for all of the study's."
)


def gains_table(findings: Findings) -> Table:
    """A row for each way to come by labels: what focal diversity, noise and the best metric add."""
    columns = ["alone %", "room", NOISE, FIRST.replace("_", " "), "most", "p"]
    table = Table("team chosen from", *columns, texts=("of",), title=findings.title, caption=_GAINS)
    for label in dict.fromkeys(p.label for p in findings.points):
        of = {p.series: p for p in findings.points if p.label == label}
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


def gains_chart(findings: Findings) -> alt.ConcatChart:
    """A panel for each fusion: a line for each metric, with a dot and an interval for each choice."""
    import altair as alt

    from rlfocal.report.figures import style

    shown = [p for p in findings.points if p.gain is not None and p.series not in (WITHOUT, HINDSIGHT)]
    ways = list(dict.fromkeys(_way(p) for p in shown))
    names = list(dict.fromkeys(p.series.replace("_", " ") for p in shown))
    palette = [style.ACCENT, style.BLUE, style.THIRD, style.INK]
    scale = alt.Scale(domain=ways, range=[palette[number % len(palette)] for number in range(len(ways))])

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


def has_gains(points: Sequence[Point]) -> bool:
    """Whether these are gains over a choice made without something."""
    return any(p.series == WITHOUT for p in points)


def _row(p: Point) -> dict[str, object]:
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


def gain_in_words(p: Point) -> str:
    """In points, with the interval."""
    if p.gain is None:
        return DASH
    mean, low, high = map(points, p.gain)
    return f"{mean} [{low}, {high}]"

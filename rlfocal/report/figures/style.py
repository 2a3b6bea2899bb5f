"""The look of every figure; on the page, its colours are CSS variables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import altair as alt

LIGHT_COLOURS = {
    "paper": "#fcfbf8",
    "ink": "#1d1c1a",
    "muted": "#6b675f",
    "rule": "#dfdbd1",
    "accent": "#b23a12",
    "blue": "#2b5c8a",
    "third": "#5d6b1f",
}
"""By name, the colours of figures in files, and on a page in light mode."""
PAPER, INK, MUTED_COLOUR, RULE, ACCENT, BLUE, THIRD = (f"var(--{name})" for name in LIGHT_COLOURS)
SANS = 'Inter, "Helvetica Neue", "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif'
WIDTH, HEIGHT = 720, 370
"""The size of a figure in pixels; the page fits the width to the window."""
MAX_LABEL_PIXELS = 190
"""The most pixels of a label on an axis or in a legend; a longer label ends in dots."""

_TEXT = {
    "labelFont": SANS,
    "titleFont": SANS,
    "labelColor": MUTED_COLOUR,
    "titleColor": INK,
    "titleFontWeight": 400,
}
CHART_CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": SANS,
    "view": {"stroke": None},
    "axis": {
        **_TEXT,
        "gridColor": RULE,
        "gridWidth": 0.6,
        "domainColor": RULE,
        "tickColor": RULE,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "labelLimit": MAX_LABEL_PIXELS,
        "titleLimit": 4 * MAX_LABEL_PIXELS,
    },
    "axisX": {"grid": False, "titleAnchor": "end", "labelOverlap": "greedy", "labelSeparation": 6},
    "axisY": {
        "domain": False,
        "ticks": False,
        "titleAngle": 0,
        "titleAlign": "left",
        "titleAnchor": "start",
        "titleX": 0,
        "titleY": -12,
    },
    "legend": {
        **_TEXT,
        "orient": "top",
        "offset": 24,
        "symbolOpacity": 1,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "labelLimit": MAX_LABEL_PIXELS,
        "symbolStrokeWidth": 2,
    },
    "title": {"font": SANS, "fontSize": 12, "fontWeight": 400, "anchor": "start", "color": INK},
    "text": {"font": SANS, "fontSize": 11},
    "rule": {"color": MUTED_COLOUR},
}

_NAMED_DATA: dict[str, list[dict[str, Any]]] = {}
"""By the name that charts use, rows of data; Altair would take a millisecond per row to check plain
values."""


def rows(values: Iterable[Mapping[str, Any]]) -> alt.NamedData:
    """Named data of a chart, from rows; numbers are rounded to six significant digits."""
    short_rows = [{key: _round(value) for key, value in row.items()} for row in values]
    name = f"data-{sha256(json.dumps(short_rows).encode()).hexdigest()[:12]}"
    _NAMED_DATA[name] = short_rows
    return alt.NamedData(name)


def percent_axis(field: str, title: str = "accuracy on test documents, %", **more: Any) -> alt.Y:
    return alt.Y(field, type="quantitative", title=title, scale=alt.Scale(zero=False, nice=True), **more)


def number_tooltip(field: str, title: str, format: str = ".2f") -> alt.Tooltip:
    """The field of a tooltip that shows a number."""
    return alt.Tooltip(field, type="quantitative", title=title, format=format)


def text_tooltip(field: str, title: str) -> alt.Tooltip:
    """The field of a tooltip that shows words."""
    return alt.Tooltip(field, type="nominal", title=title)


def spec(chart: alt.TopLevelMixin, description: str) -> dict[str, Any]:
    """The chart as a Vega-Lite specification, with its description in words."""
    made: dict[str, Any] = chart.to_dict(validate=False)
    made.pop("config", None)
    names = dict.fromkeys(re.findall(r'"name": "(data-[0-9a-f]{12})"', json.dumps(made)))
    return made | {"description": description, "datasets": {name: _NAMED_DATA[name] for name in names}}


def apply_colours(
    drawn: Mapping[str, Any], colours: Mapping[str, str] = LIGHT_COLOURS, background: str = PAPER
) -> dict[str, Any]:
    """A specification that needs no page, because `colours` replace the page's variables."""
    text = json.dumps({**drawn, "config": CHART_CONFIG | {"background": background}})
    for name, colour in colours.items():
        text = text.replace(f"var(--{name})", colour)
    coloured: dict[str, Any] = json.loads(text)
    return coloured


def svg(drawn: Mapping[str, Any], background: str = "transparent") -> str:
    import vl_convert

    return str(vl_convert.vegalite_to_svg(apply_colours(drawn, background=background)))


def png(drawn: Mapping[str, Any]) -> bytes:
    import vl_convert

    return bytes(vl_convert.vegalite_to_png(apply_colours(drawn), scale=2))


def _round(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value

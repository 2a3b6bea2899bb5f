"""Matplotlib figures as inline SVG that follows the page: its font, and its colours in light and dark."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from io import StringIO

import matplotlib as mpl
from matplotlib.figure import Figure

# Matplotlib cannot write CSS variables, so figures are drawn in stand-in colours that become variables.
INK, MUTED, RULE, ACCENT, BLUE, PAPER = (f"#0{n}0{n}0{n}" for n in range(1, 7))
_VARIABLES = {INK: "ink", MUTED: "muted", RULE: "rule", ACCENT: "accent", BLUE: "blue", PAPER: "paper"}

_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rlfocal",
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "text.parse_math": False,  # a name may hold dollars
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": RULE,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "figure.facecolor": "none",
}


@contextmanager
def style() -> Iterator[None]:
    """Everything drawn inside takes the report's look."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # The browser has the letters that Matplotlib's font lacks.
        warnings.filterwarnings("ignore", r"Glyph .* missing from", UserWarning)
        yield


def inline(figure: Figure, name: str, description: str) -> str:
    """The figure as an `<svg>` element: `name` keeps its ids apart, `description` is its alt text."""
    buffer = StringIO()
    figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Only within tags: between them stand names, which may look like anything.
    text = re.sub(r"<[^<>]*>", lambda tag: _adapted(tag[0], name), text)
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    root = f'<svg {box[0]} role="img" aria-label="{escape(description)}">'
    return root + text[text.index(">") + 1 :]


def _adapted(tag: str, name: str) -> str:
    """The tag with ids of its own, and with the page's colours and font."""
    tag = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', tag)
    tag = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", tag)
    for colour, variable in _VARIABLES.items():
        tag = tag.replace(colour, f"var(--{variable})")
    return re.sub(r"'DejaVu Sans'[^;\"]*", "var(--sans)", tag)

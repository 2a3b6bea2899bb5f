"""The figures of a leaderboard: a module registers its own by `@board_figure`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

from rlfocal.evaluation.leaderboard import Board
from warehouse import Warehouse

if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True)
class Figure:
    """A figure with its title, caption and description."""

    chart: InitVar[alt.TopLevelMixin]
    """The Altair chart, in the colours of `rlfocal.report.figures.style`."""
    title: str
    """The figure's title, one sentence."""
    caption: str
    """The figure's caption: what it shows, and how to read it."""
    description: str
    """The figure's main numbers in words, for readers who do not see the chart."""
    name: str = ""
    """The name of the figure's files and anchor; empty: that of the function that drew it."""
    spec: dict[str, Any] = field(init=False, repr=False)
    """The chart as a Vega-Lite specification."""

    def __post_init__(self, chart: alt.TopLevelMixin) -> None:
        from rlfocal.report.figures.style import spec

        object.__setattr__(self, "spec", spec(chart, self.description))


Draw = Callable[[Warehouse, Board], Figure | None]
"""A function that draws a figure of a leaderboard; it returns None if there is nothing to show."""
_FIGURES: dict[str, tuple[float, Draw]] = {}


def board_figure(place: float) -> Callable[[Draw], Draw]:
    """Registers the decorated function as a figure of its name; figures are sorted by `place`."""

    def enter(draw: Draw) -> Draw:
        _FIGURES[draw.__name__] = (place, draw)
        return draw

    return enter


def figures_of(
    warehouse: Warehouse, board: Board, package: str = __name__, path: Sequence[str] = tuple(__path__)
) -> dict[str, Figure]:
    """By name, the leaderboard's figures of all functions that the package's modules register."""
    for module in walk_packages(path, f"{package}."):  # not before: drawing imports altair, which is slow
        import_module(module.name)
    in_order = sorted(_FIGURES.items(), key=lambda item: item[1][0])
    from altair.utils.schemapi import debug_mode

    with debug_mode(False):  # or each part is checked; tests check the whole
        drawn = {name: draw(warehouse, board) for name, (_, draw) in in_order}
    return {name: figure for name, figure in drawn.items() if figure is not None}

"""The figures of a board: a module enters its own by `@board_figure`, and the page shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import walk_packages

from markupsafe import Markup

from rlfocal.evaluation.leaderboard import Board
from warehouse import Warehouse


@dataclass(frozen=True)
class Drawn:
    """A figure with its words."""

    svg: Markup
    """As `rlfocal.report.svg.inline` writes it."""
    title: str
    """One sentence."""
    caption: Markup
    """What the figure shows, with the keys of the colours."""


Draw = Callable[[Warehouse, Board, str], Drawn | None]
"""From a board and a name that keeps ids apart; None if the board has nothing to show of it."""
_FIGURES: dict[str, tuple[float, Draw]] = {}


def board_figure(place: float) -> Callable[[Draw], Draw]:
    """Registers the function below, whose name is the figure's; figures are sorted by place."""

    def enter(draw: Draw) -> Draw:
        _FIGURES[draw.__name__] = (place, draw)
        return draw

    return enter


def figures_of(
    warehouse: Warehouse,
    board: Board,
    anchor: str,
    package: str = __name__,
    path: Sequence[str] = tuple(__path__),
) -> tuple[Drawn, ...]:
    """All figures that the package's modules register; modules whose name begins with `_` are skipped."""
    # Not before: drawing imports matplotlib, which a page that is still true must not wait for.
    for module in walk_packages(path, f"{package}."):
        if not module.name.rpartition(".")[2].startswith("_"):
            import_module(module.name)
    in_order = sorted(_FIGURES.items(), key=lambda item: item[1][0])
    drawn = [draw(warehouse, board, f"{anchor}-{name}") for name, (_, draw) in in_order]
    return tuple(figure for figure in drawn if figure is not None)

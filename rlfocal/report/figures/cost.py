"""Cost against accuracy."""

from __future__ import annotations

from markupsafe import Markup

from rlfocal.base.wording import percent
from rlfocal.evaluation.comparable import Run
from rlfocal.evaluation.leaderboard import CEILING, Board, Standing
from rlfocal.report.figures import Drawn, board_figure
from rlfocal.report.figures._axes import cost_axis, frame_accuracy, panel
from rlfocal.report.labels import Label, place_labels
from rlfocal.report.svg import ACCENT, BLUE, MUTED, inline, style
from warehouse import Warehouse


@board_figure(place=1)
def cost(warehouse: Warehouse, board: Board, name: str) -> Drawn | None:
    """Where the board's methods and single models stand; None if nothing costs anything."""
    drawn = cost_accuracy(board, name)
    return Drawn(Markup(drawn), "Cost against accuracy.", _caption(board)) if drawn else None


def _caption(board: Board) -> Markup:
    unpriced = (
        ""
        if board.is_priced
        else "Not every price is known, so the number of models asked stands for the cost. "
    )
    return Markup(
        f'{unpriced}<span class="key grey">single models</span>, <span class="key blue">methods</span> and '
        '<span class="key accent">RL-Focal</span> with the standard error over documents; open circles are '
        "its seeds; unnamed points: constant pools of as many models as RL-Focal asks. Up and to the left is "
        "better."
    )


def cost_accuracy(board: Board, name: str) -> str:
    """Accuracy over cost: single models, methods, every seed of RL-Focal.

    Where a price is unknown, the number of models asked stands for the cost.
    """
    priced = board.is_priced
    singles = [(s.cost or 0.0 if priced else 1.0, s.accuracy, s.model) for s in board.singles]
    asking = [s for s in board.standings if s.method != CEILING and s.mean_pool_size > 0]
    methods = [(_cost(s, priced), s) for s in asking]
    costs = [cost for cost, _, _ in singles] + [cost for cost, _ in methods]
    if not methods:
        return ""
    with style():
        figure, axes = panel(3.5)
        axes.scatter([c for c, _, _ in singles], [a for _, a, _ in singles], s=14, color=MUTED, linewidths=0)
        labels = []
        for cost, s in methods:
            color, marker = (ACCENT, "D") if s.is_ours else (BLUE, "o")
            axes.errorbar(cost, s.accuracy, s.stderr_docs, color=color, fmt="none", lw=0.7, alpha=0.55)
            axes.scatter(cost, s.accuracy, s=30, color=color, marker=marker, linewidths=0, zorder=3)
            if not board.is_extra(s):
                labels.append(Label(cost, s.accuracy, s.method, color))
            if s.is_ours:
                x, y = [_cost(run, priced) for run in s.runs], [run.accuracy for run in s.runs]
                axes.scatter(x, y, s=16, facecolors="none", edgecolors=ACCENT, linewidths=0.8)
        labels.sort(key=lambda label: label.color != ACCENT)
        # Without prices all single models stand in one column, with room for the best one's name.
        labels += [Label(x, y, model, MUTED) for x, y, model in singles[: None if priced else 1]]
        frame_accuracy(axes, [s.accuracy for _, s in methods] + [accuracy for _, accuracy, _ in singles])
        axes.set_title("accuracy on test documents, %")
        cost_axis(axes, costs)
        axes.set_xlabel("cost, cents per 1,000 queries" if priced else "models asked per document")
        figure.canvas.draw()  # the layout must be settled before labels are placed in it
        seeds = [(_cost(run, priced), run.accuracy) for ours in board.ours for run in ours.runs]
        place_labels(axes, labels, [*seeds, *((x, y) for x, y, _ in singles)])
        ours = ", ".join(f"{one.method} at {percent(one.accuracy)} %" for one in board.ours)
        best = ours or "methods and single models"
        return inline(figure, name, f"Cost against test accuracy on {board.benchmark}: {best}")


def _cost(what: Standing | Run, priced: bool) -> float:
    return (what.cost or 0.0) if priced else what.mean_pool_size

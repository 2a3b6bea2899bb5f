"""Accuracy over calls: what methods reach when they are held to budgets."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.axes import Axes

from rlfocal.evaluation.budgets import BudgetCurve, budget_curves
from rlfocal.evaluation.leaderboard import Board, is_ours
from rlfocal.report.figures import Drawn, board_figure
from rlfocal.report.figures._axes import cost_axis, frame_accuracy, panel
from rlfocal.report.labels import Label, place_labels
from rlfocal.report.svg import ACCENT, BLUE, INK, MUTED, inline, style
from warehouse import Warehouse

NAMED = 5
"""Rivals, the most accurate ones at their best budget, that are drawn in colour."""
LINES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "v", "P")
Point = tuple[float, float]


@board_figure(place=2)
def budgets(warehouse: Warehouse, board: Board, name: str) -> Drawn | None:
    """Every method's accuracy over the models it asks, budget by budget; None if there are no budgets."""
    curves = budget_curves(warehouse, board)
    if not curves:
        return None
    others = ' and <span class="key grey">the others</span>' if len(curves) > NAMED + len(board.ours) else ""
    caption = Markup(
        "Each line is one method, fitted once and held to budgets: its accuracy over the number of models it "
        'then asks. <span class="key accent">RL-Focal</span>, <span class="key blue">the most accurate '
        f"rivals</span>{others}; the broken line is {board.baseline}. The bars are the standard "
        "error over documents. Up and to the left is better."
    )
    return Drawn(Markup(accuracy_over_calls(board, curves, name)), "Accuracy over calls.", caption)


def accuracy_over_calls(board: Board, curves: Sequence[BudgetCurve], name: str) -> str:
    """Inline SVG; `curves` with the most accurate first."""
    ours = [curve for curve in curves if is_ours(curve.method)]
    rivals = [curve for curve in curves if not is_ours(curve.method)]
    every = [(p.mean_pool_size, p.accuracy) for curve in curves for p in curve.points]
    baseline = [s.accuracy for s in board.standings if s.method == board.baseline]
    with style():
        figure, axes = panel(3.7)
        for curve in rivals[NAMED:]:
            axes.plot(*_columns(curve), color=MUTED, lw=0.7, alpha=0.6, marker="o", ms=2)
        for curve, line, marker in zip(rivals, LINES, MARKERS, strict=False):
            axes.plot(*_columns(curve), color=BLUE, lw=1.1, ls=line, marker=marker, ms=4, mew=0)
        for curve, line in zip(ours, LINES, strict=False):
            axes.plot(*_columns(curve), color=ACCENT, lw=1.5, ls=line, marker="D", ms=4, mew=0)
            for p in curve.points:
                at_budget = (p.mean_pool_size, p.accuracy, p.stderr_docs)
                axes.errorbar(*at_budget, color=ACCENT, fmt="none", lw=0.7, alpha=0.55)
        for accuracy in baseline:
            axes.axhline(accuracy, color=INK, lw=0.7, ls=(0, (2, 2)), zorder=0)
        bars = [p.accuracy + p.stderr_docs * side for curve in ours for p in curve.points for side in (-1, 1)]
        frame_accuracy(axes, [*(y for _, y in every), *bars, *baseline])
        axes.set_title("accuracy on test documents, %")
        cost_axis(axes, [x for x, _ in every])
        axes.set_xlabel("models asked per document, on average")
        figure.canvas.draw()  # the layout must be settled before labels are placed in it
        _name(axes, ours, rivals[:NAMED], every)
        spans = ", ".join(f"{curve.method} from {_span(curve)}" for curve in [*ours, *rivals[:1]])
        return inline(figure, name, f"Accuracy over models asked on {board.benchmark}: {spans}")


def _name(
    axes: Axes, ours: Sequence[BudgetCurve], rivals: Sequence[BudgetCurve], every: Sequence[Point]
) -> None:
    """Each name is placed at its curve's most accurate point."""
    ends = [(max(_places(curve), key=lambda at: (at[1], -at[0])), curve) for curve in (*ours, *rivals)]
    labels = [Label(*at, curve.method, ACCENT if curve in ours else BLUE) for at, curve in ends]
    place_labels(axes, labels, list(dict.fromkeys(every)))


def _places(curve: BudgetCurve) -> list[Point]:
    """Each point once, by calls: a budget that does not bind changes nothing."""
    return sorted({(p.mean_pool_size, p.accuracy) for p in curve.points})


def _columns(curve: BudgetCurve) -> tuple[list[float], list[float]]:
    return [x for x, _ in _places(curve)], [y for _, y in _places(curve)]


def _span(curve: BudgetCurve) -> str:
    (few, worst), (many, best) = _places(curve)[0], _places(curve)[-1]
    return f"{100 * worst:.2f} % at {few:.1f} calls to {100 * best:.2f} % at {many:.1f}"

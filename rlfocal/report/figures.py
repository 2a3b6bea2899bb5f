"""The report's figures: each takes values and returns inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, sqrt
from typing import TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

from rlfocal.evaluation.comparable import Run
from rlfocal.evaluation.leaderboard import CEILING, Board, Standing, percent
from rlfocal.report.curves import Curve, Learning
from rlfocal.report.labels import Label, place_labels
from rlfocal.report.pools import Pool, PoolChoice
from rlfocal.report.svg import ACCENT, BLUE, INK, MUTED, PAPER, inline, style

WIDTH = 7.0  # inches
TITLES = {
    "decider": "Decider: plurality of its pool",
    "fusion": "Fusion: its own answer",
    "stage": "Fusion: its answer to train documents it was not fitted on",
}
X = {"decider": "episode", "fusion": "episode", "stage": "models that have answered"}
STEPS = [1, 2, 2.5, 5, 10]


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
        figure, axes = _panel(3.5)
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
        _frame_accuracy(axes, [s.accuracy for _, s in methods] + [accuracy for _, accuracy, _ in singles])
        axes.set_title("accuracy on test documents, %")
        _cost_axis(axes, costs)
        axes.set_xlabel("cost, cents per 1,000 queries" if priced else "models asked per document")
        figure.canvas.draw()  # the layout must be settled before labels are placed in it
        seeds = [(_cost(run, priced), run.accuracy) for ours in board.ours for run in ours.runs]
        place_labels(axes, labels, [*seeds, *((x, y) for x, y, _ in singles)])
        ours = ", ".join(f"{one.method} at {percent(one.accuracy)} %" for one in board.ours)
        best = ours or "methods and single models"
        return inline(figure, name, f"Cost against test accuracy on {board.benchmark}: {best}")


def learning_curves(phases: Sequence[Learning], about: str, name: str) -> str:
    """Accuracy by episode in both phases, and pool size while the Decider learns; or accuracy by stage."""
    with style():
        panels: list[tuple[str, str, Curve, bool]] = []
        for phase in phases:
            panels.append((f"{TITLES[phase.phase]}, accuracy %", X[phase.phase], phase.accuracy, True))
            if phase.phase == "decider":
                panels.append(("Decider: models asked", X[phase.phase], phase.mean_pool_size, False))
        figure = Figure(figsize=(WIDTH, 2.1), layout=ConstrainedLayoutEngine(wspace=0.06))
        shared: Axes | None = None
        for at, (title, x, curve, is_accuracy) in enumerate(panels):
            axes = figure.add_subplot(1, len(panels), at + 1, sharey=shared if is_accuracy else None)
            axes.fill_between(curve.x, curve.low, curve.high, color=ACCENT, alpha=0.18, linewidth=0)
            axes.plot(
                curve.x, curve.mean, color=ACCENT, lw=1.3, marker="o" if len(curve.x) < 12 else "", ms=3
            )
            axes.set_title(title)
            axes.set_xlabel(x)
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.yaxis.set_major_locator(MaxNLocator(5, steps=STEPS))
            axes.grid(axis="x", visible=False)
            if is_accuracy:
                shared = shared or axes
                axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}"))
        end = percent(phases[-1].accuracy.mean[-1])
        description = f"How {about}, ending at {end} % on train documents"
        return inline(figure, name, description)


def pool_diversity(choice: PoolChoice, name: str, benchmark: str) -> str:
    """Plurality accuracy over focal diversity: the chosen pools among all others."""
    others, chosen = _located(choice.others), _located(choice.chosen)
    landmarks = [(choice.best, "best pool in hindsight", INK), (choice.full, "all models", BLUE)]
    landmarks = [mark for mark in landmarks if _located([mark[0]])]
    everything = [*others, *chosen, *(pool for pool, _, _ in landmarks)]
    if not everything:
        return ""
    with style():
        figure, axes = _panel(3.3)
        axes.grid(axis="x", visible=True)
        axes.scatter(*_columns(others), s=7, color=MUTED, alpha=0.35, linewidths=0)
        areas = [14 + 500 * pool.share for pool in chosen]
        bubbles = axes.scatter(*_columns(chosen), s=areas, color=ACCENT, alpha=0.55, zorder=3)
        bubbles.set(edgecolors=PAPER, linewidths=0.6)
        labels = []
        if chosen:
            labels.append(Label(*_places(chosen)[0], "chosen most often", ACCENT, sqrt(areas[0] / pi)))
        for landmark, text, color in landmarks:
            axes.scatter(*_columns([landmark]), s=26, color=color, marker="s", linewidths=0, zorder=4)
            labels.append(Label(*_places([landmark])[0], text, color))
        xs, ys = _columns(everything)
        pad = 0.04 * (max(xs) - min(xs) or 0.1)
        axes.set_xlim(min(xs) - pad, max(xs) + pad)
        axes.set_xlabel("focal diversity")
        _frame_accuracy(axes, ys)
        axes.set_title("plurality accuracy on test documents, %")
        figure.canvas.draw()
        place_labels(axes, labels, _places(chosen[1:]))
        return inline(figure, name, f"Focal diversity against plurality accuracy of pools on {benchmark}")


def _panel(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(axis="x", visible=False)
    return figure, axes


def _frame_accuracy(axes: Axes, values: Sequence[float]) -> None:
    low, high = min(values), max(values)
    pad = max(0.08 * (high - low), 0.01)
    axes.set_ylim(low - pad, high + pad)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=STEPS))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}"))


def _cost_axis(axes: Axes, costs: Sequence[float]) -> None:
    """Logarithmic where costs span more than a factor of eight: a full pool costs many times one model.

    Linear where a model is free.
    """
    low, high = min(costs), max(costs)
    if high > 8 * low > 0:
        axes.set_xscale("log")
        axes.set_xlim(low / (high / low) ** 0.06, high * (high / low) ** 0.06)
        ticks = [m * 10.0**e for e in range(-4, 8) for m in (1, 2, 5) if low <= m * 10.0**e <= high]
        axes.set_xticks(ticks, minor=False)
        axes.set_xticks([], minor=True)
    else:
        widest = high or 1.0
        axes.set_xlim(0 if low else -0.04 * widest, 1.08 * widest)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def _cost(what: Standing | Run, priced: bool) -> float:
    return (what.cost or 0.0) if priced else what.mean_pool_size


P = TypeVar("P", bound=Pool)


def _located(pools: Sequence[P]) -> list[P]:
    """The pools that have a place in the plane: a pool of one has no diversity."""
    return [p for p in pools if p.focal_diversity is not None and p.plurality_accuracy is not None]


def _places(pools: Sequence[Pool]) -> list[tuple[float, float]]:
    return [(p.focal_diversity or 0.0, p.plurality_accuracy or 0.0) for p in pools]


def _columns(pools: Sequence[Pool]) -> tuple[list[float], list[float]]:
    return [x for x, _ in _places(pools)], [y for _, y in _places(pools)]

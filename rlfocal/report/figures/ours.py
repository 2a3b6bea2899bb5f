"""How RL-Focal's methods learned and which pools they asked: each takes values and returns inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, sqrt
from typing import TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

from rlfocal.base.wording import percent
from rlfocal.report.curves import Curve, Learning
from rlfocal.report.figures._axes import STEPS, WIDTH, frame_accuracy, panel
from rlfocal.report.labels import Label, place_labels
from rlfocal.report.pools import Pool, PoolChoice
from rlfocal.report.svg import ACCENT, BLUE, INK, MUTED, PAPER, inline, style

TITLES = {
    "decider": "Decider: plurality of its pool",
    "fusion": "Fusion: its own answer",
    "joint": "Both agents: Fusion's answer",
    "stage": "Fusion: its answer to train documents it was not fitted on",
}
_ASKED = {"decider": "Decider: models asked", "joint": "Both agents: models asked"}
"""Titles of the phases in which the Decider learns."""
_PANELS = 3
"""Panels in a row."""


def learning_curves(phases: Sequence[Learning], about: str, name: str) -> str:
    """Accuracy by episode in each phase, and pool size while the Decider learns; or accuracy by stage."""
    with style():
        panels: list[tuple[str, str, Curve, bool]] = []
        for one in phases:
            x = "models that have answered" if one.phase == "stage" else "episode"
            panels.append((f"{TITLES.get(one.phase, one.phase)}, accuracy %", x, one.accuracy, True))
            if one.phase in _ASKED:
                panels.append((_ASKED[one.phase], x, one.mean_pool_size, False))
        columns, rows = min(len(panels), _PANELS), -(-len(panels) // _PANELS)
        figure = Figure(figsize=(WIDTH, 2.1 * rows), layout=ConstrainedLayoutEngine(wspace=0.06))
        shared: Axes | None = None
        for at, (title, x, curve, is_accuracy) in enumerate(panels):
            axes = figure.add_subplot(rows, columns, at + 1, sharey=shared if is_accuracy else None)
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
        figure, axes = panel(3.3)
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
        frame_accuracy(axes, ys)
        axes.set_title("plurality accuracy on test documents, %")
        figure.canvas.draw()
        place_labels(axes, labels, _places(chosen[1:]))
        return inline(figure, name, f"Focal diversity against plurality accuracy of pools on {benchmark}")


P = TypeVar("P", bound=Pool)


def _located(pools: Sequence[P]) -> list[P]:
    """The pools that have a place in the plane: a pool of one has no diversity."""
    return [p for p in pools if p.focal_diversity is not None and p.plurality_accuracy is not None]


def _places(pools: Sequence[Pool]) -> list[tuple[float, float]]:
    return [(p.focal_diversity or 0.0, p.plurality_accuracy or 0.0) for p in pools]


def _columns(pools: Sequence[Pool]) -> tuple[list[float], list[float]]:
    return [x for x, _ in _places(pools)], [y for _, y in _places(pools)]

"""Axes that the report's figures share."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

WIDTH = 7.0  # inches
STEPS = [1, 2, 2.5, 5, 10]


def panel(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(axis="x", visible=False)
    return figure, axes


def frame_accuracy(axes: Axes, values: Sequence[float]) -> None:
    low, high = min(values), max(values)
    pad = max(0.08 * (high - low), 0.01)
    axes.set_ylim(low - pad, high + pad)
    show_percents(axes.yaxis)


def show_percents(axis: Axis) -> None:
    """Round ticks of fractions, in per cent."""
    axis.set_major_locator(MaxNLocator(6, steps=STEPS))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}"))


def cost_axis(axes: Axes, costs: Sequence[float]) -> None:
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

"""Placing text beside points so that labels cover neither each other nor the points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes

HEIGHT = 9.5  # points of a line of text at the report's size
WIDTH = 4.6  # points of an average letter
LONGEST = 40  # letters of a label; a longer name loses its middle
Box = tuple[float, float, float, float]


class Label(NamedTuple):
    """Text for the point (x, y) in data coordinates."""

    x: float
    y: float
    text: str
    color: str
    radius: float = 3.0
    """The radius of the point's mark, in points."""


class _Spot(NamedTuple):
    """Where text may stand, in points from its mark: the anchor, its side of the text, and the lower edge."""

    dx: float
    side: Literal["left", "center", "right"]
    dy: float

    def box(self, x: float, y: float, width: float) -> Box:
        left = x + self.dx - {"left": 0.0, "center": width / 2, "right": width}[self.side]
        return left, y + self.dy, left + width, y + self.dy + HEIGHT


def place_labels(axes: Axes, labels: Sequence[Label], obstacles: Sequence[tuple[float, float]] = ()) -> None:
    """Write each label where it covers least, in the given order. Limits and scales must be final."""
    labels = [label._replace(text=_shortened(label.text)) for label in labels]
    scale = 72 / axes.figure.dpi
    left, bottom, right, top = np.asarray(axes.get_window_extent().extents) * scale
    spots = [(label.x, label.y) for label in labels] + list(obstacles)
    points = axes.transData.transform(np.array(spots)) * scale
    radii = [label.radius for label in labels] + [3.0] * len(obstacles)
    taken = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(points, radii, strict=True)]
    for label, (x, y) in zip(labels, points, strict=False):
        around = _spots(label.radius)
        boxes = [spot.box(x, y, WIDTH * len(label.text)) for spot in around]
        costs = [
            100 * _outside(box, (left, bottom, right, top)) + sum(_overlap(box, o) for o in taken) + rank
            for rank, box in enumerate(boxes)
        ]
        at = int(np.argmin(costs))
        taken.append(boxes[at])
        _write(axes, label, around[at])


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}…{text[1 - LONGEST // 2 :]}"


def _write(axes: Axes, label: Label, spot: _Spot) -> None:
    is_far = abs(spot.dy + HEIGHT / 2) > 1.5 * HEIGHT
    leader = {"arrowstyle": "-", "color": label.color, "lw": 0.4, "shrinkA": 0, "shrinkB": label.radius}
    axes.annotate(
        label.text,
        (label.x, label.y),
        xytext=(spot.dx, spot.dy + HEIGHT / 2),
        textcoords="offset points",
        color=label.color,
        va="center",
        ha=spot.side,
        arrowprops=leader if is_far else None,
    )


def _spots(radius: float) -> list[_Spot]:
    """The preferred ones first: beside the mark, above and below, at its corners, then further away."""
    gap, middle, below = radius + 3, -HEIGHT / 2, -HEIGHT - radius

    def both(dx: float, dy: float) -> list[_Spot]:
        return [_Spot(dx, "left", dy), _Spot(-dx, "right", dy)]

    above = [_Spot(0.0, "center", gap - 1), _Spot(0.0, "center", below - 2)]
    (high_right, high_left), (low_right, low_left) = both(gap - 1, gap - 3), both(gap - 1, below)
    corners = [high_right, low_right, high_left, low_left]
    far = [spot for n in (2, -2, 3, -3, 4, -4) for spot in both(gap + 2, middle + n * HEIGHT)]
    return both(gap, middle) + above + corners + far


def _outside(box: Box, frame: Box) -> float:
    """How far a box sticks out of the frame."""
    sides = (frame[0] - box[0], box[2] - frame[2], frame[1] - box[1], box[3] - frame[3])
    return sum(max(beyond, 0) for beyond in sides)


def _overlap(one: Box, other: Box) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return width * height if width > 0 and height > 0 else 0.0

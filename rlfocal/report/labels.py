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


def place_labels(axes: Axes, labels: Sequence[Label], obstacles: Sequence[tuple[float, float]] = ()) -> None:
    """Write each label where it covers least, in the given order. Limits and scales must be final."""
    labels = [label._replace(text=_shortened(label.text)) for label in labels]
    scale = 72 / axes.figure.dpi
    left, bottom, right, top = np.asarray(axes.get_window_extent().extents) * scale
    frame = (left, bottom, right, top)
    spots = [(label.x, label.y) for label in labels] + list(obstacles)
    points = axes.transData.transform(np.array(spots)) * scale
    radii = [label.radius for label in labels] + [3.0] * len(obstacles)
    taken = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(points, radii, strict=True)]
    for label, (x, y) in zip(labels, points, strict=False):
        width = WIDTH * len(label.text)
        spots_around = _spots(width, label.radius)
        boxes = [(x + s.left, y + s.dy, x + s.left + width, y + s.dy + HEIGHT) for s in spots_around]
        costs = [
            100 * _outside(box, frame) + sum(_overlap(box, other) for other in taken) + rank
            for rank, box in enumerate(boxes)
        ]
        at = int(np.argmin(costs))
        taken.append(boxes[at])
        _write(axes, label, spots_around[at])


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}…{text[1 - LONGEST // 2 :]}"


class _Spot(NamedTuple):
    """Where text may stand, in points from its mark: the anchor, its side, and the lower left corner."""

    dx: float
    side: Literal["left", "center", "right"]
    dy: float
    left: float


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


def _spots(width: float, radius: float) -> list[_Spot]:
    """The preferred ones first: beside the mark, above and below, at its corners, then further away."""
    gap, middle = radius + 3, -HEIGHT / 2

    def right(dx: float, dy: float) -> _Spot:
        return _Spot(dx, "left", dy, dx)

    def left(dx: float, dy: float) -> _Spot:
        return _Spot(-dx, "right", dy, -dx - width)

    def over(dy: float) -> _Spot:
        return _Spot(0.0, "center", dy, -width / 2)

    beside = [right(gap, middle), left(gap, middle), over(gap - 1), over(1 - gap - HEIGHT)]
    corners = [side(gap - 1, dy) for side in (right, left) for dy in (gap - 3, 3 - gap - HEIGHT)]
    lines = (2, -2, 3, -3, 4, -4)
    far = [side(gap + 2, middle + n * HEIGHT) for n in lines for side in (right, left)]
    return beside + corners + far


def _outside(box: Box, frame: Box) -> float:
    """How far a box sticks out of the frame."""
    sides = (frame[0] - box[0], box[2] - frame[2], frame[1] - box[1], box[3] - frame[3])
    return sum(max(beyond, 0) for beyond in sides)


def _overlap(one: Box, other: Box) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return width * height if width > 0 and height > 0 else 0.0

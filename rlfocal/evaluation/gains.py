"""What `rl_focal` gained over the best single model of pools like one: measured once, looked up here."""

from __future__ import annotations

import json
from importlib import resources
from math import log
from typing import NamedTuple

import numpy as np

from rlfocal.base.arrays import Bools
from rlfocal.base.wording import interval, percent

SOURCE = "docs/research.md#by-how-many-labels-does-it-pay"


class Room(NamedTuple):
    """What there is to gain in a pool, as shares of documents."""

    ceiling: float
    """How much more often any model is right than the best one."""
    spread: float
    """How much more often the best model is right than the median one."""


def room(correct: Bools) -> Room:
    """Of which models are right on which documents (T, N)."""
    alone = correct.mean(axis=0)
    best = float(alone.max())
    return Room(float(correct.any(axis=1).mean()) - best, best - float(np.median(alone)))


class MeasuredGain(NamedTuple):
    """The mean gain in accuracy over several pools with such a ceiling, fitted to so many labels."""

    labels: int
    low_ceiling: float
    high_ceiling: float
    pools: int
    gain: tuple[float, float, float]
    """The mean and the ends of its 95 % interval over pools, as fractions."""

    def sentence(self, here: Room, n_labels: int) -> str:
        """It said of a pool with `n_labels` train documents."""
        low, high = (percent(share, 0) for share in (self.low_ceiling, self.high_ceiling))
        return (
            f"Here any model is right {percent(here.ceiling, 0)} points more often than the best one, and "
            f"there are {n_labels:,} labels to train on. In {self.pools} pools with {low} to {high} such "
            f"points, `rl_focal` gained {interval(self.gain)} points over the best single model from "
            f"{self.labels:,} labels ({SOURCE})."
        )


def measured_gains() -> list[MeasuredGain]:
    """All that were measured, as `make tables` wrote them."""
    text = (resources.files("rlfocal.evaluation") / "gains.json").read_text("utf-8")
    return [MeasuredGain._make((*row[:4], tuple(row[4]))) for row in json.loads(text)]


def gain_of_like_pools(here: Room, n_labels: int) -> MeasuredGain:
    """What was measured nearest to this: first the number of labels (as a ratio), then the ceiling."""

    def distance(one: MeasuredGain) -> tuple[float, float]:
        outside = max(one.low_ceiling - here.ceiling, here.ceiling - one.high_ceiling, 0.0)
        return abs(log(max(n_labels, 1) / one.labels)), outside

    return min(measured_gains(), key=distance)

"""Stored gains of `rl_focal` over the best single model, to look up what similar pools gained."""

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
    """The possible gains of a pool from asking several models, as shares of documents."""

    ceiling: float
    """How much more often some model is right than the best single model."""
    spread: float
    """How much more often the best model is right than the median one."""


def room(correct: Bools) -> Room:
    """The possible gain of a pool. `correct` (T, N): which models are right on which documents."""
    alone = correct.mean(axis=0)
    best = float(alone.max())
    return Room(float(correct.any(axis=1).mean()) - best, best - float(np.median(alone)))


class MeasuredGain(NamedTuple):
    """The mean gain in accuracy over several pools with similar ceilings, at one number of labels."""

    labels: int
    low_ceiling: float
    high_ceiling: float
    pools: int
    gain: tuple[float, float, float]
    """The mean, and the ends of its 95 % interval over pools, as fractions."""

    def sentence(self, here: Room, n_labels: int) -> str:
        """A sentence on this gain, for a reader whose pool has the room `here` and `n_labels` labels."""
        low, high = (percent(share, 0) for share in (self.low_ceiling, self.high_ceiling))
        return (
            f"Some model is right {percent(here.ceiling, 0)} points more often than the best model is, and "
            f"there are {n_labels:,} labels to train on. In {self.pools} pools where this lead was {low} to "
            f"{high} points, `rl_focal` gained {interval(self.gain)} points over the best single model from "
            f"{self.labels:,} labels ({SOURCE})."
        )


def measured_gains() -> list[MeasuredGain]:
    """All measured gains, from the file that `make tables` writes."""
    text = (resources.files("rlfocal.evaluation") / "gains.json").read_text("utf-8")
    return [MeasuredGain._make((*row[:4], tuple(row[4]))) for row in json.loads(text)]


def gain_of_like_pools(here: Room, n_labels: int) -> MeasuredGain:
    """The measured gain of the most similar pools: first by number of labels (as a ratio), then by
    ceiling."""

    def distance(one: MeasuredGain) -> tuple[float, float]:
        outside = max(one.low_ceiling - here.ceiling, here.ceiling - one.high_ceiling, 0.0)
        return abs(log(max(n_labels, 1) / one.labels)), outside

    return min(measured_gains(), key=distance)

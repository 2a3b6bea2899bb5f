"""How often intervals of two methods' difference hold a planted truth, with 1 to 10 training seeds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from rlfocal.base.arrays import Floats
from rlfocal.statistics.intervals import Difference, paired_difference

SEED_COUNTS = (1, 2, 3, 5, 10)
PROMISED_COVERAGE = (0.94, 0.965)
"""The shares between which an interval of 95 % must hold the truth, whatever varies."""
OUR_ACCURACY, RIVAL_ACCURACY = 0.70, 0.67
"""Accuracies of the two methods, over all documents, seeds and tasks."""
OWN_LUCK_SHARE = 0.2
"""The share of an answer's variance that is each seed's own; the rest is the document's."""
TASK_SPREAD = 0.1
"""Standard deviation between tasks of what `ours` gains, as a fraction."""


class SyntheticMethods(NamedTuple):
    """Two methods whose accuracies are known."""

    name: str
    documents: int
    luck: float
    """Standard deviation of accuracy between seeds, as a fraction."""
    both: bool = False
    """Whether the rival is trained with as many seeds, instead of being deterministic."""
    tasks: int = 0
    """Tasks of equal size that documents are drawn with; 0: documents are drawn by themselves."""


SYNTHETIC_CASES = (
    SyntheticMethods("no luck", 400, 0.0),
    SyntheticMethods("luck of 0.5 points", 2000, 0.005),
    SyntheticMethods("luck of 2 points", 600, 0.02),
    SyntheticMethods("luck of 6 points", 300, 0.06),
    SyntheticMethods("luck of 2 points in both", 600, 0.02, both=True),
    SyntheticMethods("luck of 2 points, 20 tasks", 600, 0.02, tasks=20),
)


class Coverage(NamedTuple):
    """How well the intervals of many draws cover the truth."""

    share: float
    """The share of intervals that hold the truth."""
    width: float
    """Half the mean width of the intervals, as a fraction."""


def cover(n_seeds: int, planted: SyntheticMethods, draws: int, seed: int) -> Coverage:
    """Draws answers `draws` times. With one seed, the truth is what this very fit gains on all documents."""
    rng = np.random.default_rng(seed)
    held, widths = 0, 0.0
    for _ in range(draws):
        truth, found = _draw(rng, n_seeds, planted)
        held += found.low <= truth <= found.high
        widths += (found.high - found.low) / 2
    return Coverage(held / draws, widths / draws)


def _draw(rng: np.random.Generator, n_seeds: int, planted: SyntheticMethods) -> tuple[float, Difference]:
    n = planted.documents
    ours = rng.normal(OUR_ACCURACY, planted.luck, (n_seeds, 1))
    rival = (
        rng.normal(RIVAL_ACCURACY, planted.luck, (n_seeds, 1))
        if planted.both
        else np.array([[RIVAL_ACCURACY]])
    )
    truth = OUR_ACCURACY - RIVAL_ACCURACY if n_seeds > 1 else float(ours[0, 0] - rival[0, 0])
    of, gain = None, np.zeros(n)
    if planted.tasks:
        of = np.arange(n) % planted.tasks
        gain = rng.normal(0, TASK_SPREAD, planted.tasks)[of]
    luck = rng.normal(size=n)
    one, other = (_answer(rng, accuracy, luck) for accuracy in (ours + gain, rival + np.zeros(n)))
    return truth, paired_difference(one, other, clusters=of)


def _answer(rng: np.random.Generator, accuracy: Floats, luck: Floats) -> Floats:
    """(K, T) answers that are right as often as `accuracy` (K, T) says."""
    luck = np.sqrt(1 - OWN_LUCK_SHARE) * luck + np.sqrt(OWN_LUCK_SHARE) * rng.normal(size=accuracy.shape)
    return np.asarray(luck < ndtri(accuracy.clip(0.001, 0.999)), dtype=np.float64)

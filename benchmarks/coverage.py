"""Simulates how often intervals of two methods' difference contain the true one, with 1 to 10 seeds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from rlfocal.base.arrays import Floats
from rlfocal.statistics.intervals import Difference, paired_difference

SEED_COUNTS = (1, 2, 3, 5, 10)
PROMISED_COVERAGE = (0.94, 0.965)
"""The lower and upper limit on the share of 95 % intervals that contain the true difference."""
OUR_ACCURACY, RIVAL_ACCURACY = 0.70, 0.67
"""The true accuracies of the two methods, over all documents, seeds and tasks."""
OWN_LUCK_SHARE = 0.2
"""The share of the variance in right answers that is a seed's own; the rest is the document's."""
TASK_SPREAD = 0.1
"""The standard deviation, between tasks, of our method's gain over the rival, as a fraction."""


class SyntheticMethods(NamedTuple):
    """A case: two methods whose true accuracies are known, and how their accuracies vary."""

    name: str
    documents: int
    luck: float
    """The standard deviation of accuracy between seeds, as a fraction."""
    both: bool = False
    """Whether the rival is trained with as many seeds as our method; if not, it is deterministic."""
    tasks: int = 0
    """The number of tasks, all of one size, that documents belong to; 0: documents belong to none."""


SYNTHETIC_CASES = (
    SyntheticMethods("no luck", 400, 0.0),
    SyntheticMethods("luck of 0.5 points", 2000, 0.005),
    SyntheticMethods("luck of 2 points", 600, 0.02),
    SyntheticMethods("luck of 6 points", 300, 0.06),
    SyntheticMethods("luck of 2 points in both", 600, 0.02, both=True),
    SyntheticMethods("luck of 2 points, 20 tasks", 600, 0.02, tasks=20),
)


class Coverage(NamedTuple):
    """How well the intervals of many draws cover the true difference."""

    share: float
    """The share of intervals that contain the true difference."""
    width: float
    """Half the mean width of the intervals, as a fraction of the documents."""


def cover(n_seeds: int, planted: SyntheticMethods, draws: int, seed: int) -> Coverage:
    """The coverage of intervals from `draws` draws of both methods' answers. With one training seed, the true
    difference is that of the very fit that was drawn."""
    rng = np.random.default_rng(seed)
    n_covering, widths = 0, 0.0
    for _ in range(draws):
        truth, found = _draw(rng, n_seeds, planted)
        n_covering += found.low <= truth <= found.high
        widths += (found.high - found.low) / 2
    return Coverage(n_covering / draws, widths / draws)


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
    """(K, T) 1 where a seed's answer is right, as often as `accuracy` (K, T) says; `luck` (T,) is shared."""
    luck = np.sqrt(1 - OWN_LUCK_SHARE) * luck + np.sqrt(OWN_LUCK_SHARE) * rng.normal(size=accuracy.shape)
    return np.asarray(luck < ndtri(accuracy.clip(0.001, 0.999)), dtype=np.float64)

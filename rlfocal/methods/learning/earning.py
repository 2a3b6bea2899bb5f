"""Never worse than doing nothing: what was learned is kept where it did better on held-out train rows."""

from __future__ import annotations

from statistics import NormalDist
from typing import Literal

import numpy as np

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.dataset import Dataset

Rung = Literal["best single", "best single per task", "best single per question", "constant pool", "learned"]
"""What decides, from the simplest: one model alone; one for each task; where answers are only graded, one for
each question; the pool that the Decider started from, with Fusion; the Decider, with Fusion."""
AHEAD, FAR_AHEAD = 0.5, 3.0
"""Standard errors by which a policy has to be ahead of a simpler one to take its place: the second where
labels seem to have nothing to do with what models say."""
ASSUMED = 4
"""Documents more on which the two are assumed to differ, without a gain: on a few, all agree by chance."""
CHANCE = 0.05
FEWEST = 10
"""Train documents below which nothing can be held out that tells anything."""
PARTS = 3


def has_earned(challenger: Floats, kept: Floats, margin: float) -> bool:
    """Whether a policy is ahead of a simpler one by so many standard errors, by what both earned on held-out
    documents (T,)."""
    gain = challenger - kept
    return bool(gain.sum() > margin * np.sqrt(np.square(gain).sum() + ASSUMED))


def needed_margin(train: Dataset) -> float:
    """`AHEAD` where one model is right clearly more often than with the labels of other documents, by a test
    for each model at `CHANCE` in all. Else `FAR_AHEAD`: the labels may be shuffled, and what is learned from
    such labels is worse than any good model."""
    predictions, labels, n = train.predictions, train.labels, len(train)
    size = int(max(predictions.max(initial=0), labels.max(initial=0))) + 1
    share = np.bincount(labels[labels >= 0], minlength=size) / n
    chance = np.where(predictions >= 0, share[np.maximum(predictions, 0)], 0.0).mean(axis=0)
    error = np.sqrt(np.maximum(chance * (1 - chance), 1 / n) / n)
    clearly = NormalDist().inv_cdf(1 - CHANCE / predictions.shape[1])
    is_clear = train.correct.mean(axis=0) > chance + clearly * error
    return AHEAD if is_clear.any() else FAR_AHEAD


def held_out_parts(n_train: int, seed: int) -> list[Ints]:
    """Positions of the documents that each trial holds out, all of them in turn, drawn by the seed; none of a
    very short train."""
    if n_train < FEWEST:
        return []
    drawn = np.random.default_rng(seed).permutation(n_train)
    return [np.sort(part) for part in np.array_split(drawn, PARTS)]


def most_accurate(accuracy: Floats) -> int:
    """The model that decides alone where nothing else has earned its place; ties: the first."""
    return int(accuracy.argmax())

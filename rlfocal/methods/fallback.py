"""What decides: the simplest of nested policies, unless held-out train documents show that another is better.

A policy that is no better than a simpler one replaces it in at most 5 % of fits, all comparisons of a fit
taken together; one that is a point worse, in about 1 % (1.1 % at 20 documents).
`python -m benchmarks.fallback` simulates both.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal, TypeVar

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.data.dataset import Dataset

Deciding = Literal[
    "best single", "best single per task", "best single per question", "start", "constant pool", "learned"
]
"""What decides. `best single`: one model alone; one for each task; where answers are only graded, one for
each question. `start`: the best constant pool, weighted by the log-odds of its members' accuracies. `constant
pool`: the same pool with a trained Fusion. `learned`: the trained Decider and Fusion."""
CHOICE_LEVEL = 0.05
"""The most often that a fit chooses a policy which is no better than a simpler one."""
POINT, LEVEL_OF_POINT = 0.01, 0.006
"""How often it chooses one which is a point worse, by the normal approximation; by simulation, about 1 %."""
FIRST_SHARE = 0.8
"""Share of the level that the first comparison has; each later one has this share of what is left."""
ASSUMED_VARIANCE = 1.0
"""Added to the sum of squared differences: on few documents, policies agree by chance."""
LUCK_MARGIN = 1.5
"""Standard errors by which documents that were not tried may be better than those that were."""
CHANCE_LEVEL = 0.05
SHUFFLED_MARGIN = 3.0
MIN_TRAIN_DOCUMENTS = 10
"""Train documents below which nothing can be held out that tells anything."""

Name = TypeVar("Name", bound=str)


def choose_fallback(candidates: Sequence[Name], out_of_fold: Floats, margin: float = 0.0) -> Name:
    """The last candidate that is better than the one chosen before it, by what each earned out of fold.

    `candidates`: names, from the simplest. `out_of_fold` (K, T): what each earned on every train document,
    by a fit without it. `margin`: standard errors by which a candidate has to be ahead whatever the level.

    A comparison that succeeds passes its level on to the next one, so all together keep to `CHOICE_LEVEL`
    (the fallback procedure of Wiens, 2003). A candidate that earned the same on every document passes it
    on, too.
    """
    chosen, earned = candidates[0], out_of_fold[0]
    left, passed_on = 1.0, 0.0
    for number, (name, challenger) in enumerate(zip(candidates[1:], out_of_fold[1:], strict=True), 2):
        own = left if number == len(candidates) else left * FIRST_SHARE
        left -= own
        share = own + passed_on
        gain = challenger - earned
        is_better = is_ahead(gain, share, margin)
        if is_better:
            chosen, earned = name, challenger
        passed_on = share if is_better or not gain.any() else 0.0
    return chosen


def is_ahead(gain: Floats, share: float = 1.0, margin: float = 0.0) -> bool:
    """Whether the mean of paired gains (T,) is above 0, at this share of `CHOICE_LEVEL` and by so many
    standard errors, and above a point's loss at the same share of `LEVEL_OF_POINT`."""
    if not gain.size:
        return False
    error = np.sqrt(np.square(gain - gain.mean()).sum() + ASSUMED_VARIANCE)
    of_zero, of_point = (NormalDist().inv_cdf(1 - share * level) for level in (CHOICE_LEVEL, LEVEL_OF_POINT))
    is_above_zero = gain.sum() > max(of_zero, margin) * error
    return bool(is_above_zero and gain.sum() + POINT * len(gain) > of_point * error)


def may_come_ahead(gain: Floats, n: int, margin: float = 0.0) -> bool:
    """Whether the mean of n paired gains may come out clearly above 0, by the first m of them (m,).

    It may if the others are `LUCK_MARGIN` standard errors better than these. Where not, trying them adds no
    evidence."""
    m = len(gain)
    if not m:
        return True
    deviation = np.sqrt((np.square(gain - gain.mean()).sum() + ASSUMED_VARIANCE) / m)
    needed = max(NormalDist().inv_cdf(1 - CHOICE_LEVEL), margin) * np.sqrt(n)
    return bool(gain.mean() * n + LUCK_MARGIN * deviation * np.sqrt(max(n - m, 0)) > needed * deviation)


def needed_margin(train: Dataset) -> float:
    """0 where one model is right clearly more often than with the labels of other documents, by a test for
    each model at `CHANCE_LEVEL` in all. Else `SHUFFLED_MARGIN`: the labels may be shuffled, and what is
    learned from such labels is worse than any good model."""
    predictions, labels, n = train.predictions, train.labels, len(train)
    size = int(max(predictions.max(initial=0), labels.max(initial=0))) + 1
    share = np.bincount(labels[labels >= 0], minlength=size) / n
    chance = np.where(predictions >= 0, share[np.maximum(predictions, 0)], 0.0).mean(axis=0)
    error = np.sqrt(np.maximum(chance * (1 - chance), 1 / n) / n)
    clearly = NormalDist().inv_cdf(1 - CHANCE_LEVEL / predictions.shape[1])
    is_clear = train.correct.mean(axis=0) > chance + clearly * error
    return 0.0 if is_clear.any() else SHUFFLED_MARGIN

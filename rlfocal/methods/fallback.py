"""Keeps to the simpler of several policies, unless held-out train documents show that another is better.

A policy that is no better than a simpler one replaces it in at most 5 % of fits, over all comparisons of a
fit together. A policy that is a point worse replaces it in about 1 % (1.1 % at 20 documents). `python -m
benchmarks.fallback` simulates both. Between one model and the start, the higher mean decides (`choose_base`).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal, TypeVar

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.data.dataset import Dataset

PolicyName = Literal[
    "best single", "best single per task", "best single per question", "start", "constant pool", "learned"
]
"""The name of a policy that may decide in trained agents.

`best single`: one model alone. `best single per task`: one for each task. `best single per question`: one for
each question, where answers are only graded. `start`: the best constant pool, weighted by its members' odds
of being right. `constant pool`: the same pool with a trained Fusion. `learned`: the trained Decider and
Fusion.
"""
CHOICE_LEVEL = 0.05
"""The largest share of fits that choose a policy which is no better than a simpler one."""
POINT, LEVEL_OF_POINT = 0.01, 0.006
"""A point of accuracy, and the largest share of fits that choose a policy which is a point worse.

The share is by the normal approximation; simulations show about 1 %.
"""
FIRST_SHARE = 0.8
"""The share of the significance level that the first comparison gets.

Each later comparison gets this share of the rest, and the last one all of it.
"""
ASSUMED_VARIANCE = 1.0
"""A constant in the sum of squared differences, because policies may agree by chance on few documents."""
LUCK_MARGIN = 1.5
"""The number of standard errors by which gains on documents not yet tried may exceed those so far."""
CHANCE_LEVEL = 0.05
SHUFFLED_MARGIN = 3.0
MIN_TRAIN_DOCUMENTS = 10
"""The fewest train documents from which some can be held out in a way that tells policies apart."""

Name = TypeVar("Name", bound=str)


def choose_fallback(candidates: Sequence[Name], out_of_fold: Floats, margin: float = 0.0) -> Name:
    """Chooses the simplest candidate, unless a later one is clearly better than the one chosen before it.

    `candidates`: names, from the simplest. `out_of_fold` (K, T): the reward of each candidate on every train
    document, by a fit without that document. `margin`: the least number of standard errors by which a
    candidate has to be ahead.

    A comparison that succeeds, or whose rewards are all equal, passes its level on to the next one. So all
    together keep to `CHOICE_LEVEL` (the fallback procedure of Wiens, 2003).
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


def choose_base(simpler: Name, start: Name, out_of_fold: Floats) -> Name:
    """The start if its mean reward is higher than that of `simpler`, else `simpler`.

    `out_of_fold` (2, T): the rewards of `simpler` and of the start, as for `choose_fallback`. No test is
    needed, because the start loses points to `simpler` as often as it wins them on few documents.
    """
    alone, start_rewards = out_of_fold
    return start if start_rewards.sum() > alone.sum() else simpler


def is_ahead(gain: Floats, share: float = 1.0, margin: float = 0.0) -> bool:
    """Whether the mean of paired gains (T,) is clearly positive.

    The mean must be above 0 at the level `share` · CHOICE_LEVEL, and by `margin` standard errors. It must
    also be above -POINT at the level `share` · LEVEL_OF_POINT.
    """
    if not gain.size:
        return False
    error = np.sqrt(np.square(gain - gain.mean()).sum() + ASSUMED_VARIANCE)
    of_zero, of_point = (NormalDist().inv_cdf(1 - share * level) for level in (CHOICE_LEVEL, LEVEL_OF_POINT))
    is_above_zero = gain.sum() > max(of_zero, margin) * error
    return bool(is_above_zero and gain.sum() + POINT * len(gain) > of_point * error)


def may_come_ahead(gain: Floats, n: int, margin: float = 0.0) -> bool:
    """Whether the mean of n paired gains may become clearly positive, from the first m of them, `gain` (m,).

    The remaining gains are assumed to be at most `LUCK_MARGIN` standard errors higher than the first.
    """
    m = len(gain)
    if not m:
        return True
    deviation = np.sqrt((np.square(gain - gain.mean()).sum() + ASSUMED_VARIANCE) / m)
    needed = max(NormalDist().inv_cdf(1 - CHOICE_LEVEL), margin) * np.sqrt(n)
    return bool(gain.mean() * n + LUCK_MARGIN * deviation * np.sqrt(max(n - m, 0)) > needed * deviation)


def needed_margin(train: Dataset) -> float:
    """The margin that `choose_fallback` needs: 0, or SHUFFLED_MARGIN if the labels may be shuffled.

    It is 0 if some model agrees with the labels clearly more often than with those of other documents. Each
    model is tested, at `CHANCE_LEVEL` for all together. Policies fitted to shuffled labels are worse than any
    good model.
    """
    predictions, labels, n = train.predictions, train.labels, len(train)
    size = int(max(predictions.max(initial=0), labels.max(initial=0))) + 1
    share = np.bincount(labels[labels >= 0], minlength=size) / n
    chance = np.where(predictions >= 0, share[np.maximum(predictions, 0)], 0.0).mean(axis=0)
    error = np.sqrt(np.maximum(chance * (1 - chance), 1 / n) / n)
    clearly = NormalDist().inv_cdf(1 - CHANCE_LEVEL / predictions.shape[1])
    is_clear = train.correct.mean(axis=0) > chance + clearly * error
    return 0.0 if is_clear.any() else SHUFFLED_MARGIN

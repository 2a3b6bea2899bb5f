"""Samples drawn anew from what a model said, for methods that ask a model several times."""

from __future__ import annotations

import numpy as np

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.calls import Answered


def majority_of(said: Floats, samples: int | Ints, rng: np.random.Generator) -> Answered:
    """The slot with the most of so many draws from distributions (T, C); ties: the lowest.

    Probability missing to 1 is the share of passes without an answer; such draws do not vote, and without a
    vote there is no answer. The probability is the winner's share of all draws.
    """
    missing = np.maximum(1 - said.sum(axis=1, keepdims=True), 0)
    chances = np.hstack([said, missing])
    chances /= chances.sum(axis=1, keepdims=True)
    votes = rng.multinomial(samples, chances)[:, :-1]
    slots = np.where(votes.any(axis=1), votes.argmax(axis=1), -1).astype(np.int64)
    return Answered(slots, votes.max(axis=1, initial=0) / samples)

"""A vote in which better models count more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.statistics.votes import soft_vote


@register(
    Entry(
        "weighted_vote",
        "all",
        "the plurality, each vote weighted by its model's train accuracy",
        reads=("outputs",),
        with_task="fitted per task",
    )
)
@dataclass(frozen=True)
class WeightedVote(MethodBase):
    """Every model votes for its prediction, weighted by its accuracy on train."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Votes]:
        # Counts instead of shares, so that sums are exact and equal votes tie.
        n_right = train.correct.sum(axis=0).astype(np.float64)
        return [Votes(n_right if n_right.any() else np.ones(len(n_right)))]


@dataclass(frozen=True)
class Votes:
    """The slot with the highest sum of votes."""

    weights: Floats
    """(N,)"""

    def decide(self, calls: Calls) -> Answered:
        said = calls.call_all()
        slots = np.arange(said.probs.shape[2])
        votes = (said.predictions[:, :, None] == slots) * self.weights[:, None]
        return Answered(soft_vote(votes, calls.called, calls.kind))

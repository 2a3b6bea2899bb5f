"""ModelSwitch: a model is asked several times, and the next one only where its answers disagree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveInt

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.pools.greedy import best_on_train
from rlfocal.methods.registry import Entry, MethodBase, register


@register(
    Entry(
        "model_switch",
        "up to 3 models in turn, the best on train first, until all passes of one agree",
        "a vote over all passes so far, weighted by consistency and train accuracy",
        kinds=("answers",),
        is_default=False,
        needs=("passes",),
        source="ModelSwitch (arXiv 2504.00762)",
        differs="stored passes, as many as there are; a model's prior weight is its train accuracy; a model "
        "counts as one call",
        reads=("outputs",),
        space={
            "models": Range(1, 5),
            "consistency": Range(0.5, 1.0),
        },
    )
)
@checked
class ModelSwitch(MethodBase):
    """Answers argmax_a Σ_m α_m w_m · (passes of m that say a) over the models asked; ties: the earlier one's.

    α_m is m's train accuracy, and w_m = 1/n + (1 - 1/n) (1 - H / log k), with H the entropy of the n passes
    of m that have an answer, over their k distinct answers; 1 where k = 1.
    """

    models: PositiveInt = 3
    """that are asked at most"""
    consistency: Annotated[float, Field(gt=0, le=1)] = 1.0
    """share of a model's passes that must agree"""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Switcher]:
        order = best_on_train(train, self.models)
        priors = train.correct.mean(axis=0) if len(train) else np.ones(len(train.models))
        return [Switcher(order, priors, passes_of(train.probs), self.consistency)]


def passes_of(shares: Floats, most: int = 100) -> int:
    """The least number of passes, up to `most`, of which these shares are whole numbers."""
    known = np.unique(shares.round(9))
    found = (n for n in range(1, most) if np.allclose(known * n, np.round(known * n), rtol=0, atol=1e-6))
    return next(found, most)


def internal_weights(passes: Floats) -> Floats:
    """(T,) w of each document, from the number of passes for every answer (T, C)."""
    n, k = passes.sum(axis=1), (passes > 0).sum(axis=1)
    p = passes / np.maximum(n, 1)[:, None]
    entropy = -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1)
    bias = 1 / np.maximum(n, 1)
    return np.where(k > 1, bias + (1 - bias) * (1 - entropy / np.log(np.maximum(k, 2))), 1.0)


@dataclass(frozen=True)
class Switcher:
    """Asks models in turn until one agrees with itself."""

    order: Ints
    """the models in the order in which they are asked"""
    priors: Floats
    """(N,) α"""
    passes: int
    """per model and document"""
    consistency: float

    def decide(self, calls: Calls) -> Answered:
        is_open, numbers = np.ones(len(calls), dtype=np.bool_), np.arange(len(calls.models))
        for model in self.order:
            shares = calls.call(is_open[:, None] & (numbers == model)).probs[:, model]
            is_open &= shares.max(axis=1, initial=0.0) < self.consistency - 1e-9
        said = calls.outputs()
        passes = said.probs[:, self.order] * self.passes
        weights = np.stack([internal_weights(one) for one in passes.transpose(1, 0, 2)], axis=1)
        votes = np.einsum("tm,tmc->tc", weights * self.priors[self.order], passes)
        # Answers are numbered as calls bring them up: the first of a tie is the earlier model's.
        slots = votes.round(9).argmax(axis=1)
        total = np.maximum(votes.sum(axis=1), 1e-12)
        is_said = (votes > 0).any(axis=1)
        return Answered(np.where(is_said, slots, -1), votes.max(axis=1, initial=0.0) / total)

"""More Agents Is All You Need (Li et al., 2024): one model, sampled many times, votes with itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.methods.pools.greedy import best_on_train
from rlfocal.methods.registry import Entry, MethodBase, register

SAMPLES = 40


@register(
    Entry(
        "more_agents",
        "the model with the best train accuracy",
        f"the majority of {SAMPLES} draws from what it said",
        is_default=False,
        needs=("samples",),
        source="More Agents Is All You Need (arXiv 2402.05120)",
        differs="samples are drawn with replacement from the model's stored passes, or from its distribution "
        "over the choices, as new ones need generation; the model counts as one call",
        reads=("outputs",),
    )
)
@dataclass(frozen=True)
class MoreAgents(MethodBase):
    """The answer with the most of N draws; V(s_i) = Σ_j [s_i = s_j]. Ties: the lowest slot.

    With many draws, this tends to the model's own likeliest answer.
    """

    samples: int = SAMPLES
    seeded = True

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Sampled]:
        model = int(best_on_train(train, 1)[0])
        return [Sampled(model, self.samples, seed) for seed in seeds]


@dataclass(frozen=True)
class Sampled:
    """The majority of draws from one model's distribution."""

    model: int
    """Its position."""
    samples: int
    seed: int

    def decide(self, calls: Calls) -> Answered:
        said = calls.call(np.arange(len(calls.models)) == self.model).probs[:, self.model]
        return majority_of(said, self.samples, np.random.default_rng(self.seed))


def majority_of(said: Floats, samples: int, rng: np.random.Generator) -> Answered:
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

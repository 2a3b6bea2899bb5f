"""One model per document, picked at random or by the last label (paper, section 3.9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Bools, Ints
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.stream import Stream
from rlfocal.methods._routing import ask
from rlfocal.methods.registry import Entry, MethodBase, register

BEST = 3
"""Number of models to pick from, unless a size is given."""


@register(
    Entry(
        "random_select",
        f"one of the {BEST} best on train, at random",
        "what it answers",
        argument="size",
        make=lambda making: RandomSelect(making.size or BEST),
    )
)
@dataclass(frozen=True)
class RandomSelect(MethodBase):
    """One of the models that are best on train, at random."""

    size: int = BEST
    seeded = True

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Draws]:
        return [Draws(best_on_train(train, self.size), seed) for seed in seeds]


@dataclass(frozen=True)
class Draws:
    """Asks a model drawn anew for every document."""

    among: Ints
    """Positions of the models."""
    seed: int

    def decide(self, calls: Calls) -> Answered:
        return ask(calls, np.random.default_rng(self.seed).choice(self.among, len(calls)))


@register(
    Entry(
        "latest_correct",
        f"one of the {BEST} best on train that was right on the previous document, else any of them; then "
        "the others, to know who was right",
        "what the first answers",
        protocols=("online",),
        argument="size",
        make=lambda making: LatestCorrect(making.size or BEST),
    )
)
@dataclass(frozen=True)
class LatestCorrect(MethodBase):
    """One of the best on train, at random among those that were right on the previous document.

    It needs each document's label before the next one, so it does not run under the frozen protocol.
    """

    size: int = BEST
    seeded = True
    revision = "2"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[FollowsTheRight]:
        return [FollowsTheRight(best_on_train(train, self.size), seed) for seed in seeds]


@dataclass(frozen=True)
class FollowsTheRight:
    """Picks at random at the start, and after documents on which none of the models was right."""

    among: Ints
    """Positions of the models."""
    seed: int

    def decide(self, calls: Calls) -> Answered:
        """Without labels: always at random."""
        nobody = np.zeros((len(calls), len(self.among)), dtype=np.bool_)
        return ask(calls, self._pick(nobody, np.random.default_rng(self.seed)))

    def decide_along(self, stream: Stream) -> None:
        """After each answer the others are called too: a label shows only which of the called were right."""
        rng, everyone = np.random.default_rng(self.seed), np.zeros(len(stream.models), dtype=np.bool_)
        everyone[self.among] = True
        before = np.zeros((1, len(self.among)), dtype=np.bool_)
        for turn in stream:
            turn.answer(int(ask(turn.calls, self._pick(before, rng)).slots[0]))
            turn.calls.call(everyone)
            before = turn.right[None, self.among]

    def _pick(self, before: Bools, rng: np.random.Generator) -> Ints:
        """(T,) positions among all models, from which were right on the previous document (T, K)."""
        draws = rng.random(before.shape)
        candidates = before | ~before.any(axis=1, keepdims=True)
        # The candidate with the highest of i.i.d. draws is a uniform choice.
        picked: Ints = self.among[np.where(candidates, draws, -1.0).argmax(axis=1)]
        return picked


def best_on_train(train: Dataset, size: int) -> Ints:
    """(size,) positions of the models with the most right train answers; ties: alphabetically."""
    return np.argsort(-train.correct.sum(axis=0), kind="stable")[:size].astype(np.int64)

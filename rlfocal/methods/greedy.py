"""One model per document, picked by luck or by the last label (paper, section 3.9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlfocal.calls import Answered, Calls
from rlfocal.dataset import Dataset
from rlfocal.methods.registry import Entry, register
from rlfocal.policy import Decisions

BEST = 3
"""How many models there are to pick from, unless a size is given."""


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
class RandomSelect:
    """One of the models that are best on train, at random."""

    size: int = BEST
    seeded = True

    def recipe(self, n_train: int) -> str:
        return "1"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Draws]:
        return [Draws(best_on_train(train, self.size), seed) for seed in seeds]


@dataclass(frozen=True)
class Draws:
    """Asks a model drawn anew for every document."""

    among: NDArray[np.int64]
    """Positions of the models."""
    seed: int

    def decide(self, calls: Calls) -> Answered:
        return _believed(calls, np.random.default_rng(self.seed).choice(self.among, len(calls)))


@register(
    Entry(
        "latest_correct",
        f"one of the {BEST} best on train that was right on the document before, else any of them",
        "what it answers",
        protocols=("online",),
        argument="size",
        make=lambda making: LatestCorrect(making.size or BEST),
    )
)
@dataclass(frozen=True)
class LatestCorrect:
    """One of the models that are best on train, at random among those that were right on the document before.

    The label of every document is revealed before the next one, so that it has no frozen protocol.
    """

    size: int = BEST
    seeded = True

    def recipe(self, n_train: int) -> str:
        return "1"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[FollowsTheRight]:
        return [FollowsTheRight(best_on_train(train, self.size), seed) for seed in seeds]


@dataclass(frozen=True)
class FollowsTheRight:
    """Starts at random, as it does wherever none of the models was right."""

    among: NDArray[np.int64]
    """Positions of the models."""
    seed: int

    def decide(self, calls: Calls) -> Answered:
        """Where no label is ever revealed: always at random."""
        return _believed(calls, self._picked(np.zeros((len(calls), len(self.among)), dtype=np.bool_)))

    def decide_online(self, documents: Dataset) -> Decisions:
        """Each label is revealed after its document's answer, for the next one's choice."""
        right = documents.correct[:, self.among]
        before = np.vstack([np.zeros((1, len(self.among)), dtype=np.bool_), right])[: len(documents)]
        calls, picked = Calls(documents), self._picked(before)
        slots = calls.stored_slots(_believed(calls, picked).slots)
        return Decisions(calls.called, slots, calls.rounds)

    def _picked(self, before: NDArray[np.bool_]) -> NDArray[np.int64]:
        """(T,) positions among all models, from who was right on the document before (T, K)."""
        draws = np.random.default_rng(self.seed).random(before.shape)
        candidates = before | ~before.any(axis=1, keepdims=True)
        # The highest of equal draws is any candidate with equal probability.
        picked: NDArray[np.int64] = self.among[np.where(candidates, draws, -1.0).argmax(axis=1)]
        return picked


def best_on_train(train: Dataset, size: int) -> NDArray[np.int64]:
    """(size,) positions of the models with the most right train answers; ties: alphabetically."""
    return np.argsort(-train.correct.sum(axis=0), kind="stable")[:size].astype(np.int64)


def _believed(calls: Calls, models: NDArray[np.int64]) -> Answered:
    """Each document's model (T,) is called, and believed."""
    said = calls.call(models[:, None] == np.arange(len(calls.models)))
    return Answered(said.predictions[np.arange(len(calls)), models])

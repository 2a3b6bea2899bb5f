"""One model per document, picked by luck or by the last label (paper, section 3.9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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

    def decide(self, documents: Dataset) -> Decisions:
        drawn = np.random.default_rng(self.seed).choice(self.among, len(documents))
        return _of_one(documents, drawn)


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

    def decide(self, documents: Dataset) -> Decisions:
        """Where no label is ever revealed."""
        return self.decide_online(documents.unlabelled())

    def decide_online(self, documents: Dataset) -> Decisions:
        """Each label is revealed after its document's answer, for the next one's choice."""
        draws = np.random.default_rng(self.seed).random((len(documents), len(self.among)))
        right = documents.correct[:, self.among]
        before = np.vstack([np.zeros((1, len(self.among)), dtype=np.bool_), right])[: len(documents)]
        candidates = before | ~before.any(axis=1, keepdims=True)
        # The highest of equal draws is any candidate with equal probability.
        return _of_one(documents, self.among[np.where(candidates, draws, -1.0).argmax(axis=1)])


def best_on_train(train: Dataset, size: int) -> NDArray[np.int64]:
    """(size,) positions of the models with the most right train answers; ties: alphabetically."""
    return np.argsort(-train.correct.sum(axis=0), kind="stable")[:size].astype(np.int64)


def _of_one(documents: Dataset, asked: NDArray[np.int64]) -> Decisions:
    """Each document's model is asked, and believed."""
    rows = np.arange(len(documents))
    pools = np.zeros(documents.predictions.shape, dtype=np.bool_)
    pools[rows, asked] = True
    return Decisions(pools, documents.predictions[rows, asked])

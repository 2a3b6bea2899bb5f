"""Contextual bandits with a linear reward for each model: the label of every document reaches the called one.

An arm is a model, its context x the question along a few principal directions, with a 1, its reward whether
it was right. Of arm m: A = I + Σ x xᵀ and b = Σ r x over the documents that it learned from, θ = A⁻¹ b.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlfocal.calls import Answered, Calls
from rlfocal.dataset import Dataset
from rlfocal.methods._text import Directions, fit_directions, texts_of
from rlfocal.stream import Stream
from rlfocal.text import TFIDF

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Arms:
    """What N arms have learned."""

    inverses: Floats
    """(N, K, K) A⁻¹"""
    sums: Floats
    """(N, K) b"""

    @classmethod
    def fresh(cls, n: int, width: int) -> Arms:
        return cls(np.tile(np.eye(width), (n, 1, 1)), np.zeros((n, width)))

    @classmethod
    def taught(cls, contexts: Floats, rewards: NDArray[np.bool_]) -> Arms:
        """Every arm by every document: contexts (T, K), rewards (T, N)."""
        inverse = np.linalg.inv(np.eye(contexts.shape[1]) + contexts.T @ contexts)
        return cls(np.tile(inverse, (rewards.shape[1], 1, 1)), rewards.T.astype(np.float64) @ contexts)

    def copy(self) -> Arms:
        return Arms(self.inverses.copy(), self.sums.copy())

    @property
    def means(self) -> Floats:
        """(N, K) θ"""
        return np.asarray(np.einsum("nij,nj->ni", self.inverses, self.sums))

    def learn(self, arm: int, context: Floats, reward: float) -> None:
        """One document more: by Sherman and Morrison, (A + x xᵀ)⁻¹ = A⁻¹ - A⁻¹x xᵀA⁻¹ / (1 + xᵀA⁻¹x)."""
        along = self.inverses[arm] @ context
        self.inverses[arm] -= np.outer(along, along) / (1 + context @ along)
        self.sums[arm] += reward * context


Score = Callable[[Arms, Floats], Floats]
"""(N,) what speaks for each arm in a context (K,)."""


@dataclass(frozen=True)
class Bandit(ABC):
    """What the bandits have in common. Its arms start with what train tells, unless told otherwise."""

    encoder: str = TFIDF
    directions: int = 16
    """Principal directions of the questions."""
    warm_start: bool = True
    """Whether every arm learns from every train document first; else all start knowing nothing."""

    @property
    @abstractmethod
    def seeded(self) -> bool: ...

    @abstractmethod
    def score(self, seed: int) -> Score:
        """How arms are scored, from here on."""

    def recipe(self, n_train: int) -> str:
        return "1"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Gambler]:
        directions = fit_directions(self.encoder, texts_of(train), self.directions)
        contexts = contexts_of(texts_of(train), directions)
        n_models = len(train.models)
        arms = (
            Arms.taught(contexts, train.correct)
            if self.warm_start
            else Arms.fresh(n_models, contexts.shape[1])
        )
        return [Gambler(self, directions, arms, seed) for seed in seeds]


@dataclass(frozen=True)
class Gambler:
    """Calls the model of the highest score, and answers what it answers. Ties: the alphabetically first."""

    method: Bandit
    directions: Directions
    arms: Arms
    seed: int

    def decide(self, calls: Calls) -> Answered:
        """Where no label is ever revealed: by what was learned before."""
        score = self.method.score(self.seed)
        contexts = contexts_of(texts_of(calls), self.directions)
        return _believed(calls, [int(score(self.arms, context).argmax()) for context in contexts])

    def decide_along(self, stream: Stream) -> None:
        """After each answer its label is revealed, and tells whether the called model was right."""
        score, arms = self.method.score(self.seed), self.arms.copy()
        for turn in stream:
            [context] = contexts_of(texts_of(turn.calls), self.directions)
            arm = int(score(arms, context).argmax())
            turn.answer(int(_believed(turn.calls, [arm]).slots[0]))
            arms.learn(arm, context, float(turn.right[arm]))


def contexts_of(texts: Sequence[str], directions: Directions) -> Floats:
    """(T, K + 1) the questions along their directions, of length 1 in the mean over train, and a 1."""
    along = directions.encode(texts)
    return np.hstack([along / np.sqrt(max(along.shape[1], 1)), np.ones((len(along), 1))])


def _believed(calls: Calls, models: Sequence[int]) -> Answered:
    """Each document's model is called, and believed."""
    chosen = np.array(models, dtype=np.int64)
    said = calls.call(chosen[:, None] == np.arange(len(calls.models)))
    return Answered(said.predictions[np.arange(len(calls)), chosen])

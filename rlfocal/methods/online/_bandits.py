"""Contextual bandits with a linear reward per model: each label updates only the model that was called.

An arm is a model; the context x is the question along a few principal directions, plus a constant 1; the
reward r is whether the model was right. For arm m: A = I + Σ x xᵀ and b = Σ r x over the documents that it
learned from, θ = A⁻¹ b.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Bools, Floats
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.stream import Stream
from rlfocal.data.text import TFIDF
from rlfocal.methods._text import Directions, fit_directions, questions_of


@dataclass(frozen=True)
class Arms:
    """What N arms have learned so far."""

    inverses: Floats
    """(N, K, K) A⁻¹"""
    sums: Floats
    """(N, K) b"""

    @classmethod
    def fresh(cls, n: int, width: int) -> Arms:
        return cls(np.tile(np.eye(width), (n, 1, 1)), np.zeros((n, width)))

    @classmethod
    def taught(cls, contexts: Floats, rewards: Bools) -> Arms:
        """Arms that have each learned from every document: contexts (T, K), rewards (T, N)."""
        inverse = np.linalg.inv(np.eye(contexts.shape[1]) + contexts.T @ contexts)
        return cls(np.tile(inverse, (rewards.shape[1], 1, 1)), rewards.T.astype(np.float64) @ contexts)

    def copy(self) -> Arms:
        return Arms(self.inverses.copy(), self.sums.copy())

    @property
    def means(self) -> Floats:
        """(N, K) θ"""
        return np.asarray(np.einsum("nij,nj->ni", self.inverses, self.sums))

    def variances(self, context: Floats) -> Floats:
        """(N,) xᵀ A⁻¹ x, at least 0."""
        found: Floats = np.einsum("i,nij,j->n", context, self.inverses, context)
        return np.asarray(np.maximum(found, 0.0))

    def learn(self, arm: int, context: Floats, reward: float) -> None:
        """Adds one document, by Sherman and Morrison: (A + x xᵀ)⁻¹ = A⁻¹ - A⁻¹x xᵀA⁻¹ / (1 + xᵀA⁻¹x)."""
        along = self.inverses[arm] @ context
        self.inverses[arm] -= np.outer(along, along) / (1 + context @ along)
        self.sums[arm] += reward * context


Score = Callable[[Arms, Floats], Floats]
"""(N,) the score of each arm in a context (K,)."""


@dataclass(frozen=True)
class Bandit(ABC):
    """What the bandits share. By default, arms first learn from train."""

    encoder: str = TFIDF
    directions: int = 16
    """Number of principal directions of the questions."""
    warm_start: bool = True
    """Whether every arm first learns from every train document; otherwise arms start from scratch."""

    @property
    @abstractmethod
    def seeded(self) -> bool: ...

    @abstractmethod
    def score(self, seed: int) -> Score:
        """The function that scores arms, for one run."""

    def recipe(self, n_train: int) -> str:
        return "1"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Gambler]:
        directions = fit_directions(self.encoder, questions_of(train), self.directions)
        contexts = contexts_of(questions_of(train), directions)
        n_models = len(train.models)
        arms = (
            Arms.taught(contexts, train.correct)
            if self.warm_start
            else Arms.fresh(n_models, contexts.shape[1])
        )
        arms = self.prepared(arms)
        return [Gambler(self, directions, arms, seed) for seed in seeds]

    def prepared(self, arms: Arms) -> Arms:
        """The arms as they go on to learn from the stream."""
        return arms


@dataclass(frozen=True)
class Gambler:
    """Calls the model with the highest score and returns its answer. Ties: the alphabetically first."""

    method: Bandit
    directions: Directions
    arms: Arms
    seed: int

    def decide(self, calls: Calls) -> Answered:
        """Without labels: uses what was learned on train."""
        score = self.method.score(self.seed)
        contexts = contexts_of(questions_of(calls), self.directions)
        return _believed(calls, [int(score(self.arms, context).argmax()) for context in contexts])

    def decide_along(self, stream: Stream) -> None:
        """After each answer, its label is revealed, and with it whether the called model was right."""
        score, arms = self.method.score(self.seed), self.arms.copy()
        for turn in stream:
            [context] = contexts_of(questions_of(turn.calls), self.directions)
            arm = int(score(arms, context).argmax())
            turn.answer(int(_believed(turn.calls, [arm]).slots[0]))
            arms.learn(arm, context, float(turn.right[arm]))


def contexts_of(texts: Sequence[str], directions: Directions) -> Floats:
    """(T, K + 1) the questions along their directions, with mean squared length 1 over train, and a 1."""
    along = directions.encode(texts)
    return np.hstack([along / np.sqrt(max(along.shape[1], 1)), np.ones((len(along), 1))])


def _believed(calls: Calls, models: Sequence[int]) -> Answered:
    """Calls each document's model and takes its answer."""
    chosen = np.array(models, dtype=np.int64)
    said = calls.call(chosen[:, None] == np.arange(len(calls.models)))
    return Answered(said.predictions[np.arange(len(calls)), chosen])

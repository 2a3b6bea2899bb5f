"""Routers between two models: the strong one where it is worth it, the weak one elsewhere (RouteLLM)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple, Protocol

import numpy as np
from pydantic import Field

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget
from rlfocal.data.text import TFIDF
from rlfocal.methods.registry import MethodBase
from rlfocal.methods.routing import Scorer, ScoreRouter, ask
from rlfocal.methods.text import questions_of


class Pair(NamedTuple):
    """Positions of the models to choose between."""

    strong: int
    """The most often right on train of those that cost more than the weak one; ties: the alphabetically
    first. Where all cost the same: of the others."""
    weak: int
    """The cheapest; ties: the most often right on train."""


def pair_of(train: Dataset) -> Pair:
    """Raises InputError if there is only one model, or a price is unknown."""
    if len(train.models) < 2:
        raise InputError(f"benchmark {train.benchmark!r} has one model; a strong-weak pair needs two")
    if np.isnan(train.prices).any():
        unpriced = train.models[int(np.isnan(train.prices).argmax())]
        raise InputError(
            f"a strong and a weak model are told apart by price, and that of {unpriced!r} is unknown; give "
            "every model's price in the pool, or import prices"
        )
    right = train.correct.sum(axis=0)
    weak = int(np.lexsort((-right, train.prices))[0])
    dearer = train.prices > train.prices[weak]
    others = dearer if dearer.any() else np.arange(len(right)) != weak
    return Pair(int(np.where(others, right, -1).argmax()), weak)


def members_of(train: Dataset, n_models: int) -> Ints:
    """(M,) in ascending order: the pair, filled up with the best on train to `n_models`, of two at least."""
    pair = pair_of(train)
    ranked = np.argsort(-train.correct.sum(axis=0), kind="stable").tolist()
    return np.sort(list(dict.fromkeys([*pair, *ranked]))[:n_models]).astype(np.int64)


HELD_OUT = 10
"""One in this many train documents is held out, to set the threshold."""


def parts_of(train: Dataset) -> tuple[Ints, Ints]:
    """Positions to learn from and to set the threshold on; with fewer than ten, all for both."""
    positions = np.arange(len(train))
    held = positions % HELD_OUT == HELD_OUT - 1
    return (positions[~held], positions[held]) if held.any() else (positions, positions)


class Worth(Protocol):
    """How much a question calls for the strong model; only the ranking matters."""

    def values(self, questions: tuple[str, ...]) -> Floats:
        """(T,)"""
        ...


class Battles(Protocol):
    """Rates M models by battles on train, question by question."""

    def rate(self, questions: tuple[str, ...]) -> Floats:
        """(T, M)"""
        ...

    def rate_train(self) -> Floats:
        """(n, M) of the train questions, held out where that is cheap."""
        ...

    def chance(self, one: Floats, other: Floats) -> Floats:
        """The probability that a model of rating `one` wins against one of rating `other`."""
        ...


@dataclass(frozen=True)
class BattleRouter(MethodBase):
    """Asks the strong model where P(strong wins | x) reaches a threshold; of more than two models, the one
    with the highest rating."""

    n_models: Annotated[int, Field(ge=2)] = 2
    """How many models to choose from: the strong one, the weak one, then the best on train."""
    strong_share: float = -1.0
    """Share of strong calls, by a threshold calibrated on train; below 0: the most accurate there."""
    encoder: str = TFIDF

    @abstractmethod
    def battle(self, questions: tuple[str, ...], right: Bools, seed: int) -> Battles:
        """From the train questions and which of the models to choose from were right on them (n, M)."""

    def parts(self, train: Dataset) -> tuple[Dataset, Dataset]:
        """The documents to learn from, and those to set the threshold on."""
        return train, train

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[PairRouter | ScoreRouter]:
        return [self._fit_seed(train, seed) for seed in (seeds if self.seeded else seeds[:1])]

    def _fit_seed(self, train: Dataset, seed: int) -> PairRouter | ScoreRouter:
        pair, members = pair_of(train), members_of(train, self.n_models)
        strong = int(np.flatnonzero(members == pair.strong)[0])
        learnt, held = self.parts(train) if len(members) == 2 else (train, train)
        battles = self.battle(questions_of(learnt), learnt.correct[:, members], seed)
        if len(members) > 2:
            scorer = ChancesAgainst(battles, strong, members, len(train.models))
            return ScoreRouter(scorer, train.prices, is_probability=False)
        worth = StrongWins(battles, strong)
        values = worth.train_values() if held is learnt else worth.values(questions_of(held))
        return route(worth, pair, held, values, self.strong_share)


@dataclass(frozen=True)
class StrongWins:
    """P(strong wins) of a pair."""

    battles: Battles
    strong: int
    """its position in the pair"""

    def values(self, questions: tuple[str, ...]) -> Floats:
        return self._chance(self.battles.rate(questions))

    def train_values(self) -> Floats:
        return self._chance(self.battles.rate_train())

    def _chance(self, rated: Floats) -> Floats:
        return self.battles.chance(rated[:, self.strong], rated[:, 1 - self.strong])


@dataclass(frozen=True)
class ChancesAgainst(Scorer):
    """P(m wins against the strong model) for each of N models; -inf for non-members."""

    battles: Battles
    strong: int
    """its position among the members"""
    members: Ints
    """(M,) positions among the N models"""
    n_models: int

    def scores(self, questions: tuple[str, ...]) -> Floats:
        return self._place(self.battles.rate(questions))

    def train_scores(self) -> Floats:
        return self._place(self.battles.rate_train())

    def _place(self, rated: Floats) -> Floats:
        scores = np.full((len(rated), self.n_models), -np.inf)
        scores[:, self.members] = self.battles.chance(rated, rated[:, [self.strong]])
        return scores


class Cuts(NamedTuple):
    """Every split of some train documents by a threshold, from no strong calls to all."""

    thresholds: Floats
    """(K,) descending, from inf to -inf; midway between two values of the documents"""
    shares: Floats
    """(K,) shares of documents at or above them, ascending from 0 to 1"""
    gains: Ints
    """(K,) right answers gained over the weak model alone"""


def cuts_of(values: Floats, train: Dataset, pair: Pair) -> Cuts:
    """The splits of train documents by their values (n,)."""
    right = train.correct.astype(np.int64)
    cut, at = np.unique(-values.round(9), return_inverse=True)
    n = np.bincount(at, minlength=len(cut)).cumsum()
    gain = right[:, pair.strong] - right[:, pair.weak]
    gains = np.bincount(at, weights=gain, minlength=len(cut)).cumsum().round()
    return Cuts(
        np.concatenate([[np.inf], -(cut[:-1] + cut[1:]) / 2, [-np.inf]]),
        np.append(0, n) / max(len(values), 1),
        np.append(0, gains).astype(np.int64),
    )


@dataclass(frozen=True)
class PairRouter:
    """Asks the strong model where the question's value reaches the threshold, else the weak one."""

    worth: Worth
    pair: Pair
    prices: Floats
    """(N,) cents per 1,000 queries; NaN where unknown"""
    cuts: Cuts
    threshold: float

    def decide(self, calls: Calls) -> Answered:
        is_strong = self.worth.values(questions_of(calls)).round(9) >= self.threshold
        return ask(calls, np.where(is_strong, self.pair.strong, self.pair.weak).astype(np.int64))

    def at_share(self, share: float) -> PairRouter:
        """With at most this share of strong calls on the documents of the cuts."""
        return replace(self, threshold=float(self.cuts.thresholds[self.cuts.shares <= share + 1e-9][-1]))

    def within(self, budget: Budget) -> PairRouter | None:
        """At most one model each; in cents, the most accurate threshold within the budget on train."""
        if budget.unit == "models":
            return self if budget.amount >= 1 else None
        strong, weak = (self.prices[model] for model in self.pair)
        costs = self.cuts.shares * strong + (1 - self.cuts.shares) * weak
        affordable = costs <= budget.amount * (1 + 1e-9)
        return self.at_best(affordable) if affordable.any() else None

    def at_best(self, allowed: Bools | bool = True) -> PairRouter:
        """At the threshold, of those allowed (K,), that is most accurate on train; ties: the one with the
        fewest strong calls."""
        best = np.where(allowed, self.cuts.gains, np.iinfo(np.int64).min).argmax()
        return replace(self, threshold=float(self.cuts.thresholds[best]))


def route(worth: Worth, pair: Pair, train: Dataset, values: Floats, strong_share: float) -> PairRouter:
    """A router at that share of strong calls; below 0, at the threshold with the best accuracy: on train
    documents with these values (n,)."""
    router = PairRouter(worth, pair, train.prices, cuts_of(values, train, pair), math.inf)
    return router.at_best() if strong_share < 0 else router.at_share(strong_share)

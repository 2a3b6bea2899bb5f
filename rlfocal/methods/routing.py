"""Routers: methods that score every model from the question alone, ask one model, and return its answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from rlfocal.base.arrays import Floats, Ints
from rlfocal.base.errors import InputError
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, least_enough
from rlfocal.data.text import questions_of
from rlfocal.methods.registry import Entry, MethodT, register

_BISECTION_STEPS = 50
_DECISIVE_PRICE_WEIGHT = 1e6
"""A price weight so high that scores do not count, in right answers per price of the dearest model."""


def question_router(name: str, asks: str, **more: Any) -> Callable[[MethodT], MethodT]:
    """Registers a router, which asks one model by the question alone, and can keep to any budget.

    `more`: further fields of the router's entry.
    """
    usual = {"answers": "what it answers", "needs": ("questions",), "reads": ("question",)}
    every: dict[str, Any] = {**usual, "has_budgets": True, "is_default": False, **more}
    return register(Entry(name, asks, **every))


class ModelScorer(ABC):
    """A scorer of models by the question; higher is better, and a model that scores -inf is never asked."""

    questions: tuple[str, ...]
    """The train questions."""

    @abstractmethod
    def scores(self, questions: tuple[str, ...]) -> Floats:
        """(T, N) a score for each question and model"""

    def train_scores(self) -> Floats:
        """(T, N) scores of the train questions; subclasses may leave each question out of its own scores."""
        return self.scores(self.questions)


class PricedRouter(ABC):
    """A router with a price weight: the higher it is, the cheaper models are asked.

    Subclasses are frozen dataclasses.
    """

    prices: Floats
    """(N,) cents per 1,000 queries; NaN where unknown"""
    price_weight: float

    def hold_to_budget(self, budget: Budget) -> Self | None:
        """The router held to a budget; None if it cannot keep to it.

        For a budget in models, that is the router itself. For one in cents, it has the smallest price weight
        that keeps to the budget on train.
        """
        if budget.unit == "models":
            return self if budget.amount >= 1 else None
        weight = _cheapest_enough(self.mean_train_price, self.prices, self.decisive, budget.amount)
        return None if weight is None else replace(self, price_weight=weight)  # type: ignore[type-var]

    @abstractmethod
    def mean_train_price(self, weight: float) -> float:
        """The mean price of the models asked on train at a price weight, in cents per 1,000 queries."""

    @property
    @abstractmethod
    def decisive(self) -> float:
        """A price weight at which only the cheapest model is asked."""


@dataclass(frozen=True)
class ScoreRouter(PricedRouter):
    """Asks the model with the highest score - price_weight · price. Ties: the alphabetically first."""

    scorer: ModelScorer
    prices: Floats
    """(N,) cents per 1,000 queries; NaN where unknown."""
    price_weight: float = 0.0
    """The score that a cent per 1,000 queries is worth; at 0, prices do not count."""
    is_probability: bool = True
    """Whether a score is the probability that the model is right."""
    costs: ModelScorer | None = None
    """A scorer of the cost of each question and model, in the unit of prices; None: prices are costs."""

    def decide(self, calls: Calls) -> Answers:
        questions = questions_of(calls)
        scores = self.scorer.scores(questions)
        costs = self.prices if self.costs is None else self.costs.scores(questions)
        picked = _pick(scores, costs, self.price_weight)
        return ask(calls, picked, scores if self.is_probability else None)

    @cached_property
    def _on_train(self) -> tuple[Floats, Floats]:
        scores = self.scorer.train_scores()
        flat = np.broadcast_to(self.prices, scores.shape)
        return scores, flat if self.costs is None else self.costs.train_scores()

    @property
    def decisive(self) -> float:
        if self.costs is not None:
            return float(_DECISIVE_PRICE_WEIGHT / max(self.prices.max(), 1e-9))
        scores, _ = self._on_train
        return decisive_weight(self.prices, float(np.ptp(scores[np.isfinite(scores)])))

    def mean_train_price(self, weight: float) -> float:
        scores, costs = self._on_train
        picked = _pick(scores, costs, weight)
        return float(costs[np.arange(len(picked)), picked].mean())


def _pick(scores: Floats, costs: Floats, weight: float) -> Ints:
    """(T,) the position of the model with the highest score (T, N) minus weight · costs, (N,) or (T, N)."""
    worth = scores - weight * costs if weight else scores
    # Rounded, or the float error of a sum would break a tie.
    picked: Ints = worth.round(9).argmax(axis=1)
    return picked


def ask(calls: Calls, models: Ints, chances: Floats | None = None) -> Answers:
    """Asks one model (T,) about each document, and gives its answer.

    The answer's probability is that of the model in `chances` (T, N); 0 for a missing answer.
    """
    outputs = calls.call(models[:, None] == np.arange(len(calls.models)))
    rows = np.arange(len(calls))
    slots = outputs.predictions[rows, models]
    if chances is None:
        return Answers(slots)
    # Float error may lift a sum of weights a little above 1.
    return Answers(slots, np.where(slots >= 0, np.clip(chances[rows, models], 0.0, 1.0), 0.0))


def _cheapest_enough(
    mean_price: Callable[[float], float], prices: Floats, highest: float, amount: float
) -> float | None:
    """The smallest price weight with a mean price of at most `amount`, by bisection.

    `mean_price`: a function from a price weight to cents per 1,000 queries, which should not rise with it.
    `highest`: a weight at which only the cheapest model is asked. None if a price is unknown, or if even the
    cheapest model costs more.
    """
    if np.isnan(prices).any():
        return None
    affordable = amount * (1 + 1e-9)
    low, high = 0.0, highest
    if mean_price(low) <= affordable:
        return low
    if mean_price(high) > affordable:
        return None
    return least_enough(lambda weight: mean_price(weight) <= affordable, low, high, _BISECTION_STEPS)


def decisive_weight(prices: Floats, spread: float) -> float:
    """A price weight at which the cheapest model is always asked, if scores differ by at most `spread`."""
    gaps = np.diff(np.unique(prices[np.isfinite(prices)]))
    return float((spread + 1) / gaps.min()) if len(gaps) else 0.0


def check_prices(method: str, setting: str, value: float, train: Dataset) -> None:
    """Raises InputError, which names the `setting` that weighs prices, if a model has no price."""
    if np.isnan(train.prices).any():
        missing = train.models[int(np.isnan(train.prices).argmax())]
        raise InputError(
            f"{method}: {setting}={value:g} weighs prices, and that of {missing!r} is unknown; give its "
            f"price in the pool, or leave {setting} as it is"
        )

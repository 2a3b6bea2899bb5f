"""CARROT: every model's accuracy and cost on a question are predicted, and the best trade-off is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple, Protocol

import numpy as np
from pydantic import Field, PositiveFloat

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, Encoder, fit_encoder
from rlfocal.methods._routing import PricedRouter, ask, question_router
from rlfocal.methods._text import questions_of
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.neighbours import Neighbours, cosines, nearest, vectors_of
from rlfocal.methods.registry import MethodBase

_DECISIVE = 1e6
"""A price weight, in answers per cost of the dearest model, that leaves accuracy out."""


class Estimates(NamedTuple):
    """What is predicted of T questions."""

    accuracy: Floats
    """(T, N)"""
    cost: Floats
    """(T, N) cents per 1,000 such queries"""


class Estimator(Protocol):
    """Predicts from the question alone."""

    def estimate(self, questions: tuple[str, ...]) -> Estimates: ...

    def of_train(self) -> Estimates: ...


@dataclass(frozen=True)
class PlugInRouter(PricedRouter):
    """Asks argmin (1 - μ) · error + μ · cost. Ties: the alphabetically first."""

    estimator: Estimator
    prices: Floats
    """(N,) mean cents per 1,000 queries on train; NaN where unknown"""
    price_weight: float
    """μ / (1 - μ) per cent; at 0, costs do not count"""

    def decide(self, calls: Calls) -> Answered:
        found = self.estimator.estimate(questions_of(calls))
        return ask(calls, _pick(found, self.price_weight), found.accuracy)

    @property
    def decisive(self) -> float:
        return float(_DECISIVE / max(self.prices.max(), 1e-9))

    @cached_property
    def _of_train(self) -> Estimates:
        return self.estimator.of_train()

    def mean_train_price(self, weight: float) -> float:
        picked = _pick(self._of_train, weight)
        return float(self._of_train.cost[np.arange(len(picked)), picked].mean())


def _pick(found: Estimates, weight: float) -> Ints:
    # Rounded, or the float error of a sum would break a tie.
    picked: Ints = (found.accuracy - weight * found.cost).round(9).argmax(axis=1)
    return picked


def _router(estimator: Estimator, train: Dataset, mu: float) -> PlugInRouter:
    dearest = train.mean_costs.max()
    return PlugInRouter(estimator, train.mean_costs, mu / (1 - mu) / dearest if mu else 0.0)


Mu = Annotated[float, Field(ge=0, lt=1)]
"""The weight of cost."""
_SOURCE = "CARROT (arXiv 2502.03261)"
_DIFFERS = (
    "costs are shares of the dearest model's, and do not count unless μ or a budget in cents is given; a "
    "query without known tokens costs its model's flat price; TF-IDF instead of a sentence encoder unless "
    "one is named"
)


@question_router(
    "carrot_knn",
    "the model with the best trade-off of accuracy and cost, both predicted from similar questions",
    needs=("questions", "prices"),
    source=_SOURCE,
    differs=_DIFFERS,
    space={
        "most": Range(32, 1024, log=True),
    },
)
@checked
class CarrotKNN(MethodBase):
    """Predicts by the mean over k nearest questions: one k for the accuracies of all models, one for costs.

    k is one of 2, 4, 8, ... up to `most`: that with the highest R² on five folds of train, taken in order.
    """

    mu: Mu = 0.0
    most: Annotated[int, Field(ge=2)] = 512
    """largest k"""
    encoder: str = TFIDF
    revision = "2"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[PlugInRouter]:
        encoder = fit_encoder(self.encoder, questions_of(train))
        vectors = vectors_of(encoder, questions_of(train))
        values = Estimates(train.correct.astype(float), train.costs.astype(float))
        ks = best_ks(vectors, values, self.most)
        found = nearest(cosines(vectors, vectors), max(ks), others=True)
        return [_router(NeighbourMeans(encoder, vectors, values, ks, found), train, self.mu)]


@dataclass(frozen=True)
class NeighbourMeans:
    """Means over nearest train questions; over all of train where no word is known."""

    encoder: Encoder
    vectors: Floats
    """(n, D) of train questions"""
    values: Estimates
    """(n, N) each: whether each model was right, and its costs"""
    ks: tuple[int, ...]
    """neighbours that accuracies and costs are means over"""
    train: Neighbours
    """of train questions among one another"""

    def estimate(self, questions: tuple[str, ...]) -> Estimates:
        vectors = vectors_of(self.encoder, questions)
        return self._means(nearest(cosines(self.vectors, vectors), max(self.ks)))

    def of_train(self) -> Estimates:
        """Without itself as a neighbour."""
        return self._means(self.train)

    def _means(self, found: Neighbours) -> Estimates:
        both = []
        for values, k in zip(self.values, self.ks, strict=True):
            means = np.tile(values.mean(axis=0), (len(found.at), 1))
            if found.at.shape[1]:
                means[found.known] = _means_over(values, found.at[found.known, :k])
            both.append(means)
        return Estimates(*both)


def _means_over(values: Floats, at: Ints) -> Floats:
    """(T, N) means of values (n, N) over at (T, k)."""
    return np.stack([of_model[at].mean(axis=1) for of_model in values.T], axis=1)


def best_ks(vectors: Floats, values: Estimates, most: int) -> tuple[int, ...]:
    """For accuracies and for costs, the power of 2 up to `most` with the highest R² on five folds.

    Of train documents (n, D) in order, not shuffled; R² is averaged over models and folds. Ties: the least.
    """
    # scikit-learn takes a second to import, and listing the methods must not.
    from sklearn.metrics import r2_score
    from sklearn.model_selection import KFold

    if len(vectors) < 10:  # a fold of one document has no R²
        return 2, 2
    ks = [2**power for power in range(1, 10) if 2**power <= min(most, len(vectors) * 4 // 5)]
    quality = np.zeros((2, len(ks)))
    for learnt, held in KFold(5).split(vectors):
        at = nearest(cosines(vectors[learnt], vectors[held]), ks[-1]).at
        for part, of_models in enumerate(values):
            known, true = of_models[learnt], of_models[held]
            quality[part] += [r2_score(true, _means_over(known, at[:, :k])) for k in ks]
    accuracy, cost = quality.round(9).argmax(axis=1)
    return ks[accuracy], ks[cost]


@question_router(
    "carrot_linear",
    "the model with the best trade-off of accuracy and cost, both predicted by linear regressions",
    needs=("questions", "prices"),
    source=_SOURCE,
    differs=f"{_DIFFERS}; regressions on fixed vectors, not a fine-tuned RoBERTa",
    space={
        "penalty": Range(0.01, 100.0, log=True),
    },
)
@checked
class CarrotLinear(MethodBase):
    """Predicts accuracy by a logistic regression per model, and cost by ridge regressions."""

    mu: Mu = 0.0
    penalty: PositiveFloat = 1.0
    """on squared weights, of either regression"""
    encoder: str = TFIDF

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[PlugInRouter]:
        encoder = fit_encoder(self.encoder, questions_of(train))
        return [_router(self._estimator(encoder, train), train, self.mu)]

    def _estimator(self, encoder: Encoder, train: Dataset) -> LinearEstimates:
        # scikit-learn takes a second to import, and listing the methods must not.
        from sklearn.linear_model import LogisticRegression, Ridge

        vectors = vectors_of(encoder, questions_of(train))
        weights, bases = np.zeros((vectors.shape[1], len(train.models))), np.zeros(len(train.models))
        for model, right in enumerate(train.correct.T):
            if right.all() or not right.any():
                bases[model] = 30.0 if right.all() else -30.0
            else:
                fitted = LogisticRegression(C=1 / self.penalty, max_iter=1000).fit(vectors, right)
                weights[:, model], bases[model] = fitted.coef_[0], fitted.intercept_[0]
        costs = Ridge(self.penalty).fit(vectors, train.costs)
        of_costs = np.atleast_2d(costs.coef_).T, np.atleast_1d(costs.intercept_)
        return LinearEstimates(encoder, (weights, bases), of_costs, questions_of(train))


@dataclass(frozen=True)
class LinearEstimates:
    """A logistic regression for accuracies, a linear one for costs."""

    encoder: Encoder
    accuracies: tuple[Floats, Floats]
    """(D, N) weights and (N,) intercepts"""
    costs: tuple[Floats, Floats]
    """the same"""
    questions: tuple[str, ...]
    """train's"""

    def estimate(self, questions: tuple[str, ...]) -> Estimates:
        e = vectors_of(self.encoder, questions)
        (weights, bases), (slopes, levels) = self.accuracies, self.costs
        return Estimates(1 / (1 + np.exp(-(e @ weights + bases))), e @ slopes + levels)

    def of_train(self) -> Estimates:
        """In-sample."""
        return self.estimate(self.questions)

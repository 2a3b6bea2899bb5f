"""CARROT: every model's accuracy and cost on a question are predicted, and the best trade-off is asked."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Protocol

import numpy as np
from pydantic import Field, PositiveFloat

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, Encoder, fit_encoder
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.neighbours import Neighbours, cosines, nearest, vectors_of
from rlfocal.methods.registry import MethodBase
from rlfocal.methods.routing import PricedRouter, ask, question_router
from rlfocal.methods.text import questions_of

_DECISIVE = 1e6
"""A price weight, in answers per cost of the dearest model, that leaves accuracy out."""


class Estimate(Protocol):
    """A fitted estimator of accuracies or of costs, in cents per 1,000 queries."""

    def predict(self, e: Floats) -> Floats:
        """(T, N) of questions' vectors (T, D)"""
        ...

    def predict_train(self) -> Floats:
        """(n, N) of the train questions; held out where that is cheap."""
        ...


@dataclass(frozen=True)
class PlugInRouter(PricedRouter):
    """Asks argmin (1 - μ) · error + μ · cost. Ties: the alphabetically first."""

    encoder: Encoder
    accuracy: Estimate
    cost: Estimate
    prices: Floats
    """(N,) mean cents per 1,000 queries on train; NaN where unknown"""
    price_weight: float
    """μ / (1 - μ) per cent; at 0, costs do not count"""

    def decide(self, calls: Calls) -> Answered:
        e = vectors_of(self.encoder, questions_of(calls))
        accuracy = self.accuracy.predict(e)
        return ask(calls, _pick(accuracy, self.cost.predict(e), self.price_weight), accuracy)

    @property
    def decisive(self) -> float:
        return float(_DECISIVE / max(self.prices.max(), 1e-9))

    @cached_property
    def _of_train(self) -> tuple[Floats, Floats]:
        return self.accuracy.predict_train(), self.cost.predict_train()

    def mean_train_price(self, weight: float) -> float:
        accuracy, cost = self._of_train
        picked = _pick(accuracy, cost, weight)
        return float(cost[np.arange(len(picked)), picked].mean())


def _pick(accuracy: Floats, cost: Floats, weight: float) -> Ints:
    # Rounded, or the float error of a sum would break a tie.
    picked: Ints = (accuracy - weight * cost).round(9).argmax(axis=1)
    return picked


@dataclass(frozen=True)
class Carrot(MethodBase):
    """What both forms share; a subclass says how accuracies and costs are estimated."""

    mu: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """μ, the weight of cost"""
    encoder: str = TFIDF

    @abstractmethod
    def estimate(self, X: Floats, right: Floats, costs: Floats) -> tuple[Estimate, Estimate]:
        """From the train questions' vectors (n, D), who was right on them, and what that cost, (n, N)."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[PlugInRouter]:
        encoder = fit_encoder(self.encoder, questions_of(train))
        X = vectors_of(encoder, questions_of(train))
        accuracy, cost = self.estimate(X, train.correct.astype(float), train.costs.astype(float))
        weight = self.mu / (1 - self.mu) / train.mean_costs.max() if self.mu else 0.0
        return [PlugInRouter(encoder, accuracy, cost, train.mean_costs, weight)]


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
    space={"most": Range(32, 1024, log=True)},
)
@checked
class CarrotKNN(Carrot):
    """Predicts by the mean over k nearest questions: one k for the accuracies of all models, one for costs.

    k is one of 2, 4, 8, ... up to `most`: that with the highest R² on five folds of train, taken in order.
    """

    most: Annotated[int, Field(ge=2)] = 512
    """largest k"""
    revision = "2"

    def estimate(self, X: Floats, right: Floats, costs: Floats) -> tuple[Estimate, Estimate]:
        accuracy, cost = (
            NeighbourMeans(X, values, best_k(X, values, self.most)) for values in (right, costs)
        )
        return accuracy, cost


@dataclass(frozen=True)
class NeighbourMeans:
    """Means over the k nearest train questions; over all of train where no word is known."""

    vectors: Floats
    """(n, D) of train questions"""
    values: Floats
    """(n, N)"""
    k: int

    def predict(self, e: Floats) -> Floats:
        return self._means(nearest(cosines(self.vectors, e), self.k))

    def predict_train(self) -> Floats:
        """Without itself as a neighbour."""
        return self._means(nearest(cosines(self.vectors, self.vectors), self.k, others=True))

    def _means(self, found: Neighbours) -> Floats:
        means = np.tile(self.values.mean(axis=0), (len(found.at), 1))
        if found.at.shape[1]:
            means[found.known] = _means_over(self.values, found.at[found.known])
        return means


def _means_over(values: Floats, at: Ints) -> Floats:
    """(T, N) means of values (n, N) over at (T, k)."""
    return np.stack([of_model[at].mean(axis=1) for of_model in values.T], axis=1)


def best_k(X: Floats, values: Floats, most: int) -> int:
    """The power of 2 up to `most` with the highest R² of values (n, N) on five folds.

    Of train documents (n, D) in order, not shuffled; R² is averaged over models and folds. Ties: the least.
    """
    # scikit-learn takes a second to import, and listing the methods must not.
    from sklearn.metrics import r2_score
    from sklearn.model_selection import KFold

    if len(X) < 10:  # a fold of one document has no R²
        return 2
    ks = [2**power for power in range(1, 10) if 2**power <= min(most, len(X) * 4 // 5)]
    quality = np.zeros(len(ks))
    for learnt, held in KFold(5).split(X):
        at = nearest(cosines(X[learnt], X[held]), ks[-1]).at
        quality += [r2_score(values[held], _means_over(values[learnt], at[:, :k])) for k in ks]
    best: int = ks[int(quality.round(9).argmax())]
    return best


@question_router(
    "carrot_linear",
    "the model with the best trade-off of accuracy and cost, both predicted by linear regressions",
    needs=("questions", "prices"),
    source=_SOURCE,
    differs=f"{_DIFFERS}; regressions on fixed vectors, not a fine-tuned RoBERTa",
    space={"penalty": Range(0.01, 100.0, log=True)},
)
@checked
class CarrotLinear(Carrot):
    """Predicts accuracy by a logistic regression per model, and cost by ridge regressions."""

    penalty: PositiveFloat = 1.0
    """on squared weights, of either regression"""

    def estimate(self, X: Floats, right: Floats, costs: Floats) -> tuple[Estimate, Estimate]:
        # scikit-learn takes a second to import, and listing the methods must not.
        from sklearn.linear_model import LogisticRegression, Ridge

        weights, bases = np.zeros((X.shape[1], right.shape[1])), np.zeros(right.shape[1])
        for model, of_model in enumerate(right.T):
            if len(np.unique(of_model)) < 2:
                bases[model] = 30.0 if of_model.all() else -30.0
            else:
                fitted = LogisticRegression(C=1 / self.penalty, max_iter=1000).fit(X, of_model > 0)
                weights[:, model], bases[model] = fitted.coef_[0], fitted.intercept_[0]
        ridge = Ridge(self.penalty).fit(X, costs)
        slopes, levels = np.atleast_2d(ridge.coef_).T, np.atleast_1d(ridge.intercept_)
        return Linear(X, weights, bases, is_logistic=True), Linear(X, slopes, levels)


@dataclass(frozen=True)
class Linear:
    """A linear function, or the logistic function of one."""

    vectors: Floats
    """(n, D) of train questions"""
    weights: Floats
    """(D, N)"""
    bases: Floats
    """(N,)"""
    is_logistic: bool = False

    def predict(self, e: Floats) -> Floats:
        values: Floats = e @ self.weights + self.bases
        return 1 / (1 + np.exp(-values)) if self.is_logistic else values

    def predict_train(self) -> Floats:
        """In-sample."""
        return self.predict(self.vectors)

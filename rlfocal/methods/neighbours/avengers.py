"""Avengers: models ranked within clusters of questions; and Avengers-Pro, its cost-aware form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import PositiveInt

from rlfocal.base.arrays import Floats
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF
from rlfocal.methods._routing import PricedRouter, ask, question_router
from rlfocal.methods._text import questions_of
from rlfocal.methods.checking import Range, Share, checked
from rlfocal.methods.neighbours._clusters import Clusters, fit_clusters
from rlfocal.methods.registry import MethodBase

BETA = 9.0
"""How fast a cluster's weight falls with its distance from the question."""


@question_router(
    "avengers",
    "the model that ranks first in the question's cluster, of 30",
    has_budgets=False,
    source="LLMRouterBench (arXiv 2601.07206), after The Avengers (arXiv 2505.19797)",
    differs="TF-IDF instead of a sentence encoder unless one is named; one answer instead of a vote of "
    "samples",
    space={"clusters": Range(2, 100, log=True), "nearest": Range(1, 10)},
)
@checked
class Avengers(MethodBase):
    """Asks argmax_m Σ_j p_j / (rank_jm + 1) over the `nearest` clusters j nearest to the question.

    rank_jm counts from 0 the models with a higher mean correctness in cluster j (ties: the alphabetically
    first leads), and p is the softmax of 9 e(x) · c_j, the inner product with the clusters' centres.
    """

    clusters: PositiveInt = 30
    nearest: PositiveInt = 1
    encoder: str = TFIDF
    revision = "2"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[RankedRouter]:
        return [RankedRouter(fit_clusters(train, self.encoder, self.clusters), self.nearest)]


@dataclass(frozen=True)
class RankedRouter:
    """Asks the model that ranks highest in the nearest clusters."""

    clusters: Clusters
    nearest: int

    def decide(self, calls: Calls) -> Answered:
        questions = questions_of(calls)
        picked = self.scores(questions).round(9).argmax(axis=1)
        return ask(calls, picked, self._mix(questions, self.clusters.means))

    def scores(self, questions: tuple[str, ...]) -> Floats:
        """(T, N)"""
        return self._mix(questions, by_rank(self.clusters.means))

    def _mix(self, questions: tuple[str, ...], values: Floats) -> Floats:
        """(T, N) mean of clusters' values (K + 1, N) over the nearest, with softmax weights by similarity."""
        near = self.clusters.near(questions, self.nearest, by_product=True)
        weights = np.exp(BETA * (near.similarity - near.similarity.max(axis=1, initial=-1.0, keepdims=True)))
        weights /= weights.sum(axis=1, keepdims=True)
        return np.asarray(np.einsum("tk,tkn->tn", weights, values[near.at]))


@question_router(
    "avengers_pro",
    "the model that ranks first in the question's 4 nearest clusters, of 60, by accuracy and cheapness",
    needs=("questions", "prices"),
    source="Avengers-Pro (arXiv 2508.12631) as in LLMRouterBench",
    differs="TF-IDF instead of a sentence encoder unless one is named; a model's flat price, not its "
    "cost in the cluster",
    space={"clusters": Range(2, 100, log=True), "nearest": Range(1, 10)},
)
@checked
class AvengersPro(MethodBase):
    """Asks argmax_m Σ_j p_j / (rank_jm + 1) over the nearest clusters j, as `Avengers` does.

    Models rank by α · accuracy + (1 - α) · cheapness: accuracy min-max scaled over the models of a cluster,
    cheapness 1 - price / the highest price; a model of unknown price counts as the dearest.
    """

    alpha: Share = 0.7
    """α, the weight of accuracy."""
    clusters: PositiveInt = 60
    nearest: PositiveInt = 4
    encoder: str = TFIDF
    revision = "2"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[MixedRouter]:
        found = fit_clusters(train, self.encoder, self.clusters)
        return [MixedRouter(found, self.nearest, train.prices, questions_of(train), 1 - self.alpha)]


@dataclass(frozen=True)
class MixedRouter(RankedRouter, PricedRouter):
    """Asks the model with the best mix of accuracy and cheapness."""

    prices: Floats
    """(N,) cents per 1,000 queries; NaN where unknown"""
    questions: tuple[str, ...]
    """train's"""
    price_weight: float
    """1 - α"""
    decisive = 1.0

    def scores(self, questions: tuple[str, ...]) -> Floats:
        return self._scores(questions, self.price_weight)

    def mean_train_price(self, weight: float) -> float:
        picked = self._scores(self.questions, weight).round(9).argmax(axis=1)
        return float(self.prices[picked].mean())

    def _scores(self, questions: tuple[str, ...], weight: float) -> Floats:
        known = np.where(np.isnan(self.prices), np.nanmax(self.prices), self.prices)
        cheapness = 1 - known / max(known.max(), np.finfo(np.float64).tiny)
        mixed = by_rank((1 - weight) * scale_rows(self.clusters.means) + weight * cheapness)
        return self._mix(questions, mixed)


def by_rank(values: Floats) -> Floats:
    """(K, N) 1 / (rank + 1) within each row, the highest value ranking 0; ties: the first leads."""
    order = np.argsort(-values.round(9), axis=1, kind="stable")
    return np.asarray(1 / (np.argsort(order, axis=1, kind="stable") + 1))


def scale_rows(values: Floats) -> Floats:
    """(K, N) min-max scaled per row; 0 where all are equal."""
    low, high = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    return np.asarray((values - low) / np.where(high > low, high - low, 1.0))

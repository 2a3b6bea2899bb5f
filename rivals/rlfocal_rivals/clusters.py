"""Routers by clusters of train questions: a model scores by its accuracy in the clusters nearest to a
question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
from pydantic import PositiveFloat, PositiveInt
from threadpoolctl import threadpool_limits

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, Encoder, fit_encoder, questions_of, scale_to_unit
from rlfocal.methods.checking import Range, Share, checked
from rlfocal.methods.knn import cosines, find_nearest, vectors_of
from rlfocal.methods.registry import MethodBase
from rlfocal.methods.routing import PricedRouter, ask, check_prices, question_router
from rlfocal_rivals.question import Descent, Predict, QuestionRouter, descend, to_numpy

if TYPE_CHECKING:
    from torch import Tensor

DISTANCE_DECAY = 9.0
"""The factor on similarity in the softmax that weighs clusters; a higher factor favours the nearest ones."""


class NearClusters(NamedTuple):
    """The clusters nearest to each of T questions."""

    positions: Ints
    """(T, k) the positions of the clusters, the nearest first; -1 where the encoder knows no word of the
    question."""
    similarity: Floats
    """(T, k) the cosine or inner product of the question's vector, of length 1, with the clusters' centres"""


@dataclass(frozen=True)
class Clusters:
    """K-means clusters of train questions, and each model's accuracy in each."""

    centres: Floats
    """(K, D) the centre of each cluster"""
    sizes: Floats
    """(K + 1,) the number of train questions in each cluster; the last entry counts all of them"""
    means: Floats
    """(K + 1, N) each model's accuracy in each cluster; the last row is its accuracy on all of train"""

    def find_nearest(self, e: Floats, k: int = 1, *, by_product: bool = False) -> NearClusters:
        """The k clusters nearest to each of the questions' vectors `e` (T, D), by cosine.

        `by_product`: by the inner product with the unscaled centres, which favours tight clusters.
        """
        neighbours = find_nearest((products if by_product else cosines)(self.centres, e), k)
        return NearClusters(
            np.where(neighbours.is_similar[:, None], neighbours.positions, -1), neighbours.similarity
        )

    def nearest_means(self, e: Floats) -> Floats:
        """(T, N) each model's accuracy in the cluster nearest to each vector of `e` (T, D)"""
        return self.means[self.find_nearest(e).positions[:, 0]]


def fit_clusters(X: Floats, right: Floats, k: int) -> Clusters:
    """At most k clusters of the questions' vectors X (n, D), and at most one per distinct vector.

    K-means makes them with a fixed seed and ten starts. It runs on one thread, so that its sums are the same
    on every machine. `right` (n, N): which models were right.
    """
    # scikit-learn takes a second to import, and listing the methods must not.
    from sklearn.cluster import KMeans

    different = len(np.unique(X.round(9), axis=0))
    with threadpool_limits(1):
        fitted = KMeans(min(k, different), n_init=10, random_state=0).fit(X)
    belongs = (fitted.labels_ == np.arange(len(fitted.cluster_centers_))[:, None]).astype(float)
    belongs = np.vstack([belongs, np.ones(len(X))])
    sizes = belongs.sum(axis=1)
    return Clusters(fitted.cluster_centers_, sizes, belongs @ right / sizes[:, None])


def products(centres: Floats, e: Floats) -> Iterator[tuple[slice, Floats]]:
    """Yields inner products of vectors `e` (T, D), scaled to length 1, with the unscaled centres (K, D)."""
    yield slice(0, len(e)), (scale_to_unit(e) @ centres.T).round(9)


# ---- Avengers: models ranked within clusters; and Avengers-Pro, its cost-aware form


@question_router(
    "avengers",
    "the model that ranks first in the question's cluster, of 30",
    has_budgets=False,
    source="LLMRouterBench (arXiv 2601.07206), after The Avengers (arXiv 2505.19797)",
    differs="TF-IDF instead of a sentence encoder unless one is named; one answer instead of a vote of "
    "samples",
)
@checked
class Avengers(MethodBase):
    """Asks argmax_m Σ_j p_j / (rank_jm + 1) over the `nearest` clusters j of the question.

    rank_jm is the number of models with a higher accuracy in cluster j (ties: the alphabetically first
    leads). p is the softmax of 9 e(x) · c_j, the inner products with the clusters' centres.
    """

    clusters: Annotated[PositiveInt, Range(2, 100, log=True)] = 30
    nearest: Annotated[PositiveInt, Range(1, 10)] = 1
    encoder: str = TFIDF
    revision = "2"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[RankedRouter]:
        questions = questions_of(train)
        encoder = fit_encoder(self.encoder, questions)
        clusters = fit_clusters(vectors_of(encoder, questions), train.correct.astype(float), self.clusters)
        return [self.route(RankedRouter(encoder, clusters, self.nearest), train)]

    def route(self, ranked: RankedRouter, train: Dataset) -> RankedRouter:
        return ranked


@dataclass(frozen=True)
class RankedRouter:
    """Asks the model that ranks highest in the nearest clusters."""

    encoder: Encoder
    clusters: Clusters
    nearest: int

    def decide(self, calls: Calls) -> Answers:
        questions = questions_of(calls)
        picked = self.scores(questions).round(9).argmax(axis=1)
        return ask(calls, picked, self.mix(questions, self.clusters.means))

    def scores(self, questions: tuple[str, ...]) -> Floats:
        """(T, N) each model's score: the weighted mean of its reciprocal ranks in the nearest clusters."""
        return self.mix(questions, reciprocal_ranks(self.clusters.means))

    def mix(self, questions: tuple[str, ...], values: Floats) -> Floats:
        """(T, N) the mean of clusters' `values` (K + 1, N) over the clusters nearest to each question. The
        weights are a softmax of similarities."""
        near = self.clusters.find_nearest(vectors_of(self.encoder, questions), self.nearest, by_product=True)
        weights = np.exp(
            DISTANCE_DECAY * (near.similarity - near.similarity.max(axis=1, initial=-1.0, keepdims=True))
        )
        weights /= weights.sum(axis=1, keepdims=True)
        return np.asarray(np.einsum("tk,tkn->tn", weights, values[near.positions]))


@question_router(
    "avengers_pro",
    "the model that ranks first in the question's 4 nearest clusters, of 60, by accuracy and cheapness",
    needs=("questions", "prices"),
    source="Avengers-Pro (arXiv 2508.12631) as in LLMRouterBench",
    differs="TF-IDF instead of a sentence encoder unless one is named; a model's flat price, not its "
    "cost in the cluster",
)
@checked
class AvengersPro(Avengers):
    """Asks argmax_m Σ_j p_j / (rank_jm + 1) over the nearest clusters j, as `Avengers` does.

    Models rank by α · accuracy + (1 - α) · cheapness. Accuracy is min-max scaled over the models of a
    cluster. Cheapness is 1 - price / the highest price; a model of unknown price counts as the dearest.
    """

    alpha: Share = 0.7
    """α, the weight of accuracy."""
    clusters: Annotated[PositiveInt, Range(2, 100, log=True)] = 60
    nearest: Annotated[PositiveInt, Range(1, 10)] = 4

    def route(self, ranked: RankedRouter, train: Dataset) -> MixedRouter:
        given = train.prices, questions_of(train), 1 - self.alpha
        return MixedRouter(ranked.encoder, ranked.clusters, ranked.nearest, *given)


@dataclass(frozen=True)
class MixedRouter(RankedRouter, PricedRouter):
    """Asks the model with the best mix of accuracy and cheapness."""

    prices: Floats
    """(N,) cents per 1,000 queries; NaN where unknown"""
    questions: tuple[str, ...]
    """The train questions."""
    price_weight: float
    """1 - α, the weight of cheapness"""
    decisive = 1.0

    def scores(self, questions: tuple[str, ...]) -> Floats:
        return self._scores(questions, self.price_weight)

    def mean_train_price(self, weight: float) -> float:
        picked = self._scores(self.questions, weight).round(9).argmax(axis=1)
        return float(self.prices[picked].mean())

    def _scores(self, questions: tuple[str, ...], weight: float) -> Floats:
        prices = np.where(np.isnan(self.prices), np.nanmax(self.prices), self.prices)
        cheapness = 1 - prices / max(prices.max(), np.finfo(np.float64).tiny)
        mixed = reciprocal_ranks((1 - weight) * scale_rows(self.clusters.means) + weight * cheapness)
        return self.mix(questions, mixed)


def reciprocal_ranks(values: Floats) -> Floats:
    """(K, N) 1 / (rank + 1) within each row; the highest value has rank 0. Ties: the first column leads."""
    order = np.argsort(-values.round(9), axis=1, kind="stable")
    return np.asarray(1 / (np.argsort(order, axis=1, kind="stable") + 1))


def scale_rows(values: Floats) -> Floats:
    """(K, N) the values, min-max scaled in each row; 0 where all of a row are equal."""
    low, high = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    return np.asarray((values - low) / np.where(high > low, high - low, 1.0))


# ---- clusters as an estimator


@dataclass(frozen=True)
class PricedEstimator(QuestionRouter):
    """A router by estimated accuracies, from which weighted prices are subtracted."""

    price_weight: float = 0.0
    """λ: the accuracy that a cent per 1,000 queries is worth."""

    def weigh_price(self, train: Dataset) -> float:
        if self.price_weight:
            check_prices(self.registered_name, "price_weight", self.price_weight, train)
        return self.price_weight


@question_router(
    "hier_shrink",
    "the model with the best mean in the question's clusters, of 20 and of 100, shrunk to its train mean",
    source="ours: means shrunk as in empirical Bayes (James and Stein, 1961), at two levels of clusters",
)
@checked
class HierShrink(PricedEstimator):
    """Asks argmax_m b2_m - λ · price_m.

    b1 = (n20 · m20 + s · ȳ) / (n20 + s) and b2 = (n100 · m100 + s · b1) / (n100 + s). Questions are clustered
    into 20 clusters and into 100. n is the size of the question's cluster and m the model's accuracy in it. ȳ
    is the model's accuracy on all of train, and s = 24.
    """

    coarse: Annotated[PositiveInt, Range(2, 50, log=True)] = 20
    fine: Annotated[PositiveInt, Range(20, 300, log=True)] = 100
    strength: Annotated[PositiveFloat, Range(1.0, 200.0, log=True)] = 24.0
    """s: the estimate of the coarser level weighs as much as so many documents."""

    def learn(self, X: Floats, right: Floats, seed: int) -> Predict:
        levels = [fit_clusters(X, right, k) for k in (self.coarse, self.fine)]
        return lambda e: shrunk_means(levels, self.strength, e)


def shrunk_means(levels: Sequence[Clusters], strength: float, e: Floats) -> Floats:
    """(T, N) `HierShrink`'s b2 of each model, from coarse and fine clusters and questions' vectors (T, D)."""
    shrunk = np.broadcast_to(levels[0].means[-1], (len(e), levels[0].means.shape[1]))
    for level in levels:
        cluster = level.find_nearest(e).positions[:, 0]
        n = level.sizes[cluster][:, None]
        shrunk = (n * level.means[cluster] + strength * shrunk) / (n + strength)
    return shrunk


_SHARPNESS = 10.0
"""The initial factor on squared distances to centres in the softmax that assigns questions to clusters."""


@question_router(
    "uniroute",
    "the model with the fewest errors in the question's clusters, to which a learned map assigns it",
    source="UniRoute (arXiv 2502.08773), learned cluster map; with map=kmeans its K-means form",
    differs="TF-IDF instead of a sentence encoder unless one is named; clusters, error rates and the "
    "map are all of train; the map starts from the distances to the centres; K is a setting",
)
@checked
class UniRoute(Descent, PricedEstimator):
    """Asks argmin_m Φ(x) · Ψ_m + λ · price_m; Ψ_m (K,) are model m's error rates on K-means clusters of
    train.

    Φ(x) is softmax(A e(x) + a), trained by the cross-entropy of 1 - Φ(x) · Ψ_m with whether m is right. With
    map=kmeans it is 1 at the nearest cluster, else 0. A new model needs no training, only its Ψ.
    """

    clusters: Annotated[PositiveInt, Range(5, 100, log=True)] = 30
    """K, the number of clusters"""
    map: Literal["learned", "kmeans"] = "learned"
    rate: Annotated[float, Range(1e-3, 0.1, log=True)] = 1e-2
    decay: Annotated[float, Range(1e-6, 1e-2, log=True)] = 1e-4

    @property
    def seeded(self) -> bool:
        return self.map == "learned"

    def learn(self, X: Floats, right: Floats, seed: int) -> Predict:
        clusters = fit_clusters(X, right, self.clusters)
        if self.map == "kmeans":
            return clusters.nearest_means
        # torch takes seconds to import, and listing the methods must not.
        import torch
        from torch.nn.functional import binary_cross_entropy

        parts = (X, right, clusters.means[:-1], clusters.centres)
        e, c, means, centres = (torch.tensor(part, dtype=torch.float32) for part in parts)
        A = (_SHARPNESS * centres.T).contiguous().requires_grad_()
        a = (-_SHARPNESS / 2 * (centres**2).sum(dim=1)).requires_grad_()

        def loss(rows: Tensor) -> Tensor:
            chances = (e[rows] @ A + a).softmax(dim=1) @ means
            return binary_cross_entropy(chances.clamp(1e-6, 1 - 1e-6), c[rows])

        descend(self, [A, a], loss, len(c), torch.Generator().manual_seed(seed))
        weights, offset = to_numpy(A, a)
        return lambda e: mapped_means(clusters, e @ weights + offset)


def mapped_means(clusters: Clusters, logits: Floats) -> Floats:
    """(T, N) each model's mean accuracy over clusters, weighted by the softmax of `logits` (T, K)."""
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    means: Floats = shares / shares.sum(axis=1, keepdims=True) @ clusters.means[:-1]
    return means

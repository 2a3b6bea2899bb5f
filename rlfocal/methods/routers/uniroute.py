"""UniRoute: a model is the vector of its error rates on clusters of questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from rlfocal.base.arrays import Floats
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF
from rlfocal.methods._routing import Scorer, ScoreRouter, check_prices, question_router
from rlfocal.methods._text import questions_of
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.neighbours import vectors_of
from rlfocal.methods.neighbours._clusters import Clusters, fit_clusters
from rlfocal.methods.registry import MethodBase
from rlfocal.methods.routers._towers import Learning, learn, to_numpy

_SHARPNESS = 10.0
"""How strongly a map begins by following the distances to the clusters' centres."""


@question_router(
    "uniroute",
    "the model with the fewest errors in the question's clusters, to which a learned map assigns it",
    source="UniRoute (arXiv 2502.08773), learned cluster map; with map=kmeans its K-means form",
    differs="TF-IDF instead of a sentence encoder unless one is named; clusters, error rates and the "
    "map are all of train; the map starts from the distances to the centres; K is a setting",
    space={
        "clusters": Range(5, 100, log=True),
        "epochs": Range(3, 30, log=True),
        "rate": Range(1e-3, 0.1, log=True),
        "decay": Range(1e-6, 1e-2, log=True),
    },
)
@checked
class UniRoute(MethodBase):
    """Asks argmin_m Φ(x) · Ψ_m + λ · price_m, Ψ_m (K,) model m's error rates on K-means clusters of train.

    Φ(x) is softmax(A e(x) + a), learnt by cross-entropy of 1 - Φ(x) · Ψ_m to who was right, or, with
    map=kmeans, 1 at the nearest cluster. A model is added by its Ψ alone.
    """

    clusters: PositiveInt = 30
    """K"""
    map: Literal["learned", "kmeans"] = "learned"
    price_weight: float = 0.0
    """λ: how many errors a cent per 1,000 queries is worth"""
    epochs: int = 10
    batch: int = 128
    """documents per step"""
    rate: float = 1e-2
    decay: float = 1e-4
    encoder: str = TFIDF

    @property
    def seeded(self) -> bool:
        return self.map == "learned"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ScoreRouter]:
        if self.price_weight:
            check_prices("uniroute", "price_weight", self.price_weight, train)
        clusters, questions = fit_clusters(train, self.encoder, self.clusters), questions_of(train)
        if self.map == "kmeans":
            return [ScoreRouter(NearestCluster(clusters, questions), train.prices, self.price_weight)]
        return [
            ScoreRouter(self._fit_map(train, clusters, seed), train.prices, self.price_weight)
            for seed in seeds
        ]

    def _fit_map(self, train: Dataset, clusters: Clusters, seed: int) -> MappedClusters:
        # torch takes seconds to import, and listing the methods must not.
        import torch
        from torch.nn.functional import binary_cross_entropy

        e = torch.tensor(vectors_of(clusters.encoder, questions_of(train)), dtype=torch.float32)
        c = torch.tensor(train.correct, dtype=torch.float32)
        right = torch.tensor(clusters.means[:-1], dtype=torch.float32)
        centres = torch.tensor(clusters.centres, dtype=torch.float32)
        A = (_SHARPNESS * centres.T).contiguous().requires_grad_()
        a = (-_SHARPNESS / 2 * (centres**2).sum(dim=1)).requires_grad_()

        def loss(batch: torch.Tensor) -> torch.Tensor:
            chances = (e[batch] @ A + a).softmax(dim=1) @ right
            return binary_cross_entropy(chances.clamp(1e-6, 1 - 1e-6), c[batch])

        learning = Learning(self.epochs, self.batch, self.rate, self.decay)
        learn([A, a], loss, len(c), learning, torch.Generator().manual_seed(seed))
        weights, offset = to_numpy(A, a)
        return MappedClusters(clusters, weights, offset, questions_of(train))


@dataclass(frozen=True)
class NearestCluster(Scorer):
    """1 - a model's error rate in the nearest cluster; over all of train where no word is known."""

    clusters: Clusters
    questions: tuple[str, ...]

    def scores(self, questions: tuple[str, ...]) -> Floats:
        return self.clusters.means[self.clusters.near(questions).at[:, 0]]


@dataclass(frozen=True)
class MappedClusters(Scorer):
    """1 - Φ(x) · Ψ_m."""

    clusters: Clusters
    weights: Floats
    """(D, K) A"""
    offset: Floats
    """(K,) a"""
    questions: tuple[str, ...]

    def scores(self, questions: tuple[str, ...]) -> Floats:
        logits = vectors_of(self.clusters.encoder, questions) @ self.weights + self.offset
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        found: Floats = shares / shares.sum(axis=1, keepdims=True) @ self.clusters.means[:-1]
        return found

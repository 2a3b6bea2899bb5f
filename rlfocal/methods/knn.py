"""k nearest questions: each model's score is how often it was right on them; and the same with a guard."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import PositiveInt

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, Encoder, fit_encoder
from rlfocal.methods.checking import Range, Worth, checked
from rlfocal.methods.neighbours import cosines, local_mean, nearest, vectors_of, without_itself
from rlfocal.methods.registry import MethodBase
from rlfocal.methods.routing import (
    PricedRouter,
    Scorer,
    ScoreRouter,
    ask,
    check_prices,
    decisive_weight,
    question_router,
)
from rlfocal.methods.text import questions_of


@question_router(
    "knn",
    "the model that was most often right on the 50 most similar train questions",
    source="RouterBench's k-NN router (arXiv 2403.12031); arXiv 2505.12601",
    differs="TF-IDF instead of a sentence encoder unless one is named; prices do not count unless a "
    "willingness to pay or a budget in cents is given",
    with_task="fitted per task",
)
@checked
class KNN(MethodBase):
    """Asks argmax_m W · score_m - price_m, score_m the mean correctness of m on the k nearest questions.

    A question without a word that the encoder knows gets each model's mean over train.
    """

    k: Annotated[PositiveInt, Range(3, 200, log=True)] = 50
    encoder: str = TFIDF
    willingness: Worth = math.inf
    """W"""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ScoreRouter]:
        weight = 1 / self.willingness
        if weight:
            check_prices("knn", "willingness", self.willingness, train)
        questions = questions_of(train)
        encoder = fit_encoder(self.encoder, questions)
        scorer = NeighbourScores(encoder, vectors_of(encoder, questions), train.correct.astype(float), self.k)
        return [ScoreRouter(scorer, train.prices, weight)]


@dataclass(frozen=True)
class NeighbourScores(Scorer):
    """Means over the k nearest train questions by cosine; over all of train where no word is known."""

    encoder: Encoder
    vectors: Floats
    """(n, D) of the train questions"""
    values: Floats
    """(n, N) of the models there, such as whether each was right"""
    k: int

    def scores(self, questions: tuple[str, ...]) -> Floats:
        neighbours = nearest(cosines(self.vectors, vectors_of(self.encoder, questions)), self.k)
        return local_mean(neighbours, self.values, self.k)

    def train_scores(self) -> Floats:
        """Each document's scores without itself as a neighbour."""
        neighbours = nearest(cosines(self.vectors, self.vectors), self.k, others=True)
        return local_mean(neighbours, self.values, self.k)


@question_router(
    "guarded_knn",
    "the best model on train, or one that was reliably better on similar questions",
    source="ours, a k-NN router (arXiv 2403.12031) that leaves the best single model on evidence alone",
    differs="at a budget in cents, the fallback and the paired differences are net of a price weight",
)
@checked
class GuardedKNN(MethodBase):
    """Leaves the fallback only if another model's mean paired difference exceeds z · its standard error.

    The neighbours: train questions more similar than `closeness` times the k-th's similarity, weighted by
    similarity. z is doubled for models that are known to be dearer than the fallback.
    """

    k: Annotated[PositiveInt, Range(3, 200, log=True)] = 50
    closeness: Annotated[float, Range(0.5, 1.0)] = 0.95
    z: Annotated[float, Range(0.0, 3.0)] = 0.5
    encoder: str = TFIDF

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[GuardedRouter]:
        questions = questions_of(train)
        encoder = fit_encoder(self.encoder, questions)
        right = train.correct.astype(float)
        return [GuardedRouter(self, encoder, vectors_of(encoder, questions), right, train.prices)]


class Paired(NamedTuple):
    """How models compare with the fallback on each document's neighbours."""

    level: Floats
    """(T, N) weighted mean correctness; over all of train where a document has no neighbour."""
    gain: Floats
    """(T, N) weighted mean of c_m - c_fallback"""
    error: Floats
    """(T, N) its standard error; inf where there is no neighbour"""


@dataclass(frozen=True)
class GuardedRouter(PricedRouter):
    """Asks the fallback, or of the models that pass the guard the one with the largest lead."""

    settings: GuardedKNN
    encoder: Encoder
    vectors: Floats
    """(n, D) of the train questions"""
    right: Floats
    """(n, N) whether each model was right on them"""
    prices: Floats
    """(N,)"""
    price_weight: float = 0.0
    """How much accuracy a cent per 1,000 queries is worth."""

    def decide(self, calls: Calls) -> Answered:
        fallback = self._fallback(self.price_weight)
        similarities = cosines(self.vectors, vectors_of(self.encoder, questions_of(calls)))
        paired = self._paired(similarities, fallback)
        return ask(calls, self._pick(paired, fallback, self.price_weight), paired.level)

    @property
    def decisive(self) -> float:
        return decisive_weight(self.prices, 2.0)

    def _fallback(self, weight: float) -> int:
        means = self.right.mean(axis=0)
        return int((means - weight * self.prices if weight else means).round(9).argmax())

    def _pick(self, paired: Paired, fallback: int, weight: float) -> Ints:
        """(T,)"""
        dearer = self.prices > self.prices[fallback]
        guard = np.where(dearer, 2.0, 1.0) * self.settings.z
        lead = paired.gain - weight * (self.prices - self.prices[fallback]) if weight else paired.gain
        # Where the error is 0, as the fallback's own is with neighbours, any positive lead passes.
        passes = lead > np.where(paired.error > 0, guard, 0.0) * np.maximum(paired.error, 1e-12)
        best = np.where(passes, lead.round(9), -np.inf).argmax(axis=1)
        return np.where(passes.any(axis=1), best, fallback)

    def _paired(self, similarities: Iterator[tuple[slice, Floats]], fallback: int) -> Paired:
        parts = [self._paired_block(part, fallback) for _, part in similarities]
        if not parts:
            none = np.empty((0, self.right.shape[1]))
            return Paired(none, none, none)
        return Paired(*(np.concatenate([part[i] for part in parts]) for i in range(3)))

    def _paired_block(self, similarity: Floats, fallback: int) -> Paired:
        n = similarity.shape[1]
        k = min(self.settings.k, n)
        kth = np.partition(similarity, n - k, axis=1)[:, n - k, None]
        is_near = (similarity > 0) & (similarity > self.settings.closeness * kth)
        weights = np.where(is_near, similarity, 0.0)
        total = weights.sum(axis=1, keepdims=True)
        has_near = total > 0
        shares = weights / np.where(has_near, total, 1.0)
        level = shares @ self.right
        gain = level - level[:, fallback, None]
        both = shares @ (self.right * self.right[:, fallback, None])
        # c is 0 or 1, so that (c - c')² = c + c' - 2cc'.
        variance = level + level[:, fallback, None] - 2 * both - gain**2
        error = np.sqrt(np.maximum(variance, 0.0).round(12) * (shares**2).sum(axis=1, keepdims=True))
        return Paired(
            np.where(has_near, level, self.right.mean(axis=0)),
            gain,
            np.where(has_near, error, np.inf),
        )

    def mean_train_price(self, weight: float) -> float:
        fallback = self._fallback(weight)
        if fallback not in self._pairs_on_train:
            others = without_itself(cosines(self.vectors, self.vectors))
            self._pairs_on_train[fallback] = self._paired(others, fallback)
        return float(self.prices[self._pick(self._pairs_on_train[fallback], fallback, weight)].mean())

    @cached_property
    def _pairs_on_train(self) -> dict[int, Paired]:
        """Comparisons on train by fallback, where no document is its own neighbour."""
        return {}

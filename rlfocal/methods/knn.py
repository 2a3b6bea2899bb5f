"""Routing by the k nearest train documents: a model's score is its accuracy on them.

Neighbours are found by the documents' questions, by the models' outputs so far, or by both.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, NamedTuple, cast

import numpy as np
from pydantic import PositiveInt

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import unknown_name
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, Encoder, fit_encoder, questions_of, scale_to_unit
from rlfocal.methods.checking import Range, Worth, checked
from rlfocal.methods.registry import MethodBase
from rlfocal.methods.routing import (
    ModelScorer,
    PricedRouter,
    ScoreRouter,
    ask,
    check_prices,
    decisive_weight,
    question_router,
)

_BLOCK_DOCUMENTS = 1024


class Neighbours(NamedTuple):
    """The train documents most similar to each of T documents."""

    positions: Ints
    """(T, k) positions of the neighbours, the most similar first; ties: the earlier one."""
    similarity: Floats
    """(T, k) the neighbours' similarities"""

    @property
    def is_similar(self) -> Bools:
        """(T,) whether any neighbour has a similarity above 0.

        With cosines, none has if the encoder knows no word of the question.
        """
        return np.asarray((self.similarity > 0).any(axis=1))


def vectors_of(encoder: Encoder, questions: tuple[str, ...]) -> Floats:
    """(T, D) read-only vectors of questions, cached because many methods encode the same questions."""
    return _encode(cast(Hashable, encoder), questions)


@lru_cache(maxsize=6)
def _encode(encoder: Hashable, questions: tuple[str, ...]) -> Floats:
    vectors = cast(Encoder, encoder).encode(questions)
    vectors.flags.writeable = False
    return vectors


def cosines(train: Floats, vectors: Floats, block: int = _BLOCK_DOCUMENTS) -> Iterator[tuple[slice, Floats]]:
    """Yields, for each block of the vectors (T, D), its rows and their cosines (rows, n) to `train` (n, D).

    A cosine is 0 where either vector is 0. It is rounded, so that equal vectors tie whatever the block size.
    """
    units = scale_to_unit(train).T
    for start in range(0, len(vectors), block):
        rows = slice(start, min(start + block, len(vectors)))
        yield rows, (scale_to_unit(vectors[rows]) @ units).round(9)


def closeness(
    train: Floats, vectors: Floats, block: int = _BLOCK_DOCUMENTS
) -> Iterator[tuple[slice, Floats]]:
    """Yields, for each block of the vectors (T, D), its rows and their similarities (rows, n) to `train`.

    A similarity is 1 / (1 + Euclidean distance), for vectors whose lengths carry meaning.
    """
    squares = (train**2).sum(axis=1)
    for start in range(0, len(vectors), block):
        rows = slice(start, min(start + block, len(vectors)))
        part = vectors[rows]
        squared = (part**2).sum(axis=1)[:, None] + squares - 2 * part @ train.T
        # For equal vectors, float error leaves a squared distance that is not quite 0.
        yield rows, (1 / (1 + np.sqrt(np.maximum(squared, 0.0).round(9)))).round(9)


def find_nearest(
    similarities: Iterator[tuple[slice, Floats]], k: int, *, excludes_self: bool = False
) -> Neighbours:
    """The k most similar train documents (all if there are fewer), from `cosines` or `closeness`.

    `excludes_self`: the documents are the train documents themselves, and none is its own neighbour.
    """
    blocks = [
        _top(_mask_own_similarity(rows, part) if excludes_self else part, k, excludes_self)
        for rows, part in similarities
    ]
    if not blocks:
        return Neighbours(np.empty((0, 0), dtype=np.int64), np.empty((0, 0)))
    return Neighbours(
        np.concatenate([part.positions for part in blocks]),
        np.concatenate([part.similarity for part in blocks]),
    )


def compare_with_others(similarities: Iterator[tuple[slice, Floats]]) -> Iterator[tuple[slice, Floats]]:
    """Yields blocks of train documents' similarities to each other, in which a document's own is -inf."""
    return ((rows, _mask_own_similarity(rows, part)) for rows, part in similarities)


def _mask_own_similarity(rows: slice, similarity: Floats) -> Floats:
    others = similarity.copy()
    others[np.arange(len(others)), np.arange(rows.start, rows.stop)] = -np.inf
    return others


def _top(similarity: Floats, k: int, excludes_self: bool) -> Neighbours:
    """The k highest similarities of each row; ties: the first."""
    n = similarity.shape[1]
    k = min(k, n - excludes_self)
    if k == 0:
        none = np.empty((len(similarity), 0))
        return Neighbours(none.astype(np.int64), none)
    least = np.partition(similarity, n - k, axis=1)[:, n - k, None]
    above, level = similarity > least, similarity == least
    taken = above | (level & (level.cumsum(axis=1) <= k - above.sum(axis=1, keepdims=True)))
    places = np.nonzero(taken)[1].reshape(-1, k)
    values = np.take_along_axis(similarity, places, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return Neighbours(np.take_along_axis(places, order, axis=1), np.take_along_axis(values, order, axis=1))


NEIGHBOUR_SPACES = ("text", "outputs", "both")
TEXT_WEIGHT = 0.3
"""The weight of the question's unit vector beside the outputs' vector, which also has length 1."""


@dataclass(frozen=True)
class SimilarityEncoder:
    """Maps documents to vectors that are close for similar documents."""

    by: str
    encoder: Encoder | None
    """The encoder of questions; None if questions are not read."""
    width: int
    """The number of each model's slots that are used."""

    def vectors(self, outputs: Dataset, models: Sequence[int]) -> Floats:
        """(T, D) vectors of documents about which these models were asked.

        A model's output enters as the square roots of its probabilities, so that Euclidean distance is √2
        times Hellinger's. All models count equally.
        """
        parts = []
        if self.by != "text":
            spread = np.sqrt(outputs.probs[:, list(models)] / max(len(models), 1))
            parts.append(_cut_slots(spread, self.width))
        if self.encoder is not None:
            weight = 1.0 if self.by == "text" else TEXT_WEIGHT
            parts.append(weight * self.encoder.encode(questions_of(outputs)))
        return np.hstack(parts)


def fit_likeness(by: str, encoder: str, train: Dataset) -> SimilarityEncoder:
    """The encoder of documents by text, outputs or both, fitted on train.

    Raises InputError for a value of `by` outside NEIGHBOUR_SPACES.
    """
    if by not in NEIGHBOUR_SPACES:
        raise unknown_name("neighbours", by, NEIGHBOUR_SPACES, "a selector by neighbours")
    reads = fit_encoder(encoder, questions_of(train)) if by != "outputs" else None
    return SimilarityEncoder(by, reads, train.probs.shape[2])


def find_similar(train: Floats, vectors: Floats, k: int, *, excludes_self: bool = False) -> Neighbours:
    """The k nearest of the train vectors (n, D) to each of the vectors (T, D); ties: the first.

    `excludes_self`: `vectors` are of the train documents, and none is its own neighbour.
    """
    return find_nearest(closeness(train, vectors), k, excludes_self=excludes_self)


def local_mean(neighbours: Neighbours, values: Floats, k: int) -> Floats:
    """(T, A) for each of A actions, the mean of its train values (n, A) over the k nearest documents.

    For a document without a similar train document, the mean is over all of train.
    """
    means = np.tile(values.mean(axis=0), (len(neighbours.positions), 1))
    if neighbours.positions.shape[1]:
        means[neighbours.is_similar] = mean_over(values, neighbours.positions[neighbours.is_similar, :k])
    return means


def mean_over(values: Floats, places: Ints) -> Floats:
    """(T, A) means of values (n, A) at the positions (T, k)."""
    return np.stack([each[places].mean(axis=1) for each in values.T], axis=1)


def _cut_slots(shares: Floats, width: int) -> Floats:
    """(T, M · width): the first `width` slots of shares (T, M, C), model by model."""
    padded = np.zeros((*shares.shape[:2], max(width, shares.shape[2])))
    padded[..., : shares.shape[2]] = shares
    return padded[..., :width].reshape(len(shares), -1)


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
    """Asks argmax_m W · score_m - price_m, where score_m is model m's accuracy on the k nearest questions.

    For a question without a word that the encoder knows, score_m is the accuracy on all of train.
    """

    k: Annotated[PositiveInt, Range(3, 200, log=True)] = 50
    encoder: str = TFIDF
    willingness: Worth = math.inf
    """W, the worth of a right answer in cents per 1,000 queries; infinite: prices do not count."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ScoreRouter]:
        weight = 1 / self.willingness
        if weight:
            check_prices("knn", "willingness", self.willingness, train)
        questions = questions_of(train)
        encoder = fit_encoder(self.encoder, questions)
        scorer = NeighbourScores(encoder, vectors_of(encoder, questions), train.correct.astype(float), self.k)
        return [ScoreRouter(scorer, train.prices, weight)]


@dataclass(frozen=True)
class NeighbourScores(ModelScorer):
    """Scores models by their means over the k train questions with the highest cosines.

    The means are over all of train for a question without a known word.
    """

    encoder: Encoder
    vectors: Floats
    """(n, D) vectors of the train questions."""
    values: Floats
    """(n, N) a value of each model on each train question, such as whether it was right."""
    k: int

    def scores(self, questions: tuple[str, ...]) -> Floats:
        neighbours = find_nearest(cosines(self.vectors, vectors_of(self.encoder, questions)), self.k)
        return local_mean(neighbours, self.values, self.k)

    def train_scores(self) -> Floats:
        """(n, N) the scores for each train question, from its neighbours without itself."""
        neighbours = find_nearest(cosines(self.vectors, self.vectors), self.k, excludes_self=True)
        return local_mean(neighbours, self.values, self.k)


@question_router(
    "guarded_knn",
    "the best model on train, or one that was reliably better on similar questions",
    source="ours, a k-NN router (arXiv 2403.12031) that leaves the best single model on evidence alone",
    differs="at a budget in cents, the fallback and the paired differences are net of a price weight",
)
@checked
class GuardedKNN(MethodBase):
    """Asks the best model on train, the fallback, unless another is clearly better on similar questions.

    The mean paired difference of a clearly better model exceeds z standard errors. Similar questions have
    more than `closeness` times the k-th highest similarity, and are weighted by it. z is doubled for models
    that are known to cost more than the fallback.
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


class _PairedComparison(NamedTuple):
    """A comparison of models with the fallback on each document's neighbours."""

    accuracy: Floats
    """(T, N) each model's weighted accuracy; over all of train where a document has no neighbour."""
    gain: Floats
    """(T, N) the weighted mean of c_m - c_fallback, where c is 1 for a right answer, else 0."""
    error: Floats
    """(T, N) the standard error of `gain`; infinite where a document has no neighbour."""


@dataclass(frozen=True)
class GuardedRouter(PricedRouter):
    """Asks the model with the largest lead over the fallback among those clearly ahead, else the fallback."""

    settings: GuardedKNN
    encoder: Encoder
    vectors: Floats
    """(n, D) vectors of the train questions."""
    right: Floats
    """(n, N) whether each model was right on the train questions"""
    prices: Floats
    """(N,) the price of each model, in cents per 1,000 queries; NaN where unknown"""
    price_weight: float = 0.0
    """The accuracy that a cent per 1,000 queries is worth."""

    def decide(self, calls: Calls) -> Answers:
        fallback = self._fallback(self.price_weight)
        similarities = cosines(self.vectors, vectors_of(self.encoder, questions_of(calls)))
        paired = self._compare_with_fallback(similarities, fallback)
        return ask(calls, self._pick(paired, fallback, self.price_weight), paired.accuracy)

    @property
    def decisive(self) -> float:
        return decisive_weight(self.prices, 2.0)

    def _fallback(self, weight: float) -> int:
        means = self.right.mean(axis=0)
        return int((means - weight * self.prices if weight else means).round(9).argmax())

    def _pick(self, comparison: _PairedComparison, fallback: int, weight: float) -> Ints:
        """(T,) the position of the model to ask, if a cent per 1,000 queries costs `weight` in accuracy."""
        dearer = self.prices > self.prices[fallback]
        guard = np.where(dearer, 2.0, 1.0) * self.settings.z
        lead = comparison.gain - weight * (self.prices - self.prices[fallback]) if weight else comparison.gain
        # Where the error is 0, as the fallback's own is with neighbours, any positive lead passes.
        passes = lead > np.where(comparison.error > 0, guard, 0.0) * np.maximum(comparison.error, 1e-12)
        best = np.where(passes, lead.round(9), -np.inf).argmax(axis=1)
        return np.where(passes.any(axis=1), best, fallback)

    def _compare_with_fallback(
        self, similarities: Iterator[tuple[slice, Floats]], fallback: int
    ) -> _PairedComparison:
        parts = [self._paired_block(part, fallback) for _, part in similarities]
        if not parts:
            none = np.empty((0, self.right.shape[1]))
            return _PairedComparison(none, none, none)
        return _PairedComparison(*(np.concatenate([part[i] for part in parts]) for i in range(3)))

    def _paired_block(self, similarity: Floats, fallback: int) -> _PairedComparison:
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
        return _PairedComparison(
            np.where(has_near, level, self.right.mean(axis=0)),
            gain,
            np.where(has_near, error, np.inf),
        )

    def mean_train_price(self, weight: float) -> float:
        fallback = self._fallback(weight)
        if fallback not in self._pairs_on_train:
            others = compare_with_others(cosines(self.vectors, self.vectors))
            self._pairs_on_train[fallback] = self._compare_with_fallback(others, fallback)
        return float(self.prices[self._pick(self._pairs_on_train[fallback], fallback, weight)].mean())

    @cached_property
    def _pairs_on_train(self) -> dict[int, _PairedComparison]:
        """For each fallback, its comparison on train documents, none of which is its own neighbour."""
        return {}

"""k nearest questions: each model's score is how often it was right on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import PositiveInt

from rlfocal.base.arrays import Floats
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, Encoder, fit_encoder
from rlfocal.methods._routing import Scorer, ScoreRouter, check_prices, question_router
from rlfocal.methods._text import questions_of
from rlfocal.methods.checking import Range, Worth, checked
from rlfocal.methods.neighbours import Neighbours, cosines, nearest, vectors_of
from rlfocal.methods.registry import MethodBase


@question_router(
    "knn",
    "the model that was most often right on the 50 most similar train questions",
    source="RouterBench's k-NN router (arXiv 2403.12031); arXiv 2505.12601",
    differs="TF-IDF instead of a sentence encoder unless one is named; prices do not count unless a "
    "willingness to pay or a budget in cents is given",
    with_task="fitted per task",
    space={"k": Range(3, 200, log=True)},
)
@checked
class KNN(MethodBase):
    """Asks argmax_m W · score_m - price_m, score_m the mean correctness of m on the k nearest questions.

    A question without a word that the encoder knows gets each model's mean over train.
    """

    k: PositiveInt = 50
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
    """Mean correctness over the k nearest train questions by cosine."""

    encoder: Encoder
    vectors: Floats
    """(n, D) of the train questions"""
    right: Floats
    """(n, N) whether each model was right on them"""
    k: int

    def scores(self, questions: tuple[str, ...]) -> Floats:
        return self._means(nearest(cosines(self.vectors, vectors_of(self.encoder, questions)), self.k))

    def train_scores(self) -> Floats:
        """Each document's scores without itself as a neighbour."""
        return self._means(nearest(cosines(self.vectors, self.vectors), self.k, others=True))

    def _means(self, found: Neighbours) -> Floats:
        if found.at.shape[1] == 0:
            return np.repeat(self.right.mean(axis=0, keepdims=True), len(found.at), axis=0)
        return np.where(found.known[:, None], self.right[found.at].mean(axis=1), self.right.mean(axis=0))

"""Two levels of clusters: a model's mean in the finer is shrunk to the coarser, and that to all of train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import PositiveFloat, PositiveInt

from rlfocal.base.arrays import Floats
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF
from rlfocal.methods._routing import Scorer, ScoreRouter, check_prices, question_router
from rlfocal.methods._text import questions_of
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.neighbours._clusters import Clusters, fit_clusters
from rlfocal.methods.registry import MethodBase


@question_router(
    "hier_shrink",
    "the model with the best mean in the question's clusters, of 20 and of 100, shrunk to its train mean",
    source="ours: means shrunk as in empirical Bayes (James and Stein, 1961), at two levels of clusters",
    space={
        "coarse": Range(2, 50, log=True),
        "fine": Range(20, 300, log=True),
        "strength": Range(1.0, 200.0, log=True),
    },
)
@checked
class HierShrink(MethodBase):
    """Asks argmax_m b2_m - λ · price_m.

    b1 = (n20 · m20 + s · ȳ) / (n20 + s) and b2 = (n100 · m100 + s · b1) / (n100 + s), where n
    is the size of the question's cluster (of 20 or of 100), m the mean correctness in it, ȳ that on all of
    train, and s = 24.
    """

    coarse: PositiveInt = 20
    fine: PositiveInt = 100
    strength: PositiveFloat = 24.0
    """s: how many documents the level above counts for."""
    price_weight: float = 0.0
    """λ: how much accuracy a cent per 1,000 queries is worth."""
    encoder: str = TFIDF

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ScoreRouter]:
        if self.price_weight:
            check_prices("hier_shrink", "price_weight", self.price_weight, train)
        levels = [fit_clusters(train, self.encoder, k) for k in (self.coarse, self.fine)]
        scorer = ShrunkMeans(levels[0], levels[1], self.strength, questions_of(train))
        return [ScoreRouter(scorer, train.prices, self.price_weight)]


@dataclass(frozen=True)
class ShrunkMeans(Scorer):
    """b2 of every model."""

    coarse: Clusters
    fine: Clusters
    strength: float
    questions: tuple[str, ...]

    def scores(self, questions: tuple[str, ...]) -> Floats:
        shrunk = np.broadcast_to(self.coarse.means[-1], (len(questions), self.coarse.means.shape[1]))
        for level in (self.coarse, self.fine):
            at = level.near(questions).at[:, 0]
            n = level.sizes[at][:, None]
            shrunk = (n * level.means[at] + self.strength * shrunk) / (n + self.strength)
        return shrunk

"""MODEL-SAT: a model is known by its accuracy on kinds of questions, and matched with a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import PositiveInt

from rlfocal.base.arrays import Floats
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, Encoder
from rlfocal.methods._routing import Scorer, ScoreRouter, question_router
from rlfocal.methods._text import questions_of
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.neighbours import vectors_of
from rlfocal.methods.neighbours._clusters import fit_clusters
from rlfocal.methods.registry import MethodBase
from rlfocal.methods.routers._towers import Learning, learn, logistic, to_numpy, uniform

if TYPE_CHECKING:
    from torch import Tensor


@question_router(
    "model_sat",
    "the model whose accuracies on kinds of questions promise most for the question, by a network",
    source="MODEL-SAT, capability instruction tuning (arXiv 2502.17282)",
    differs="accuracies as numbers on clusters of train questions, not as a text on MMLU's subjects; a "
    "small network on the question's vector (TF-IDF unless a sentence encoder is named) in place of an "
    "encoder, a projector and a 7B language model that says yes or no",
    space={
        "clusters": Range(10, 100, log=True),
        "hidden": Range(16, 128, log=True),
        "epochs": Range(3, 30, log=True),
        "rate": Range(3e-4, 3e-2, log=True),
    },
)
@checked
class ModelSat(MethodBase):
    """Asks argmax_m σ(w · relu(A e(x) + B s_m + b) + c), learnt by cross-entropy on who was right.

    s_m are model m's accuracies on K-means clusters of train questions, less the mean over models. A model is
    added by its accuracies alone.
    """

    clusters: PositiveInt = 30
    hidden: PositiveInt = 64
    """units of the hidden layer"""
    epochs: int = 10
    batch: int = 128
    """documents per step"""
    rate: float = 3e-3
    decay: float = 1e-4
    encoder: str = TFIDF
    seeded = True

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ScoreRouter]:
        return [ScoreRouter(self._fit_seed(train, seed), train.prices) for seed in seeds]

    def _fit_seed(self, train: Dataset, seed: int) -> Matched:
        # torch takes seconds to import, and listing the methods must not.
        import torch
        from torch.nn.functional import binary_cross_entropy_with_logits

        clusters, questions = fit_clusters(train, self.encoder, self.clusters), questions_of(train)
        strengths = (clusters.means[:-1] - clusters.means[:-1].mean(axis=1, keepdims=True)).T
        e, s, c = (
            torch.tensor(part, dtype=torch.float32)
            for part in (vectors_of(clusters.encoder, questions), strengths, train.correct)
        )
        generator = torch.Generator().manual_seed(seed)
        A, B = (uniform(part.shape[1], self.hidden, generator=generator) for part in (e, s))
        w, b = uniform(self.hidden, generator=generator), torch.zeros(self.hidden, requires_grad=True)
        level = torch.zeros(1, requires_grad=True)

        def loss(batch: Tensor) -> Tensor:
            hidden = ((e[batch] @ A)[:, None] + (s @ B + b)).relu()
            return binary_cross_entropy_with_logits(hidden @ w + level, c[batch])

        learning = Learning(self.epochs, self.batch, self.rate, self.decay)
        learn([A, B, w, b, level], loss, len(c), learning, generator)
        weights, models, out, base = to_numpy(A, s @ B + b, w, level)
        return Matched(clusters.encoder, weights, models, out, base, questions)


@dataclass(frozen=True)
class Matched(Scorer):
    """The chance that each model satisfies a question."""

    encoder: Encoder
    weights: Floats
    """(D, d) A"""
    models: Floats
    """(N, d) B s_m + b"""
    out: Floats
    """(d,) w"""
    level: Floats
    """(1,) c"""
    questions: tuple[str, ...]

    def scores(self, questions: tuple[str, ...]) -> Floats:
        x = vectors_of(self.encoder, questions) @ self.weights
        return logistic(
            np.stack([np.maximum(x + one, 0.0) @ self.out for one in self.models], axis=1) + self.level
        )

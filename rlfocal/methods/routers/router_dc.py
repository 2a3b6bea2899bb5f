"""RouterDC: questions are drawn towards the models that answer them, and towards questions like them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from pydantic import PositiveFloat, PositiveInt

from rlfocal.base.arrays import Floats
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, Encoder
from rlfocal.methods._routing import Scorer, ScoreRouter, question_router
from rlfocal.methods._text import questions_of
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.neighbours import vectors_of
from rlfocal.methods.neighbours._clusters import fit_clusters
from rlfocal.methods.registry import MethodBase
from rlfocal.methods.routers._networks import to_numpy, uniform
from rlfocal.methods.routers._towers import Learning, learn

if TYPE_CHECKING:
    from torch import Generator, Tensor


_SPREAD = 0.78
"""Standard deviation of model vectors before learning."""


@question_router(
    "router_dc",
    "the model whose learned vector is closest to the question's",
    source="RouterDC (arXiv 2409.19886)",
    differs="a linear projection of fixed vectors (TF-IDF unless a sentence encoder is named) in place "
    "of a fine-tuned mDeBERTa, with a higher rate; questions are clustered by these vectors, not after "
    "t-SNE; wrong models among the best are left out document by document, where the code's mask, spread "
    "over the batch, draws questions near them too; the last step is kept, not the one that is best on "
    "test",
    space={
        "dimensions": Range(32, 256, log=True),
        "temperature": Range(0.1, 3.0, log=True),
        "cluster_weight": Range(0.0, 2.0),
        "epochs": Range(3, 30, log=True),
        "rate": Range(1e-4, 1e-2, log=True),
    },
)
@checked
class RouterDC(MethodBase):
    """Asks argmax_m cos(P e(x), v_m), learnt by two contrastive losses.

    A document scores a model 0 where it is wrong, else its probability (or share of passes) for its answer.
    Samples against models: for each of the `top` best models that are right, -log of its share of
    exp(cos / temperature) among itself and those of the `last` worst that score at most 0.5. Samples against
    samples: the same for a question of its cluster against `others` from other clusters.
    """

    dimensions: PositiveInt = 128
    """of v"""
    top: PositiveInt = 3
    last: PositiveInt = 3
    temperature: PositiveFloat = 1.0
    clusters: PositiveInt = 8
    cluster_weight: float = 1.0
    """of the second loss"""
    others: PositiveInt = 3
    epochs: int = 10
    batch: int = 64
    """documents per step"""
    rate: float = 1e-3
    encoder: str = TFIDF
    seeded = True

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ScoreRouter]:
        return [
            ScoreRouter(self._fit_seed(train, seed), train.prices, is_probability=False) for seed in seeds
        ]

    def _fit_seed(self, train: Dataset, seed: int) -> Cosines:
        # torch takes seconds to import, and listing the methods must not.
        import torch
        from torch.nn.functional import normalize

        questions, clusters = questions_of(train), fit_clusters(train, self.encoder, self.clusters)
        e = torch.tensor(vectors_of(clusters.encoder, questions), dtype=torch.float32)
        score = torch.tensor(train.chances * train.correct, dtype=torch.float32)
        cluster = torch.tensor(clusters.near(questions).at[:, 0])
        generator = torch.Generator().manual_seed(seed)
        P = uniform(e.shape[1], self.dimensions, generator=generator)
        drawn = torch.randn((score.shape[1], self.dimensions), generator=generator)
        v = (_SPREAD * drawn).requires_grad_()

        def loss(batch: Tensor) -> Tensor:
            x = normalize(e[batch] @ P, dim=1)
            cosines = x @ normalize(v, dim=1).T / self.temperature
            of_models = against_models(cosines, score[batch], self.top, self.last)
            of_samples = against_samples(x, cluster[batch], self.others, generator)
            return of_models + self.cluster_weight * of_samples

        learn([P, v], loss, len(e), Learning(self.epochs, self.batch, self.rate), generator)
        project, models = to_numpy(P, normalize(v, dim=1))
        return Cosines(clusters.encoder, project, models, questions)


def against_models(cosines: Tensor, score: Tensor, top: int, last: int) -> Tensor:
    """The mean over documents of the first loss, from cosines and scores (B, N)."""
    import torch

    n = score.shape[1]
    order = score.argsort(dim=1, descending=True, stable=True)
    worst = order[:, max(n - last, 0) :]
    rivals = cosines.gather(1, worst).masked_fill(score.gather(1, worst) > 0.5, -torch.inf)
    total = torch.zeros(())
    for place in range(min(top, n)):
        at = order[:, place : place + 1]
        shares = torch.cat([cosines.gather(1, at), rivals], dim=1).log_softmax(dim=1)[:, 0]
        total = total - torch.where(score.gather(1, at)[:, 0] > 0, shares, 0.0).mean()
    return total


def against_samples(x: Tensor, cluster: Tensor, others: int, generator: Generator) -> Tensor:
    """The mean of the second loss over the questions (B, d) of a batch that have enough strangers in it."""
    import torch

    same = cluster[:, None] == cluster
    enough = (~same).sum(dim=1) >= others
    if not enough.any():
        return torch.zeros(())
    draws = torch.rand(same.shape, generator=generator)
    friend = torch.where(same, draws, -1.0).argmax(dim=1, keepdim=True)
    strangers = torch.where(same, -1.0, draws).topk(others, dim=1).indices
    cosines = (x @ x.T).gather(1, torch.cat([friend, strangers], dim=1))
    return -cosines[enough].log_softmax(dim=1)[:, 0].mean()


@dataclass(frozen=True)
class Cosines(Scorer):
    """Cosines of a question's projection to every model's vector."""

    encoder: Encoder
    project: Floats
    """(D, d) P"""
    models: Floats
    """(N, d) of length 1"""
    questions: tuple[str, ...]

    def scores(self, questions: tuple[str, ...]) -> Floats:
        x = vectors_of(self.encoder, questions) @ self.project
        found: Floats = x @ self.models.T / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        return found

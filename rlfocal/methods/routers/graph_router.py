"""GraphRouter: a graph of questions, models and what each model did on each question predicts new edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field, PositiveInt

from rlfocal.base.arrays import Floats
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF
from rlfocal.methods._routing import Scorer, ScoreRouter, question_router
from rlfocal.methods._text import questions_of
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.neighbours import vectors_of
from rlfocal.methods.neighbours._clusters import Clusters, fit_clusters
from rlfocal.methods.registry import MethodBase
from rlfocal.methods.routers._towers import Learning, learn, logistic, to_numpy, uniform

if TYPE_CHECKING:
    from torch import Tensor


@question_router(
    "graph_router",
    "the model with the likeliest edge to the question, in a graph of questions, their clusters and models",
    source="GraphRouter (arXiv 2410.03834), performance first",
    differs="clusters of questions in place of tasks, whose names no router reads; models start from "
    "learned vectors, not from descriptions; every right model is a label, not the best one; a message "
    "is a mean, not a sum, so that steps may take a few documents; the last step is kept, not the one "
    "that is best on test",
    space={
        "dimensions": Range(4, 32, log=True),
        "clusters": Range(10, 100, log=True),
        "hidden_share": Range(0.2, 0.8),
        "epochs": Range(20, 120, log=True),
        "rate": Range(1e-3, 3e-2, log=True),
    },
)
@checked
class GraphRouter(MethodBase):
    """Asks argmax_m σ(mean(x ⊙ z_m)): x a question's node before messages, z_m model m's after them.

    x joins projections of the question and of its cluster's centre. In each of two layers, a model's node
    gains the mean of what the visible questions send it (their nodes and, along the edge, whether it was
    right); nodes are then normalised over the graph. Learnt by cross-entropy on the edges that a random mask
    hides; to decide, all of train's are visible.
    """

    dimensions: PositiveInt = 8
    """of each half of a node"""
    clusters: PositiveInt = 30
    hidden_share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """of a step's edges, which are to be predicted"""
    epochs: int = 60
    batch: int = 512
    """documents per step"""
    rate: float = 1e-2
    decay: float = 1e-4
    encoder: str = TFIDF
    seeded = True

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ScoreRouter]:
        return [ScoreRouter(self._fit_seed(train, seed), train.prices) for seed in seeds]

    def _fit_seed(self, train: Dataset, seed: int) -> EdgeChances:
        # torch takes seconds to import, and listing the methods must not.
        import torch
        from torch.nn.functional import binary_cross_entropy_with_logits

        clusters, questions = fit_clusters(train, self.encoder, self.clusters), questions_of(train)
        e = torch.tensor(_join(clusters, questions), dtype=torch.float32)
        right = torch.tensor(train.correct, dtype=torch.float32)
        generator = torch.Generator().manual_seed(seed)
        h, D, N = self.dimensions, clusters.centres.shape[1], right.shape[1]
        of_question, of_cluster = (uniform(D, h, generator=generator) for _ in range(2))
        offset = torch.zeros(2 * h, requires_grad=True)
        models = torch.randn((N, 2 * h), generator=generator).requires_grad_()
        layers = [uniform(2 * h + 1, 2 * h, generator=generator) for _ in range(2)]

        def nodes(rows: Tensor) -> Tensor:
            return torch.cat([e[rows, :D] @ of_question, e[rows, D:] @ of_cluster], dim=1) + offset

        def loss(batch: Tensor) -> Tensor:
            x = nodes(batch)
            is_hidden = torch.rand((len(batch), N), generator=generator) < self.hidden_share
            after = pass_messages(x, models, right[batch], ~is_hidden, layers)
            log_odds = x @ after.T / (2 * h)
            each = binary_cross_entropy_with_logits(log_odds, right[batch], reduction="none")
            return (each * is_hidden).sum() / is_hidden.sum().clamp(min=1)

        learned = [of_question, of_cluster, offset, models, *layers]
        learning = Learning(self.epochs, self.batch, self.rate, self.decay)
        learn(learned, loss, len(right), learning, generator)
        with torch.no_grad():
            every = torch.arange(len(right))
            after = pass_messages(
                nodes(every), models, right, torch.ones_like(right, dtype=torch.bool), layers
            )
        one, other, offsets, models_after = to_numpy(of_question, of_cluster, offset, after / (2 * h))
        nothing = np.zeros_like(one)
        project = np.block([[one, nothing], [nothing, other]])
        return EdgeChances(clusters, project, offsets, models_after, questions)


def pass_messages(
    x: Tensor, models: Tensor, right: Tensor, visible: Tensor, layers: Sequence[Tensor]
) -> Tensor:
    """(N, 2h) the models' nodes once messages went along the visible edges (n, N) from questions (n, 2h)."""
    import torch

    share = visible.to(x.dtype) / visible.sum(dim=0).clamp(min=1)
    of_edges = (share * right).sum(dim=0)[:, None]
    for depth, weights in enumerate(layers):
        models = models + torch.cat([share.T @ x, of_edges], dim=1) @ weights
        both = torch.cat([x, models])
        both = (both - both.mean(dim=0)) / (both.var(dim=0, unbiased=False) + 1e-5).sqrt()
        both = both.relu() if depth + 1 < len(layers) else both
        x, models = both[: len(x)], both[len(x) :]
    return models


def _join(clusters: Clusters, questions: tuple[str, ...]) -> Floats:
    """(T, 2D) questions beside their clusters' centres, which are 0 where no word is known."""
    centres = np.vstack([clusters.centres, np.zeros(clusters.centres.shape[1])])
    return np.hstack([vectors_of(clusters.encoder, questions), centres[clusters.near(questions).at[:, 0]]])


@dataclass(frozen=True)
class EdgeChances(Scorer):
    """The chance of an edge from a question to each model."""

    clusters: Clusters
    project: Floats
    """(2D, 2h)"""
    offset: Floats
    """(2h,)"""
    models: Floats
    """(N, 2h)"""
    questions: tuple[str, ...]

    def scores(self, questions: tuple[str, ...]) -> Floats:
        return logistic((_join(self.clusters, questions) @ self.project + self.offset) @ self.models.T)

"""Routers with networks that estimate each model's probability of being right, from the question's vector and
the model's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field, PositiveInt

from rlfocal.base.arrays import Floats
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.routing import question_router
from rlfocal_rivals.clusters import Clusters, fit_clusters
from rlfocal_rivals.question import Descent, Predict, QuestionRouter, descend, logistic, to_numpy, uniform

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Towers:
    """A two-tower network of log-odds (e P + p) · q_m + e · r + s, from questions' vectors e."""

    project: Floats
    """(D, d) P, the projection of a question's vector"""
    offset: Floats
    """(d,) p, the constant of that projection"""
    models: Floats
    """(N, d) q, the vector of each model"""
    level: Floats | float = 0.0
    """(D,) r, the weights of the part that all models share, such as a question's easiness; 0: none"""
    base: float = 0.0
    """s, the constant of the log-odds"""

    def log_odds(self, e: Floats) -> Floats:
        """(T, N) the log-odds that each model is right, from questions' vectors (T, D)."""
        alike = np.reshape(e @ self.level if np.ndim(self.level) else 0.0, (-1, 1)) + self.base
        log_odds: Floats = (e @ self.project + self.offset) @ self.models.T + alike
        return log_odds

    def chances(self, e: Floats) -> Floats:
        """(T, N) the probability that each model is right, from questions' vectors (T, D)."""
        return logistic(self.log_odds(e))


@question_router(
    "irt",
    "the model whose skills best fit those the question requires (2PL)",
    source="IRT-Router (arXiv 2506.01048)",
    differs="a and b are linear in the question's vector, not networks over a language model; models are "
    "known by their answers, not by a description",
)
@dataclass(frozen=True)
class ItemResponse(Descent, QuestionRouter):
    """Asks argmax_m σ(a(x) · θ_m - b(x)), trained by binary cross-entropy on which models are right.

    Discrimination is a(x) = A e(x) + a0, and difficulty b(x) = β · e(x) + b0. θ_m are the skills of model m.
    """

    skills: Annotated[int, Range(4, 64, log=True)] = 25
    """The number of dimensions of a model's skills θ."""
    epochs: Annotated[int, Range(10, 100, log=True)] = 30
    decay: Annotated[float, Range(1e-6, 1e-2, log=True)] = 1e-4
    seeded = True

    def learn(self, X: Floats, right: Floats, seed: int) -> Predict:
        # torch takes seconds to import, and listing the methods must not.
        import torch
        from torch.nn.functional import binary_cross_entropy_with_logits

        e, c = (torch.tensor(part, dtype=torch.float32) for part in (X, right))
        generator = torch.Generator().manual_seed(seed)
        N, D, d = c.shape[1], e.shape[1], self.skills

        def normal(*shape: int, scale: float = 1.0) -> Tensor:
            return (scale * torch.randn(shape, generator=generator)).requires_grad_()

        A, a0, theta = normal(D, d, scale=D**-0.5), normal(d), normal(N, d, scale=d**-0.5)
        beta, b0 = torch.zeros(D, requires_grad=True), torch.zeros(1, requires_grad=True)

        def loss(rows: Tensor) -> Tensor:
            x = e[rows]
            log_odds = (x @ A + a0) @ theta.T - (x @ beta + b0)[:, None]
            return binary_cross_entropy_with_logits(log_odds, c[rows])

        descend(self, [A, a0, theta, beta, b0], loss, len(c), generator)
        project, offset, models, level = to_numpy(A, a0, theta, -beta)
        return Towers(project, offset, models, level, -float(b0.detach())).chances


@question_router(
    "mf",
    "the model that a two-tower network finds likeliest to be right",
    source="EmbedLLM (arXiv 2410.02223)",
    differs="TF-IDF instead of a sentence encoder unless one is named; a step takes all models' answers "
    "to its documents, drawn anew each epoch, where the code takes answers in the file's order; the "
    "last epoch is kept, not the one that is best on test",
)
@dataclass(frozen=True)
class MatrixFactorisation(Descent, QuestionRouter):
    """Asks argmax_m σ(w · (v_m ⊙ (W e(x) + u)) + b), trained by cross-entropy on which models are right.

    w and b are the weights of the class "right" less those of the class "wrong". In training, Gaussian noise
    of scale `noise` is added to e(x).
    """

    dimensions: Annotated[int, Range(16, 512, log=True)] = 232
    """The number of dimensions of a model's vector v."""
    noise: Annotated[float, Range(0.0, 0.3)] = 0.05
    epochs: Annotated[int, Range(10, 100, log=True)] = 50
    batch: int = 2048
    """The number of models' answers in a gradient step."""
    rate: Annotated[float, Range(1e-4, 1e-2, log=True)] = 1e-4
    decay: float = 1e-5
    seeded = True
    revision = "2"

    def learn(self, X: Floats, right: Floats, seed: int) -> Predict:
        import torch
        from torch.nn.functional import binary_cross_entropy_with_logits

        e, c = (torch.tensor(part, dtype=torch.float32) for part in (X, right))
        generator = torch.Generator().manual_seed(seed)
        N, D, d = c.shape[1], e.shape[1], self.dimensions
        v = torch.randn((N, d), generator=generator).requires_grad_()
        W, u = (uniform(*shape, fan_in=D, generator=generator) for shape in ((D, d), (d,)))
        w, b = (uniform(*shape, fan_in=d, generator=generator) for shape in ((2, d), (2,)))  # wrong, right

        def loss(rows: Tensor) -> Tensor:
            noisy = e[rows] + self.noise * torch.randn(e[rows].shape, generator=generator)
            log_odds = ((noisy @ W + u) * (w[1] - w[0])) @ v.T + b[1] - b[0]
            return binary_cross_entropy_with_logits(log_odds, c[rows])

        documents = max(self.batch // N, 1)
        descend(self, [v, W, u, w, b], loss, len(c), generator, batch=documents, anneals=False)
        project, offset, models = to_numpy(W * (w[1] - w[0]), u * (w[1] - w[0]), v)
        return Towers(project, offset, models, base=float((b[1] - b[0]).detach())).chances


@question_router(
    "model_sat",
    "the model whose accuracies on kinds of questions promise most for the question, by a network",
    source="MODEL-SAT, capability instruction tuning (arXiv 2502.17282)",
    differs="accuracies as numbers on clusters of train questions, not as a text on MMLU's subjects; a "
    "small network on the question's vector (TF-IDF unless a sentence encoder is named) in place of an "
    "encoder, a projector and a 7B language model that says yes or no; each model's answer is a label of its "
    "own, where the original's loss ranks the models of a question (listwise)",
)
@checked
class ModelSat(Descent, QuestionRouter):
    """Asks argmax_m σ(w · relu(A e(x) + B s_m + b) + c), trained by cross-entropy on which models are right.

    s_m are model m's accuracies on K-means clusters of train questions, less the mean over models. A new
    model needs no training, only its accuracies.
    """

    clusters: Annotated[PositiveInt, Range(10, 100, log=True)] = 30
    hidden: Annotated[PositiveInt, Range(16, 128, log=True)] = 64
    """The number of units of the hidden layer."""
    seeded = True

    def learn(self, X: Floats, right: Floats, seed: int) -> Predict:
        import torch
        from torch.nn.functional import binary_cross_entropy_with_logits

        means = fit_clusters(X, right, self.clusters).means[:-1]
        strengths = (means - means.mean(axis=1, keepdims=True)).T
        e, s, c = (torch.tensor(part, dtype=torch.float32) for part in (X, strengths, right))
        generator = torch.Generator().manual_seed(seed)
        A, B = (uniform(part.shape[1], self.hidden, generator=generator) for part in (e, s))
        w, b = uniform(self.hidden, generator=generator), torch.zeros(self.hidden, requires_grad=True)
        level = torch.zeros(1, requires_grad=True)

        def loss(rows: Tensor) -> Tensor:
            hidden = ((e[rows] @ A)[:, None] + (s @ B + b)).relu()
            return binary_cross_entropy_with_logits(hidden @ w + level, c[rows])

        descend(self, [A, B, w, b, level], loss, len(c), generator)
        return TowerScorer(*to_numpy(A, s @ B + b, w, level)).chances


@dataclass(frozen=True)
class TowerScorer:
    """The fitted network of `ModelSat`, which estimates each model's probability of being right."""

    weights: Floats
    """(D, d) A, the weights of a question's vector"""
    models: Floats
    """(N, d) B s_m + b, each model's part of the hidden units' inputs"""
    out: Floats
    """(d,) w, the weights of the hidden units"""
    level: Floats
    """(1,) c, the constant of the log-odds"""

    def chances(self, e: Floats) -> Floats:
        """(T, N) the probability that each model is right, from questions' vectors (T, D)."""
        x = e @ self.weights
        each = [np.maximum(x + model, 0.0) @ self.out for model in self.models]
        return logistic(np.stack(each, axis=1) + self.level)


@question_router(
    "graph_router",
    "the model with the likeliest edge to the question, in a graph of questions, their clusters and models",
    source="GraphRouter (arXiv 2410.03834), performance first",
    differs="clusters of questions in place of tasks, whose names no router reads; models start from "
    "learned vectors, not from descriptions; every right model is a label, not the best one; a message "
    "is a mean, not a sum, so that steps may take a few documents; the last step is kept, not the one "
    "that is best on test",
)
@checked
class GraphRouter(Descent, QuestionRouter):
    """Asks argmax_m σ(mean(x ⊙ z_m)), where x is the question's node in a graph, and z_m is model m's.

    x joins projections of the question and of its cluster's centre. z_m comes from two layers of messages
    along edges from train questions. In each, a model's node gains the mean message: a question's node, and
    whether the model was right on it. Nodes are then normalised over the graph. Training predicts hidden
    edges, drawn at random, by cross-entropy. To decide, all edges of train are visible.
    """

    dimensions: Annotated[PositiveInt, Range(4, 32, log=True)] = 8
    """The number of dimensions of each half of a node."""
    clusters: Annotated[PositiveInt, Range(10, 100, log=True)] = 30
    hidden_share: Annotated[float, Field(gt=0, lt=1), Range(0.2, 0.8)] = 0.5
    """The share of edges that are hidden in each training step, to be predicted."""
    epochs: Annotated[int, Range(20, 120, log=True)] = 60
    batch: int = 512
    rate: Annotated[float, Range(1e-3, 3e-2, log=True)] = 1e-2
    seeded = True

    def learn(self, X: Floats, right: Floats, seed: int) -> Predict:
        import torch
        from torch.nn.functional import binary_cross_entropy_with_logits

        clusters = fit_clusters(X, right, self.clusters)
        e, c = (torch.tensor(part, dtype=torch.float32) for part in (append_centres(X, clusters), right))
        generator = torch.Generator().manual_seed(seed)
        h, D, N = self.dimensions, X.shape[1], c.shape[1]
        of_question, of_cluster = (uniform(D, h, generator=generator) for _ in range(2))
        offset = torch.zeros(2 * h, requires_grad=True)
        models = torch.randn((N, 2 * h), generator=generator).requires_grad_()
        layers = [uniform(2 * h + 1, 2 * h, generator=generator) for _ in range(2)]

        def nodes(rows: Tensor) -> Tensor:
            return torch.cat([e[rows, :D] @ of_question, e[rows, D:] @ of_cluster], dim=1) + offset

        def loss(rows: Tensor) -> Tensor:
            x = nodes(rows)
            is_hidden = torch.rand((len(rows), N), generator=generator) < self.hidden_share
            after = pass_messages(x, models, c[rows], ~is_hidden, layers)
            each = binary_cross_entropy_with_logits(x @ after.T / (2 * h), c[rows], reduction="none")
            return (each * is_hidden).sum() / is_hidden.sum().clamp(min=1)

        descend(self, [of_question, of_cluster, offset, models, *layers], loss, len(c), generator)
        with torch.no_grad():
            visible = torch.ones_like(c, dtype=torch.bool)
            after = pass_messages(nodes(torch.arange(len(c))), models, c, visible, layers)
        of_questions, of_clusters, offsets, models_after = to_numpy(
            of_question, of_cluster, offset, after / (2 * h)
        )
        nothing = np.zeros_like(of_questions)
        towers = Towers(np.block([[of_questions, nothing], [nothing, of_clusters]]), offsets, models_after)
        return lambda e: towers.chances(append_centres(e, clusters))


def pass_messages(
    x: Tensor, models: Tensor, right: Tensor, visible: Tensor, layers: Sequence[Tensor]
) -> Tensor:
    """(N, 2h) the models' nodes after messages along the visible edges (n, N) from questions' nodes x (n,
    2h). `right` (n, N) says which models were right."""
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


def append_centres(e: Floats, clusters: Clusters) -> Floats:
    """(T, 2D) questions' vectors (T, D) beside the nearest centres, which are 0 where no word is known."""
    centres = np.vstack([clusters.centres, np.zeros(clusters.centres.shape[1])])
    return np.hstack([e, centres[clusters.find_nearest(e).positions[:, 0]]])

"""Routers whose two towers, of questions and of models, tell how likely each model is right."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, Encoder, fit_encoder
from rlfocal.methods._routing import ScoreRouter, question_router
from rlfocal.methods._text import questions_of
from rlfocal.methods.checking import Range
from rlfocal.methods.neighbours import vectors_of
from rlfocal.methods.registry import MethodBase
from rlfocal.methods.routers._towers import ChancesOfRight, Learning, Towers, learn

if TYPE_CHECKING:
    from torch import Generator, Tensor


@dataclass(frozen=True)
class TowerRouter(MethodBase):
    """Asks the model that its towers find likeliest to be right."""

    encoder: str = TFIDF
    seeded = True

    @abstractmethod
    def fit_towers(self, encoder: Encoder, e: Tensor, c: Tensor, generator: Generator) -> Towers:
        """Learns towers from the questions' vectors (n, D) and which models were right (n, N)."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ScoreRouter]:
        # torch takes seconds to import, and listing the methods must not.
        import torch

        questions = questions_of(train)
        encoder = fit_encoder(self.encoder, questions)
        e = torch.tensor(vectors_of(encoder, questions), dtype=torch.float32)
        c = torch.tensor(train.correct, dtype=torch.float32)
        towers = [self.fit_towers(encoder, e, c, torch.Generator().manual_seed(seed)) for seed in seeds]
        return [ScoreRouter(ChancesOfRight(one, questions), train.prices) for one in towers]


@question_router(
    "irt",
    "the model whose skills best fit those the question requires (2PL)",
    source="IRT-Router (arXiv 2506.01048)",
    differs="a and b are linear in the question's vector, not networks over a language model; models are "
    "known by their answers, not by a description",
    space={
        "skills": Range(4, 64, log=True),
        "epochs": Range(10, 100, log=True),
        "rate": Range(3e-4, 3e-2, log=True),
        "decay": Range(1e-6, 1e-2, log=True),
    },
)
@dataclass(frozen=True)
class ItemResponse(TowerRouter):
    """Asks argmax_m σ(a(x) · θ_m - b(x)), learnt by binary cross-entropy on which models are right.

    Discrimination a(x) = A e(x) + a0 and difficulty b(x) = β · e(x) + b0; θ_m are the skills of model m.
    """

    skills: int = 25
    """dimensions of θ"""
    epochs: int = 30
    batch: int = 128
    """documents per step"""
    rate: float = 3e-3
    decay: float = 1e-4

    def fit_towers(self, encoder: Encoder, e: Tensor, c: Tensor, generator: Generator) -> Towers:
        import torch
        from torch.nn.functional import binary_cross_entropy_with_logits

        N, D, d = c.shape[1], e.shape[1], self.skills

        def normal(*shape: int, scale: float = 1.0) -> Tensor:
            return (scale * torch.randn(shape, generator=generator)).requires_grad_()

        A, a0, theta = normal(D, d, scale=D**-0.5), normal(d), normal(N, d, scale=d**-0.5)
        beta, b0 = torch.zeros(D, requires_grad=True), torch.zeros(1, requires_grad=True)

        def loss(batch: Tensor) -> Tensor:
            x = e[batch]
            log_odds = (x @ A + a0) @ theta.T - (x @ beta + b0)[:, None]
            return binary_cross_entropy_with_logits(log_odds, c[batch])

        learning = Learning(self.epochs, self.batch, self.rate, self.decay)
        learn([A, a0, theta, beta, b0], loss, len(c), learning, generator)
        project, offset, models, level = (x.detach().double().numpy() for x in (A, a0, theta, -beta))
        return Towers(encoder, project, offset, models, level, -float(b0.detach()))


@question_router(
    "mf",
    "the model that a two-tower network finds likeliest to be right",
    source="EmbedLLM (arXiv 2410.02223)",
    differs="TF-IDF instead of a sentence encoder unless one is named; a step takes all models' answers "
    "to its documents, drawn anew each epoch, where the code takes answers in the file's order; the "
    "last epoch is kept, not the one that is best on test",
    space={
        "dimensions": Range(16, 512, log=True),
        "noise": Range(0.0, 0.3),
        "epochs": Range(10, 100, log=True),
        "rate": Range(1e-4, 1e-2, log=True),
    },
)
@dataclass(frozen=True)
class MatrixFactorisation(TowerRouter):
    """Asks argmax_m σ(w · (v_m ⊙ (W e(x) + u)) + b), learnt by cross-entropy on correctness, with w and b
    the differences between the two classes' weights.

    In training, Gaussian noise of scale `noise` is added to e(x).
    """

    dimensions: int = 232
    """of v"""
    noise: float = 0.05
    epochs: int = 50
    batch: int = 2048
    """answers per step"""
    rate: float = 1e-4
    decay: float = 1e-5
    revision = "2"

    def fit_towers(self, encoder: Encoder, e: Tensor, c: Tensor, generator: Generator) -> Towers:
        import torch
        from torch.nn.functional import binary_cross_entropy_with_logits

        N, D, d = c.shape[1], e.shape[1], self.dimensions

        def uniform(*shape: int, fan_in: int) -> Tensor:
            return torch.empty(shape).uniform_(-1, 1, generator=generator).div_(fan_in**0.5).requires_grad_()

        v = torch.randn((N, d), generator=generator).requires_grad_()
        W, u = uniform(D, d, fan_in=D), uniform(d, fan_in=D)
        w, b = uniform(2, d, fan_in=d), uniform(2, fan_in=d)  # of wrong and of right

        def loss(batch: Tensor) -> Tensor:
            noisy = e[batch] + self.noise * torch.randn(e[batch].shape, generator=generator)
            logits = ((noisy @ W + u) * (w[1] - w[0])) @ v.T + b[1] - b[0]
            return binary_cross_entropy_with_logits(logits, c[batch])

        learning = Learning(self.epochs, max(self.batch // N, 1), self.rate, self.decay, anneals=False)
        learn([v, W, u, w, b], loss, len(c), learning, generator)
        right = w[1] - w[0]
        project, offset, models = (x.detach().double().numpy() for x in (W * right, u * right, v))
        level = torch.zeros(D, dtype=torch.float64).numpy()
        base = float((b[1] - b[0]).detach())
        return Towers(encoder, project, offset, models, level, base)

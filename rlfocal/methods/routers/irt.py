"""Item response theory: questions require skills, and models have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, fit_encoder
from rlfocal.methods._neighbours import vectors_of
from rlfocal.methods._routing import ScoreRouter
from rlfocal.methods._text import questions_of
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.methods.routers._towers import ChancesOfRight, Learning, Towers, learn
from rlfocal.methods.spaces import Range


@register(
    Entry(
        "irt",
        "the model whose skills best fit those the question requires (2PL)",
        "what it answers",
        has_budgets=True,
        is_default=False,
        needs=("questions",),
        source="IRT-Router (arXiv 2506.01048)",
        differs="a and b are linear in the question's vector, not networks over a language model; models are "
        "known by their answers, not by a description",
        reads=("question",),
        space={
            "skills": Range(4, 64, log=True),
            "epochs": Range(10, 100, log=True),
            "rate": Range(3e-4, 3e-2, log=True),
            "decay": Range(1e-6, 1e-2, log=True),
        },
    )
)
@dataclass(frozen=True)
class ItemResponse(MethodBase):
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
    encoder: str = TFIDF
    seeded = True

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ScoreRouter]:
        return [ScoreRouter(self._learnt(train, seed), train.prices) for seed in seeds]

    def _learnt(self, train: Dataset, seed: int) -> ChancesOfRight:
        # torch takes seconds to import, and listing the methods must not.
        import torch
        from torch.nn.functional import binary_cross_entropy_with_logits

        questions = questions_of(train)
        encoder = fit_encoder(self.encoder, questions)
        e = torch.tensor(vectors_of(encoder, questions), dtype=torch.float32)
        c = torch.tensor(train.correct, dtype=torch.float32)
        generator = torch.Generator().manual_seed(seed)
        N, D, d = c.shape[1], e.shape[1], self.skills

        def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
            return (scale * torch.randn(shape, generator=generator)).requires_grad_()

        A, a0, theta = normal(D, d, scale=D**-0.5), normal(d), normal(N, d, scale=d**-0.5)
        beta, b0 = torch.zeros(D, requires_grad=True), torch.zeros(1, requires_grad=True)

        def loss(batch: torch.Tensor) -> torch.Tensor:
            x = e[batch]
            log_odds = (x @ A + a0) @ theta.T - (x @ beta + b0)[:, None]
            return binary_cross_entropy_with_logits(log_odds, c[batch])

        learning = Learning(self.epochs, self.batch, self.rate, self.decay)
        learn([A, a0, theta, beta, b0], loss, len(c), learning, generator)
        project, offset, models, level = (x.detach().double().numpy() for x in (A, a0, theta, -beta))
        return ChancesOfRight(Towers(encoder, project, offset, models, level, -float(b0.detach())), questions)

"""EmbedLLM's matrix factorisation: a vector per model, learnt from its right and wrong answers."""

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
        "mf",
        "the model that a two-tower network finds likeliest to be right",
        "what it answers",
        has_budgets=True,
        is_default=False,
        needs=("questions",),
        source="EmbedLLM (arXiv 2410.02223)",
        differs="TF-IDF instead of a sentence encoder unless one is named; a step takes all models' answers "
        "to its documents, drawn anew each epoch, where the code takes answers in the file's order; the "
        "last epoch is kept, not the one that is best on test",
        reads=("question",),
        space={
            "dimensions": Range(16, 512, log=True),
            "noise": Range(0.0, 0.3),
            "epochs": Range(10, 100, log=True),
            "rate": Range(1e-4, 1e-2, log=True),
        },
    )
)
@dataclass(frozen=True)
class MatrixFactorisation(MethodBase):
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
    encoder: str = TFIDF
    seeded = True
    revision = "2"

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
        N, D, d = c.shape[1], e.shape[1], self.dimensions

        def uniform(*shape: int, fan_in: int) -> torch.Tensor:
            return torch.empty(shape).uniform_(-1, 1, generator=generator).div_(fan_in**0.5).requires_grad_()

        v = torch.randn((N, d), generator=generator).requires_grad_()
        W, u = uniform(D, d, fan_in=D), uniform(d, fan_in=D)
        w, b = uniform(2, d, fan_in=d), uniform(2, fan_in=d)  # of wrong and of right

        def loss(batch: torch.Tensor) -> torch.Tensor:
            noisy = e[batch] + self.noise * torch.randn(e[batch].shape, generator=generator)
            logits = ((noisy @ W + u) * (w[1] - w[0])) @ v.T + b[1] - b[0]
            return binary_cross_entropy_with_logits(logits, c[batch])

        learning = Learning(self.epochs, max(self.batch // N, 1), self.rate, self.decay, anneals=False)
        learn([v, W, u, w, b], loss, len(c), learning, generator)
        right = w[1] - w[0]
        project, offset, models = (x.detach().double().numpy() for x in (W * right, u * right, v))
        level = torch.zeros(D, dtype=torch.float64).numpy()
        base = float((b[1] - b[0]).detach())
        return ChancesOfRight(Towers(encoder, project, offset, models, level, base), questions)

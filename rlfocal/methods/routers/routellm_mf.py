"""RouteLLM's matrix factorisation: predicts who wins a battle on a question, from a vector per model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from rlfocal.base.arrays import Bools, Floats
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, fit_encoder
from rlfocal.methods._routing import ScoreRouter, question_router
from rlfocal.methods._text import questions_of
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.neighbours import vectors_of
from rlfocal.methods.registry import MethodBase
from rlfocal.methods.routers._pairs import (
    ChancesAgainst,
    PairRouter,
    StrongWins,
    members_of,
    pair_of,
    parts_of,
    route,
)
from rlfocal.methods.routers._towers import Learning, Towers, learn, logistic


@question_router(
    "routellm_mf",
    "the cheapest model or the best of the dearer, by a factorisation of who wins over which question",
    fewest_models=2,
    chooses_pair=True,
    needs=("questions", "prices"),
    source="RouteLLM (arXiv 2406.18665), matrix factorisation",
    differs="battles are between right and wrong answers of train; TF-IDF instead of a sentence encoder "
    "unless one is named, with a constant beside it; an epoch takes one battle of each document; a "
    "tenth of train sets the threshold, by accuracy unless a share of strong calls is given",
    space={
        "dimensions": Range(16, 256, log=True),
        "noise": Range(0.0, 0.3),
        "epochs": Range(25, 200, log=True),
        "rate": Range(3e-5, 3e-3, log=True),
        "decay": Range(1e-6, 1e-3, log=True),
    },
)
@checked
class FactorisedBattles(MethodBase):
    """Asks the strong model where σ(δ(strong, x) - δ(weak, x)) reaches a threshold.

    δ(m, x) = w · (v_m / |v_m| ⊙ W [e(x), 1]) learns by cross-entropy to be higher for models that are
    right than for those that are not, with Gaussian noise of scale `noise` added to e(x). With more than two
    models: asks the one with the highest δ.
    """

    n_models: Annotated[int, Field(ge=2)] = 2
    """How many models to choose from: the strong one, the weak one, then the best on train."""
    strong_share: float = -1.0
    """Share of strong calls, by a threshold calibrated on train; below 0: the most accurate there."""
    dimensions: int = 128
    """of v"""
    noise: float = 0.1
    epochs: int = 100
    batch: int = 64
    rate: float = 3e-4
    decay: float = 1e-5
    encoder: str = TFIDF
    seeded = True
    revision = "3"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[PairRouter | ScoreRouter]:
        return [self._fit_seed(train, seed) for seed in seeds]

    def _fit_seed(self, train: Dataset, seed: int) -> PairRouter | ScoreRouter:
        pair, members = pair_of(train), members_of(train, self.n_models)
        strong = int(np.flatnonzero(members == pair.strong)[0])
        if len(members) > 2:
            deltas = self._fit(questions_of(train), train.correct[:, members], seed)
            scorer = ChancesAgainst(deltas, strong, members, len(train.models))
            return ScoreRouter(scorer, train.prices, is_probability=False)
        learnt, held = (train.take(rows) for rows in parts_of(train))
        worth = StrongWins(self._fit(questions_of(learnt), learnt.correct[:, members], seed), strong)
        return route(worth, pair, held, worth.values(questions_of(held)), self.strong_share)

    def _fit(self, questions: tuple[str, ...], right: Bools, seed: int) -> Deltas:
        """Learns from which members were right (n, M)."""
        # torch takes seconds to import, and listing the methods must not.
        import torch
        from torch.nn.functional import normalize, softplus

        encoder = fit_encoder(self.encoder, questions)
        battles = np.flatnonzero(right.any(axis=1) & ~right.all(axis=1))
        e = torch.tensor(vectors_of(encoder, questions)[battles], dtype=torch.float32)
        won = torch.tensor(right[battles])
        generator = torch.Generator().manual_seed(seed)
        D, d = e.shape[1] + 1, self.dimensions
        v = torch.randn((right.shape[1], d), generator=generator).requires_grad_()
        W = torch.empty((D, d)).uniform_(-(D**-0.5), D**-0.5, generator=generator).requires_grad_()
        w = torch.empty(d).uniform_(-(d**-0.5), d**-0.5, generator=generator).requires_grad_()

        def loss(batch: torch.Tensor) -> torch.Tensor:
            noisy = e[batch] + self.noise * torch.randn(e[batch].shape, generator=generator)
            delta = ((noisy @ W[:-1] + W[-1]) * w) @ normalize(v, dim=1).T
            draws = torch.rand(delta.shape, generator=generator)
            winner = torch.where(won[batch], draws, -1.0).argmax(dim=1, keepdim=True)
            loser = torch.where(won[batch], -1.0, draws).argmax(dim=1, keepdim=True)
            return softplus(delta.gather(1, loser) - delta.gather(1, winner)).mean()

        learning = Learning(self.epochs, self.batch, self.rate, self.decay)
        learn([v, W, w], loss, len(battles), learning, generator)
        project, models = (x.detach().double().numpy() for x in (W * w, normalize(v, dim=1)))
        # Without battles, nothing tells the models apart.
        models = models if len(battles) else np.zeros_like(models)
        towers = Towers(encoder, project[:-1], project[-1], models, np.zeros(D - 1), 0.0)
        return Deltas(towers, questions)


@dataclass(frozen=True)
class Deltas:
    """δ of M models."""

    towers: Towers
    questions: tuple[str, ...]
    """train's"""

    def rate(self, questions: tuple[str, ...]) -> Floats:
        return self.towers.log_odds(questions)

    def rate_train(self) -> Floats:
        """In-sample."""
        return self.rate(self.questions)

    def chance(self, one: Floats, other: Floats) -> Floats:
        return logistic(one - other)

"""RouteLLM's routers of a strong and a weak model: a factorisation of battles, and ratings by similarity."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Bools, Floats
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import Encoder, fit_encoder
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.neighbours import cosines, vectors_of, without_itself
from rlfocal.methods.routing import question_router
from rlfocal_rivals.pairs import BattleRouter, parts_of
from rlfocal_rivals.question import descend, logistic, to_numpy
from rlfocal_rivals.towers import Towers

GAMMA = 10.0
ELO = 400 / np.log(10)
"""Elo points per unit of log-odds."""
_RIDGE = 1e-6
_STEPS = 60


@question_router(
    "routellm_mf",
    "the cheapest model or the best of the dearer, by a factorisation of who wins over which question",
    fewest_models=2,
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
class FactorisedBattles(BattleRouter):
    """Asks the strong model where σ(δ(strong, x) - δ(weak, x)) reaches a threshold.

    δ(m, x) = w · (v_m / |v_m| ⊙ W [e(x), 1]) learns by cross-entropy to be higher for models that are
    right than for those that are not, with Gaussian noise of scale `noise` added to e(x). With more than two
    models: asks the one with the highest δ.
    """

    dimensions: int = 128
    """of v"""
    noise: float = 0.1
    epochs: int = 100
    batch: int = 64
    rate: float = 3e-4
    decay: float = 1e-5
    seeded = True
    revision = "3"

    def parts(self, train: Dataset) -> tuple[Dataset, Dataset]:
        learnt, held = (train.take(rows) for rows in parts_of(train))
        return learnt, held

    def battle(self, questions: tuple[str, ...], right: Bools, seed: int) -> Deltas:
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

        def loss(rows: torch.Tensor) -> torch.Tensor:
            noisy = e[rows] + self.noise * torch.randn(e[rows].shape, generator=generator)
            delta = ((noisy @ W[:-1] + W[-1]) * w) @ normalize(v, dim=1).T
            draws = torch.rand(delta.shape, generator=generator)
            winner = torch.where(won[rows], draws, -1.0).argmax(dim=1, keepdim=True)
            loser = torch.where(won[rows], -1.0, draws).argmax(dim=1, keepdim=True)
            return softplus(delta.gather(1, loser) - delta.gather(1, winner)).mean()

        descend(self, [v, W, w], loss, len(battles), generator)
        project, models = to_numpy(W * w, normalize(v, dim=1))
        # Without battles, nothing tells the models apart.
        models = models if len(battles) else np.zeros_like(models)
        return Deltas(encoder, Towers(project[:-1], project[-1], models), questions)


@dataclass(frozen=True)
class Deltas:
    """δ of M models."""

    encoder: Encoder
    towers: Towers
    questions: tuple[str, ...]
    """train's"""

    def rate(self, questions: tuple[str, ...]) -> Floats:
        return self.towers.log_odds(vectors_of(self.encoder, questions))

    def rate_train(self) -> Floats:
        """In-sample."""
        return self.rate(self.questions)

    def chance(self, one: Floats, other: Floats) -> Floats:
        return logistic(one - other)


@question_router(
    "routellm_sw",
    "the cheapest model or the best of the dearer, by Bradley-Terry ratings weighted by similarity",
    fewest_models=2,
    needs=("questions", "prices"),
    source="RouteLLM (arXiv 2406.18665), similarity-weighted ranking",
    differs="battles are between right and wrong answers of train; TF-IDF instead of a sentence encoder "
    "unless one is named; the threshold with the best accuracy on train, unless a share of strong calls "
    "is given; models are few, so they are not merged into tiers",
    space={"base": Range(1.0, 1000.0, log=True)},
)
@checked
class SimilarityWeighted(BattleRouter):
    """Asks the strong model where P(strong wins | x) reaches a threshold.

    Every train question x_i is a battle between every two models: one that alone is right wins; a tie counts
    as half a win for both. Its weight is γ^(1 + cos(x, x_i) / max_j cos(x, x_j)), γ = 10. With R the weighted
    Bradley-Terry ratings in Elo, P(strong wins) = 1 / (1 + 10^((R_weak - R_strong) / 400)). With more
    than two models: asks the one with the highest rating.
    """

    base: float = GAMMA
    """γ"""
    revision = "3"

    def battle(self, questions: tuple[str, ...], right: Bools, seed: int) -> Ratings:
        encoder = fit_encoder(self.encoder, questions)
        return Ratings(encoder, vectors_of(encoder, questions), right.astype(float), self.base)


@dataclass(frozen=True)
class Ratings:
    """Bradley-Terry ratings of M models, weighted by a question's similarity to train questions."""

    encoder: Encoder
    vectors: Floats
    """(n, D) of the train questions"""
    right: Floats
    """(n, M) whether each model was right on them"""
    base: float = GAMMA

    def rate(self, questions: tuple[str, ...]) -> Floats:
        """(T, M) Elo points, with mean 0."""
        return self._rate(cosines(self.vectors, vectors_of(self.encoder, questions)))

    def rate_train(self) -> Floats:
        """(n, M) for each train question, without its own battles."""
        return self._rate(without_itself(cosines(self.vectors, self.vectors)))

    def chance(self, one: Floats, other: Floats) -> Floats:
        """Elo's 1 / (1 + 10^((other - one) / 400))."""
        return np.asarray(1 / (1 + 10 ** ((other - one) / 400)))

    def _rate(self, similarities: Iterator[tuple[slice, Floats]]) -> Floats:
        M = self.right.shape[1]
        both = np.einsum("na,nb->nab", self.right, self.right).reshape(-1, M * M)
        parts = [bradley_terry(wins_of(battle_weights(part, self.base), both)) for _, part in similarities]
        return np.concatenate(parts) if parts else np.empty((0, M))


def battle_weights(similarity: Floats, base: float = GAMMA) -> Floats:
    """(T, n) γ^(1 + S), rows summing to 1, from cosines; equal where nothing is similar."""
    most = similarity.max(axis=1, keepdims=True)
    # -inf marks a question's similarity to itself, which must not count in its own ratings.
    scaled = np.where(np.isneginf(similarity) | (most > 0), similarity / np.where(most > 0, most, 1.0), 0.0)
    weights = base ** (1 + scaled)
    total = weights.sum(axis=1, keepdims=True)
    share: Floats = weights / np.where(total > 0, total, 1.0)
    return share


def wins_of(weights: Floats, both: Floats) -> Floats:
    """(T, M, M) weighted wins of a over b, ties as half, from indicators that both are right (n, M · M)."""
    M = round(both.shape[1] ** 0.5)
    right_too = (weights @ both).reshape(-1, M, M)
    right = np.diagonal(right_too, axis1=1, axis2=2)
    alone = right[:, :, None] - right_too
    total = weights.sum(axis=1)[:, None, None]
    wins: Floats = alone + (total - alone - alone.transpose(0, 2, 1)) / 2
    return wins


def bradley_terry(wins: Floats) -> Floats:
    """(T, M) maximum-likelihood Elo ratings with mean 0, from weighted wins (T, M, M), by Newton's method.

    A ridge of 1e-6 on the log-odds keeps the rating of a model that always wins finite.
    """
    T, M = wins.shape[:2]
    off = 1 - np.eye(M)
    played, won = (wins + wins.transpose(0, 2, 1)) * off, (wins * off).sum(axis=2)
    strengths = np.zeros((T, M))
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(strengths[:, None, :] - strengths[:, :, None]))
        slope = won - (played * p).sum(axis=2) - _RIDGE * strengths
        bend = -played * p * (1 - p)
        bend[:, np.arange(M), np.arange(M)] = -bend.sum(axis=2) + _RIDGE
        # Unclipped, Newton's steps overshoot where a model hardly ever lost.
        step = np.clip(np.linalg.solve(bend, slope[..., None])[..., 0], -1.0, 1.0)
        strengths += step
        if np.abs(step).max(initial=0.0) < 1e-9:
            break
    centred: Floats = ELO * (strengths - strengths.mean(axis=1, keepdims=True))
    return centred

"""RouteLLM's similarity-weighted ranking: Bradley-Terry ratings fitted anew for every question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from rlfocal.base.arrays import Floats
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, Encoder, fit_encoder
from rlfocal.methods._routing import ScoreRouter, question_router
from rlfocal.methods._text import questions_of
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.neighbours import cosines, vectors_of, without_itself
from rlfocal.methods.registry import MethodBase
from rlfocal.methods.routers._pairs import (
    ChancesAgainst,
    PairRouter,
    StrongWins,
    members_of,
    pair_of,
    route,
)

GAMMA = 10.0
ELO = 400 / np.log(10)
"""Elo points per unit of log-odds."""
_RIDGE = 1e-6
_STEPS = 60


@question_router(
    "routellm_sw",
    "the cheapest model or the best of the dearer, by Bradley-Terry ratings weighted by similarity",
    fewest_models=2,
    chooses_pair=True,
    needs=("questions", "prices"),
    source="RouteLLM (arXiv 2406.18665), similarity-weighted ranking",
    differs="battles are between right and wrong answers of train; TF-IDF instead of a sentence encoder "
    "unless one is named; the threshold with the best accuracy on train, unless a share of strong calls "
    "is given; models are few, so they are not merged into tiers",
    space={"base": Range(1.0, 1000.0, log=True)},
)
@checked
class SimilarityWeighted(MethodBase):
    """Asks the strong model where P(strong wins | x) reaches a threshold.

    Every train question x_i is a battle between every two models: one that alone is right wins; a tie counts
    as half a win for both. Its weight is γ^(1 + cos(x, x_i) / max_j cos(x, x_j)), γ = 10. With R the weighted
    Bradley-Terry ratings in Elo, P(strong wins) = 1 / (1 + 10^((R_weak - R_strong) / 400)). With more
    than two models: asks the one with the highest rating.
    """

    n_models: Annotated[int, Field(ge=2)] = 2
    """How many models to choose from: the strong one, the weak one, then the best on train."""
    strong_share: float = -1.0
    """Share of strong calls, by a threshold calibrated on train; below 0: the most accurate there."""
    base: float = GAMMA
    """γ"""
    encoder: str = TFIDF
    revision = "3"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[PairRouter] | list[ScoreRouter]:
        questions, pair = questions_of(train), pair_of(train)
        members = members_of(train, self.n_models)
        encoder = fit_encoder(self.encoder, questions)
        right = train.correct[:, members].astype(float)
        position = np.flatnonzero(members == pair.strong)[0]
        ratings = Ratings(encoder, vectors_of(encoder, questions), right, self.base)
        if len(members) == 2:
            worth = StrongWins(ratings, int(position))
            return [route(worth, pair, train, worth.train_values(), self.strong_share)]
        scorer = ChancesAgainst(ratings, int(position), members, len(train.models))
        return [ScoreRouter(scorer, train.prices, is_probability=False)]


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

"""EAGLE: Elo ratings of models on all train questions, mixed with ratings on similar questions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import PositiveFloat, PositiveInt

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget
from rlfocal.data.text import TFIDF, Encoder, fit_encoder, questions_of
from rlfocal.methods.checking import Range, Share, checked
from rlfocal.methods.knn import cosines, find_nearest, vectors_of
from rlfocal.methods.registry import MethodBase
from rlfocal.methods.routing import ask, question_router

INITIAL_RATING = 1500.0
"""The initial rating of a model."""


@question_router(
    "eagle",
    "the model with the best Elo rating, half over all of train, half over the 20 most similar questions",
    source="Eagle (arXiv 2409.15518)",
    differs="feedback is which of two models was right, for all pairs on each train document, in random "
    "order; TF-IDF instead of a sentence encoder unless one is named",
)
@checked
class Eagle(MethodBase):
    """Asks argmax_m P · Global(m) + (1 - P) · Local(m) among the models within the price limit.

    Elo: R_a and R_b move by ± K (S - E), with E = 1 / (1 + 10^((R_b - R_a) / 400)). S = 1 where only a is
    right, 0 where only b is, else 1/2. Each pair of models is compared on each document. A rating is the mean
    over all comparisons; local ratings start from the global ones. For a question without a known word, only
    the global ratings count.
    """

    neighbours: Annotated[PositiveInt, Range(5, 200, log=True)] = 20
    global_share: Annotated[Share, Range(0.0, 1.0)] = 0.5
    """P, the weight of the global ratings"""
    step: Annotated[PositiveFloat, Range(1.0, 128.0, log=True)] = 32.0
    """K, the step of an Elo update"""
    encoder: str = TFIDF
    seeded = True
    revision = "3"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[EagleRouter]:
        questions = questions_of(train)
        encoder = fit_encoder(self.encoder, questions)
        vectors = vectors_of(encoder, questions)
        return [
            self._make_router(train, encoder, vectors, draw_games(train.correct, np.random.default_rng(seed)))
            for seed in seeds
        ]

    def _make_router(self, train: Dataset, encoder: Encoder, vectors: Floats, games: Games) -> EagleRouter:
        start = np.full((1, len(train.models)), INITIAL_RATING)
        in_order = np.argsort(games.place, kind="stable")[None]
        overall = mean_ratings(start, games, in_order, self.step)[0]
        return EagleRouter(self, encoder, vectors, games, overall, train.prices)


class Games(NamedTuple):
    """The games of all models against each other on n documents, in the rounds of a round-robin."""

    right: Bools
    """(n, N) which models are right: a right model beats a wrong one; two right or two wrong ones draw."""
    seats: Ints
    """(n, N) the position of the model that plays at each seat of the round-robin."""
    place: Ints
    """(n,) the place of each document in the order of games, from 0."""


def draw_games(correct: Bools, rng: np.random.Generator) -> Games:
    """The games on n documents, in random order and with random seats; `correct` (n, N): who was right."""
    n, n_models = correct.shape
    place = rng.permutation(n)
    return Games(correct, rng.permuted(np.tile(np.arange(n_models), (n, 1)), axis=1), place)


@lru_cache(maxsize=8)
def rounds(n: int) -> tuple[tuple[Ints, Ints], ...]:
    """The pairs of n seats in each round of a round-robin (circle method), as two arrays of seats. Each pair
    meets once, and no seat plays twice in a round."""
    circle, schedule = list(range(n + n % 2)), []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        pairs = zip(circle[:half], circle[: half - 1 : -1], strict=True)
        met = np.array([pair for pair in pairs if max(pair) < n], dtype=np.int64).reshape(-1, 2)
        schedule.append((met[:, 0], met[:, 1]))
        circle.insert(1, circle.pop())
    return tuple(schedule)


def mean_ratings(start: Floats, games: Games, places: Ints, step: float) -> Floats:
    """(S, N) Elo ratings in S sequences of k documents, whose `places` are (S, k): the mean over all rounds.

    Ratings begin at `start` (S, N), and stay there if k = 0.
    """
    ratings, total = start.copy(), np.zeros_like(start)
    schedule = rounds(start.shape[1])
    for documents in places.T:
        seats = games.seats[documents]
        right = np.take_along_axis(games.right[documents], seats, axis=1).astype(np.float64)
        seated = np.take_along_axis(ratings, seats, axis=1)
        summed = np.zeros_like(seated)
        for first, second in schedule:
            lead = seated[:, second] - seated[:, first]
            score = (1 + right[:, first] - right[:, second]) / 2
            moved = step * (score - 1 / (1 + 10 ** (lead / 400)))
            seated[:, first] += moved
            seated[:, second] -= moved
            summed += seated
        np.put_along_axis(ratings, seats, seated, axis=1)
        of_models = np.empty_like(summed)
        np.put_along_axis(of_models, seats, summed, axis=1)
        total += of_models
    n = places.shape[1] * len(schedule)
    return total / n if n else start


@dataclass(frozen=True)
class EagleRouter:
    """Asks the model with the best rating among those within the price limit."""

    settings: Eagle
    encoder: Encoder
    vectors: Floats
    """(n, D) vectors of the train questions"""
    games: Games
    """The games of the models on the train questions."""
    overall: Floats
    """(N,) the global rating of each model"""
    prices: Floats
    """(N,) cents per 1,000 queries; NaN where unknown"""
    price_limit: float = math.inf
    """The highest price of a model that may be asked, in cents per 1,000 queries."""

    def decide(self, calls: Calls) -> Answers:
        scores = self.scores(questions_of(calls)).round(9)
        # Without a budget in cents, an unknown price does not rule a model out.
        affordable = ~(self.prices > self.price_limit)
        picked: Ints = np.where(affordable, scores, -np.inf).argmax(axis=1)
        return ask(calls, picked)

    def hold_to_budget(self, budget: Budget) -> EagleRouter | None:
        """The router within a budget; None if the budget pays for no model, or a price is unknown. A budget
        in cents leaves out dearer models, because Eagle's budget is per query."""
        if budget.unit == "models":
            return self if budget.amount >= 1 else None
        if np.isnan(self.prices).any() or self.prices.min() > budget.amount:
            return None
        return replace(self, price_limit=budget.amount)

    def scores(self, questions: tuple[str, ...]) -> Floats:
        """(T, N) each model's global rating mixed with its rating on similar train questions."""
        neighbours = find_nearest(
            cosines(self.vectors, vectors_of(self.encoder, questions)), self.settings.neighbours
        )
        arrival = np.argsort(self.games.place[neighbours.positions], axis=1, kind="stable")
        places = np.take_along_axis(neighbours.positions, arrival, axis=1)
        start = np.repeat(self.overall[None], len(questions), axis=0)
        local = mean_ratings(start, self.games, places, self.settings.step)
        share = self.settings.global_share
        both = share * self.overall + (1 - share) * local
        return np.where(neighbours.is_similar[:, None], both, self.overall)

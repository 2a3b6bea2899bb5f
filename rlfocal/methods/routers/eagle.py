"""EAGLE: Elo ratings from all feedback, mixed with ratings from feedback on similar questions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rlfocal.calls import Answered, Calls
from rlfocal.dataset import Dataset
from rlfocal.errors import InputError, unknown
from rlfocal.methods._neighbours import cosines, nearest, vectors_of
from rlfocal.methods._routing import ask
from rlfocal.methods._text import questions_of
from rlfocal.methods.registry import Entry, register
from rlfocal.methods.spaces import Range
from rlfocal.policy import Budget
from rlfocal.text import TFIDF, Encoder, fit_encoder

Floats = NDArray[np.float64]
Rating = TypeVar("Rating", float, NDArray[np.float64])

START = 1500.0
"""The initial rating of a model."""
STARTS = ("default", "global")


@register(
    Entry(
        "eagle",
        "the model with the best Elo rating, half over all of train, half over the 20 most similar questions",
        "what it answers",
        has_budgets=True,
        is_default=False,
        needs=("questions",),
        source="Eagle (arXiv 2409.15518)",
        differs="feedback is which of every two models was right on every train document, in order; "
        "TF-IDF instead of a sentence encoder unless one is named; local ratings start from the default "
        "(local_start=global: from the global ones)",
        space={
            "neighbours": Range(5, 200, log=True),
            "global_share": Range(0.0, 1.0),
            "step": Range(1.0, 128.0, log=True),
        },
    )
)
@dataclass(frozen=True)
class Eagle:
    """Asks argmax_m P · Global(m) + (1 - P) · Local(m) among the models within the price limit.

    Elo: R_a and R_b move by ± K (S - E), E = 1 / (1 + 10^((R_b - R_a) / 400)), S = 1 where only a is right, 0
    where only b is, else 1/2. For a question without a known word, only the global ratings count.
    """

    neighbours: int = 20
    global_share: float = 0.5
    """P"""
    step: float = 32.0
    """K"""
    local_start: str = "default"
    """Where local ratings start from: "default" or "global"."""
    encoder: str = TFIDF
    seeded = False

    def recipe(self, n_train: int) -> str:
        return "1"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[EagleRouter]:
        if self.neighbours < 1 or not 0 <= self.global_share <= 1 or not self.step > 0:
            raise InputError(
                f"eagle: neighbours={self.neighbours}, global_share={self.global_share:g}, step={self.step:g}"
                "; give at least 1 neighbour, a share from 0 to 1, and a step above 0"
            )
        if self.local_start not in STARTS:
            raise unknown("start of local ratings", self.local_start, STARTS, "eagle")
        questions = questions_of(train)
        encoder = fit_encoder(self.encoder, questions)
        right = train.correct.astype(float)
        overall = elo([START] * len(train.models), right.tolist(), self.step)
        return [
            EagleRouter(self, encoder, vectors_of(encoder, questions), right, np.array(overall), train.prices)
        ]


@dataclass(frozen=True)
class EagleRouter:
    """Asks the affordable model with the best rating."""

    settings: Eagle
    encoder: Encoder
    vectors: Floats
    """(n, D) of the train questions"""
    right: Floats
    """(n, N) whether each model was right on them"""
    overall: Floats
    """(N,) global ratings"""
    prices: Floats
    """(N,) cents per 1,000 queries; NaN where unknown"""
    most: float = math.inf
    """cents per 1,000 queries that a model may cost"""

    def decide(self, calls: Calls) -> Answered:
        scores = self.scores(questions_of(calls)).round(9)
        # Without a budget in cents, an unknown price does not rule a model out.
        affordable = ~(self.prices > self.most)
        picked: NDArray[np.int64] = np.where(affordable, scores, -np.inf).argmax(axis=1)
        return ask(calls, picked)

    def within(self, budget: Budget) -> EagleRouter | None:
        """At most one model each; in cents, no model that costs more, as Eagle's budget is per query."""
        if budget.unit == "models":
            return self if budget.amount >= 1 else None
        if np.isnan(self.prices).any() or self.prices.min() > budget.amount:
            return None
        return replace(self, most=budget.amount)

    def scores(self, questions: tuple[str, ...]) -> Floats:
        """(T, N)"""
        found = nearest(cosines(self.vectors, vectors_of(self.encoder, questions)), self.settings.neighbours)
        starts = np.full(len(self.overall), START) if self.settings.local_start == "default" else self.overall
        # In order of arrival: Elo ratings depend on the order of feedback.
        feedback = self.right[np.sort(found.at, axis=1)].transpose(1, 2, 0)
        local = elo([np.full(len(questions), start) for start in starts], feedback, self.settings.step)
        share = self.settings.global_share
        both = share * self.overall + (1 - share) * np.stack(local, axis=1)
        return np.where(found.known[:, None], both, self.overall)


def elo(ratings: Sequence[Rating], feedback: Iterable[Sequence[Rating]], step: float) -> list[Rating]:
    """Ratings of N models after feedback: per document, whether each model was right (N), 1 or 0.

    Every two models play on every document, in order. A rating may be an array over parallel streams.
    """
    rated = list(ratings)
    for right in feedback:
        for a in range(len(rated)):
            for b in range(a + 1, len(rated)):
                expected = 1 / (1 + 10 ** ((rated[b] - rated[a]) / 400))
                moved = step * ((1 + right[a] - right[b]) / 2 - expected)
                rated[a], rated[b] = rated[a] + moved, rated[b] - moved
    return rated

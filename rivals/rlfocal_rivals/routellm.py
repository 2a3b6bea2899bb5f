"""RouteLLM's routers, which ask a strong model where it is worth its price, and a weak one elsewhere."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple, Protocol

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget
from rlfocal.data.text import TFIDF, Encoder, fit_encoder, questions_of
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.knn import compare_with_others, cosines, vectors_of
from rlfocal.methods.registry import MethodBase
from rlfocal.methods.routing import ask, question_router
from rlfocal_rivals.question import Descent, descend, logistic, to_numpy
from rlfocal_rivals.towers import Towers

HELD_OUT_DIVISOR = 10
"""One in so many train documents is held out, to set the threshold."""


class Pair(NamedTuple):
    """The positions of the two models to choose between."""

    strong: int
    """The model with the best train accuracy among those dearer than the weak one; ties: the alphabetically
    first.

    Where all models cost the same, it is chosen from all but the weak one.
    """
    weak: int
    """The cheapest model; ties: the one with the best train accuracy."""


def pair_of(train: Dataset) -> Pair:
    """The strong and the weak model. Raises InputError if there is only one model, or a price is unknown."""
    if len(train.models) < 2:
        raise InputError(f"benchmark {train.benchmark!r} has one model; a strong-weak pair needs two")
    if np.isnan(train.prices).any():
        unpriced = train.models[int(np.isnan(train.prices).argmax())]
        raise InputError(
            f"a strong and a weak model are chosen by price, and the price of {unpriced!r} is unknown; give "
            "every model's price in the pool, or import prices"
        )
    right = train.correct.sum(axis=0)
    weak = int(np.lexsort((-right, train.prices))[0])
    dearer = train.prices > train.prices[weak]
    others = dearer if dearer.any() else np.arange(len(right)) != weak
    return Pair(int(np.where(others, right, -1).argmax()), weak)


def parts_of(train: Dataset) -> tuple[Dataset, Dataset]:
    """The documents to learn from, and every tenth to set the threshold; of fewer than ten, all do both."""
    is_held_out = np.arange(len(train)) % HELD_OUT_DIVISOR == HELD_OUT_DIVISOR - 1
    return (train.rows(~is_held_out), train.rows(is_held_out)) if is_held_out.any() else (train, train)


class StrengthEstimator(Protocol):
    """An estimator of the probability that the strong model alone is right, given that one model alone is.
    Only its ranking of questions matters."""

    def values(self, questions: tuple[str, ...]) -> Floats:
        """(T,) the estimate for each question."""
        ...

    def train_values(self) -> Floats:
        """(n,) the estimate for each train question; an implementation may leave out the question itself."""
        ...


@dataclass(frozen=True)
class BattleRouter(MethodBase):
    """Asks the strong model where the probability that it beats the weak one reaches a threshold."""

    strong_share: float = -1.0
    """The share of train questions put to the strong model, which sets the threshold. Below 0: the threshold
    with the best accuracy on train."""
    encoder: str = TFIDF

    @abstractmethod
    def battle(self, questions: tuple[str, ...], right: Bools, strong: int, seed: int) -> StrengthEstimator:
        """The estimator, fitted to train questions and to which of the two models were right: `right` (n, 2).

        `strong` is the strong model's column of `right`.
        """

    def split_train(self, train: Dataset) -> tuple[Dataset, Dataset]:
        """The train documents to learn from, and those that set the threshold."""
        return train, train

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[PairRouter]:
        pair = pair_of(train)
        fit_docs, cut_docs = self.split_train(train)
        right = fit_docs.correct[:, sorted(pair)]
        routers = []
        for seed in seeds if self.seeded else seeds[:1]:
            worth = self.battle(questions_of(fit_docs), right, int(pair.strong > pair.weak), seed)
            values = worth.train_values() if cut_docs is fit_docs else worth.values(questions_of(cut_docs))
            router = PairRouter(worth, pair, train.prices, cuts_of(values, cut_docs, pair), math.inf)
            routers.append(
                router.choose_best_threshold()
                if self.strong_share < 0
                else router.choose_share_threshold(self.strong_share)
            )
        return routers


class Cuts(NamedTuple):
    """All splits of train documents by a threshold on estimates, from none put to the strong model to all."""

    thresholds: Floats
    """(K,) thresholds, descending from inf to -inf; the others are midway between neighbouring estimates"""
    shares: Floats
    """(K,) the share of documents at or above each threshold, ascending from 0 to 1"""
    gains: Ints
    """(K,) the number of right answers at each threshold, less that of the weak model alone"""


def cuts_of(values: Floats, train: Dataset, pair: Pair) -> Cuts:
    """All splits of n train documents by their estimates, `values` (n,)."""
    right = train.correct.astype(np.int64)
    cut, cut_of = np.unique(-values.round(9), return_inverse=True)
    n = np.bincount(cut_of, minlength=len(cut)).cumsum()
    gain = right[:, pair.strong] - right[:, pair.weak]
    gains = np.bincount(cut_of, weights=gain, minlength=len(cut)).cumsum().round()
    return Cuts(
        np.concatenate([[np.inf], -(cut[:-1] + cut[1:]) / 2, [-np.inf]]),
        np.append(0, n) / max(len(values), 1),
        np.append(0, gains).astype(np.int64),
    )


@dataclass(frozen=True)
class PairRouter:
    """Asks the strong model where the estimate for the question reaches the threshold, else the weak one."""

    estimator: StrengthEstimator
    pair: Pair
    prices: Floats
    """(N,) cents per 1,000 queries; NaN where unknown"""
    cuts: Cuts
    threshold: float

    def decide(self, calls: Calls) -> Answers:
        is_strong = self.estimator.values(questions_of(calls)).round(9) >= self.threshold
        return ask(calls, np.where(is_strong, self.pair.strong, self.pair.weak).astype(np.int64))

    def choose_share_threshold(self, share: float) -> PairRouter:
        """The router that calls the strong model on the largest share of train documents up to `share`."""
        return replace(self, threshold=float(self.cuts.thresholds[self.cuts.shares <= share + 1e-9][-1]))

    def hold_to_budget(self, budget: Budget) -> PairRouter | None:
        """The router within a budget; None if the budget does not pay for the weak model. In cents, its
        threshold is the most accurate one that keeps to the budget on train."""
        if budget.unit == "models":
            return self if budget.amount >= 1 else None
        strong, weak = (self.prices[model] for model in self.pair)
        costs = self.cuts.shares * strong + (1 - self.cuts.shares) * weak
        affordable = costs <= budget.amount * (1 + 1e-9)
        return self.choose_best_threshold(affordable) if affordable.any() else None

    def choose_best_threshold(self, allowed: Bools | bool = True) -> PairRouter:
        """The router at the most accurate of the `allowed` thresholds (K,) on train; ties: the fewest strong
        calls.
        """
        best = np.where(allowed, self.cuts.gains, np.iinfo(np.int64).min).argmax()
        return replace(self, threshold=float(self.cuts.thresholds[best]))


# ---- a factorisation of battles


@question_router(
    "routellm_mf",
    "the cheapest model or the best of the dearer, by a factorisation of who wins over which question",
    fewest_models=2,
    needs=("questions", "prices"),
    source="RouteLLM (arXiv 2406.18665), matrix factorisation",
    differs="battles are between right and wrong answers of train; TF-IDF instead of a sentence encoder "
    "unless one is named, with a constant beside it; an epoch takes one battle of each document; a "
    "tenth of train sets the threshold, by accuracy unless a share of strong calls is given",
)
@checked
class FactorisedBattles(Descent, BattleRouter):
    """P(strong wins) = σ(δ(strong, x) - δ(weak, x)).

    δ(m, x) = w · (v_m / |v_m| ⊙ W [e(x), 1]) is trained by cross-entropy to be higher for a right model than
    for a wrong one. In training, Gaussian noise of scale `noise` is added to e(x).
    """

    dimensions: Annotated[int, Range(16, 256, log=True)] = 128
    """The number of dimensions of v."""
    noise: Annotated[float, Range(0.0, 0.3)] = 0.1
    epochs: Annotated[int, Range(25, 200, log=True)] = 100
    batch: int = 64
    rate: Annotated[float, Range(3e-5, 3e-3, log=True)] = 3e-4
    decay: Annotated[float, Range(1e-6, 1e-3, log=True)] = 1e-5
    seeded = True
    revision = "3"

    def split_train(self, train: Dataset) -> tuple[Dataset, Dataset]:
        return parts_of(train)

    def battle(self, questions: tuple[str, ...], right: Bools, strong: int, seed: int) -> Deltas:
        # torch takes seconds to import, and listing the methods must not.
        import torch
        from torch.nn.functional import normalize, softplus

        encoder = fit_encoder(self.encoder, questions)
        battles = np.flatnonzero(right.any(axis=1) & ~right.all(axis=1))
        e = torch.tensor(vectors_of(encoder, questions)[battles], dtype=torch.float32)
        won = torch.tensor(right[battles])
        generator = torch.Generator().manual_seed(seed)
        D, d = e.shape[1] + 1, self.dimensions
        v = torch.randn((2, d), generator=generator).requires_grad_()
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
        return Deltas(encoder, Towers(project[:-1], project[-1], models), questions, strong)


@dataclass(frozen=True)
class Deltas:
    """The estimator P(strong wins) = σ(δ(strong, x) - δ(weak, x)); `towers` compute δ of both models."""

    encoder: Encoder
    towers: Towers
    questions: tuple[str, ...]
    """The train questions."""
    strong: int

    def values(self, questions: tuple[str, ...]) -> Floats:
        delta = self.towers.log_odds(vectors_of(self.encoder, questions))
        return logistic(delta[:, self.strong] - delta[:, 1 - self.strong])

    def train_values(self) -> Floats:
        """(n,) the estimate for each train question, in-sample."""
        return self.values(self.questions)


# ---- ratings weighted by similarity


@question_router(
    "routellm_sw",
    "the cheapest model or the best of the dearer, by Bradley-Terry ratings weighted by similarity",
    fewest_models=2,
    needs=("questions", "prices"),
    source="RouteLLM (arXiv 2406.18665), similarity-weighted ranking",
    differs="battles are between right and wrong answers of train; TF-IDF instead of a sentence encoder "
    "unless one is named; the threshold with the best accuracy on train, unless a share of strong calls "
    "is given; models are few, so they are not merged into tiers",
)
@checked
class SimilarityWeightedRatings(BattleRouter):
    """P(strong wins) is the strong model's share of battles, weighted by similarity to the question x.

    Every train question x_i is a battle: a model that alone is right wins, and a tie counts as half a win for
    both. Its weight is γ^(1 + cos(x, x_i) / max_j cos(x, x_j)), γ = 10. Weighted Bradley-Terry ratings of two
    models give the same.
    """

    base: Annotated[float, Range(1.0, 1000.0, log=True)] = 10.0
    """γ, the base of the battles' weights"""
    revision = "3"

    def battle(self, questions: tuple[str, ...], right: Bools, strong: int, seed: int) -> Shares:
        encoder = fit_encoder(self.encoder, questions)
        won = (1.0 + right[:, strong] - right[:, 1 - strong]) / 2
        return Shares(encoder, vectors_of(encoder, questions), won, self.base)


@dataclass(frozen=True)
class Shares:
    """The estimator by the strong model's share of battles on train questions, weighted by similarity."""

    encoder: Encoder
    vectors: Floats
    """(n, D) vectors of the train questions"""
    wins: Floats
    """(n,) the strong model's wins in each battle: 1, 1/2 in a tie, or 0"""
    base: float

    def values(self, questions: tuple[str, ...]) -> Floats:
        return self._shares(cosines(self.vectors, vectors_of(self.encoder, questions)))

    def train_values(self) -> Floats:
        """(n,) the estimate for each train question, without its own battle."""
        return self._shares(compare_with_others(cosines(self.vectors, self.vectors)))

    def _shares(self, similarities: Iterator[tuple[slice, Floats]]) -> Floats:
        parts = [battle_weights(part, self.base) @ self.wins for _, part in similarities]
        return np.concatenate(parts) if parts else np.empty(0)


def battle_weights(similarity: Floats, base: float) -> Floats:
    """(T, n) the battles' weights γ^(1 + S), where γ is `base`; each row is scaled to sum to 1. S are cosines
    over the highest cosine of their row. A cosine of -inf gets weight 0."""
    most = similarity.max(axis=1, keepdims=True)
    # -inf marks a question's similarity to itself, which must not count in its own ratings.
    scaled = np.where(np.isneginf(similarity) | (most > 0), similarity / np.where(most > 0, most, 1.0), 0.0)
    weights = base ** (1 + scaled)
    total = weights.sum(axis=1, keepdims=True)
    share: Floats = weights / np.where(total > 0, total, 1.0)
    return share

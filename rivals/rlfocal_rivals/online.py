"""Rivals that learn online: bandits, which learn about the called model alone, and experts.

An arm is a model. The context x is the question along a few principal directions, plus a constant 1. The
reward r is whether the model was right. For arm m: A = I + Σ x xᵀ and b = Σ r x over the documents that it
learned from, θ = A⁻¹ b. Experts call all models: votes whose weights fall with errors, and the recent leader.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.calls import Answers, Calls, Stream
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, questions_of
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.registry import Entry, MethodBase, MethodT, answer_policy, register
from rlfocal.methods.routing import ask, question_router
from rlfocal.statistics.votes import soft_vote
from rlfocal_rivals.directions import Directions, fit_directions


@dataclass(frozen=True)
class Arms:
    """What N arms have learned; below γ = 1, older documents count less.

    With each document, A becomes γ A + x xᵀ + (1 - γ) I, B becomes γ² B + x xᵀ + (1 - γ²) I, and b becomes γ
    b + r x. For arms that were not called, x and r are 0, so that below γ = 1 they become uncertain again.
    The variance of θ · x is xᵀ A⁻¹ B A⁻¹ x (Russac et al., 2019), and xᵀ A⁻¹ x at γ = 1.
    """

    matrices: Floats
    """(N, K, K) A, the identity plus the discounted sum of x xᵀ"""
    squares: Floats
    """(N, K, K) B, as A with squared discounts"""
    inverses: Floats
    """(N, K, K) A⁻¹, the inverse of A"""
    sums: Floats
    """(N, K) b, the discounted sum of rewards times x"""
    gamma: float = 1.0
    """γ, the factor on an older label's weight for each newer one"""

    @classmethod
    def learn_all(cls, contexts: Floats, rewards: Bools, gamma: float = 1.0) -> Arms:
        """Arms that each learned from all of T documents, undiscounted: contexts (T, K), rewards (T, N)."""
        each = (rewards.shape[1], 1, 1)
        matrix = np.eye(contexts.shape[1]) + contexts.T @ contexts
        inverses, sums = np.tile(np.linalg.inv(matrix), each), rewards.T.astype(np.float64) @ contexts
        return cls(np.tile(matrix, each), np.tile(matrix, each), inverses, sums, gamma)

    def copy(self) -> Arms:
        matrices, squares = self.matrices.copy(), self.squares.copy()
        return Arms(matrices, squares, self.inverses.copy(), self.sums.copy(), self.gamma)

    @property
    def means(self) -> Floats:
        """(N, K) θ, each arm's estimated weights"""
        return np.asarray(np.einsum("nij,nj->ni", self.inverses, self.sums))

    def variances(self, context: Floats) -> Floats:
        """(N,) the variance xᵀ A⁻¹ B A⁻¹ x of each arm's estimate at a context x (K,), at least 0."""
        along = self.inverses @ context
        along_context: Floats = np.einsum("ni,nij,nj->n", along, self.squares, along)
        return np.asarray(np.maximum(along_context, 0.0))

    def learn(self, arm: int, context: Floats, reward: float) -> None:
        """Updates an arm with one document's reward; below γ = 1, all arms forget a little."""
        for parts, gamma in ((self.matrices, self.gamma), (self.squares, self.gamma**2)):
            parts *= gamma
            parts += (1 - gamma) * np.eye(len(context))
            parts[arm] += np.outer(context, context)
        changed = slice(None) if self.gamma < 1 else slice(arm, arm + 1)
        self.inverses[changed] = np.linalg.inv(self.matrices[changed])
        self.sums[:] *= self.gamma
        self.sums[arm] += reward * context


Discount = Annotated[float, Field(gt=0, le=1)]
"""γ, the factor on an older label's weight for each newer one; at 1 nothing is forgotten."""
Score = Callable[[Arms, Floats], Floats]
"""A function of the arms and a context (K,) that returns each arm's score (N,)."""


@dataclass(frozen=True)
class Bandit(MethodBase):
    """A bandit: a subclass says how it scores arms. By default, arms first learn from train."""

    encoder: str = TFIDF
    directions: Annotated[int, Range(4, 64, log=True)] = 16
    """The number of principal directions of the questions."""
    warm_start: bool = True
    """Whether every arm first learns from every train document; if not, arms start without data."""
    gamma: Discount = 1.0

    @abstractmethod
    def score(self, seed: int) -> Score:
        """The function that scores arms in one run, whose random numbers start from `seed`."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Gambler]:
        directions = fit_directions(self.encoder, questions_of(train), self.directions)
        contexts = contexts_of(questions_of(train), directions)
        learned_from = slice(None if self.warm_start else 0)
        arms = Arms.learn_all(contexts[learned_from], train.correct[learned_from], self.gamma)
        return [Gambler(self, directions, arms, seed) for seed in seeds]


@dataclass(frozen=True)
class Gambler:
    """A fitted bandit, which asks the model with the highest score; ties: the alphabetically first."""

    method: Bandit
    directions: Directions
    arms: Arms
    seed: int

    def decide(self, calls: Calls) -> Answers:
        """Decides on all documents by what arms learned on train; no test label is seen."""
        score = self.method.score(self.seed)
        contexts = contexts_of(questions_of(calls), self.directions)
        picked = [int(score(self.arms, context).argmax()) for context in contexts]
        return ask(calls, np.array(picked, dtype=np.int64))

    def decide_along(self, stream: Stream) -> None:
        """Decides on one document after another; after each answer, the called model's arm learns from it."""
        score, arms = self.method.score(self.seed), self.arms.copy()
        for turn in stream:
            [context] = contexts_of(questions_of(turn.calls), self.directions)
            arm = int(score(arms, context).argmax())
            turn.answer(int(ask(turn.calls, np.array([arm])).slots[0]))
            arms.learn(arm, context, float(turn.right[arm]))


def contexts_of(texts: Sequence[str], directions: Directions) -> Floats:
    """(T, K + 1) the questions' coordinates, with mean squared length 1 on train, and a constant 1."""
    along = directions.encode(texts)
    return np.hstack([along / np.sqrt(max(along.shape[1], 1)), np.ones((len(along), 1))])


def bandit(name: str, asks: str, source: str, differs: str) -> Callable[[MethodT], MethodT]:
    """Registers a bandit as an online method that needs the texts of questions; arguments as in `Entry`."""
    more: dict[str, Any] = {"protocols": ("online",), "fewest_models": 2, "has_budgets": False}
    return question_router(name, asks, source=source, differs=differs, **more)


_WARM_START_NOTE = "every model first learns from train instead of starting from scratch (`warm_start`)"
_DISCOUNT_NOTE = (
    "each model has its own statistics, as in `{}`; every model first learns from train, which fades as well"
)


@bandit(
    "linucb",
    "one: the highest upper bound on a linear probability of being right, learned as labels arrive",
    "Li et al. 2010, arXiv 1003.0146; as in public LinUCB routers of LLMs",
    _WARM_START_NOTE,
)
@checked
class LinUcb(Bandit):
    """Calls argmax_m θ_m · x + α √(xᵀ A_m⁻¹ B_m A_m⁻¹ x); only the called model learns."""

    alpha: Annotated[float, Range(0.03, 3.0, log=True)] = 1.0
    """α, the weight of uncertainty in a model's favour."""

    def score(self, seed: int) -> Score:
        def bound(arms: Arms, context: Floats) -> Floats:
            return np.asarray(arms.means @ context + self.alpha * np.sqrt(arms.variances(context)))

        return bound


@bandit(
    "thompson",
    "one: the highest linear probability of being right, drawn from the posterior so far",
    "Agrawal and Goyal 2013, arXiv 1209.3352",
    _WARM_START_NOTE,
)
@checked
class Thompson(Bandit):
    """Calls argmax_m t_m · x, with t_m drawn from N(θ_m, v² A_m⁻¹ B_m A_m⁻¹); only the called model
    learns."""

    v: Annotated[float, Range(0.03, 2.0, log=True)] = 0.5
    """The standard deviation of a reward, which is 0 or 1."""
    seeded = True

    def score(self, seed: int) -> Score:
        rng = np.random.default_rng(seed)

        def draw(arms: Arms, context: Floats) -> Floats:
            # For Gaussian t, the product t · x is Gaussian too.
            spreads = self.v * np.sqrt(arms.variances(context))
            return np.asarray(arms.means @ context + spreads * rng.standard_normal(len(spreads)))

        return draw


@bandit(
    "discounted_linucb",
    "one: the highest upper bound on a linear probability of being right, by labels that fade with age",
    "D-LinUCB (Russac et al., 2019, arXiv 1909.09146)",
    _DISCOUNT_NOTE.format("linucb"),
)
@checked
class DiscountedLinUcb(LinUcb):
    """LinUCB in which older labels count less."""

    alpha: Annotated[float, Range(0.03, 3.0, log=True)] = 0.5
    """α, the weight of uncertainty in a model's favour."""
    gamma: Annotated[Discount, Range(0.95, 1.0)] = 0.99


@bandit(
    "discounted_thompson",
    "one: the highest linear probability of being right, drawn from a posterior whose labels fade with age",
    "discounted linear Thompson sampling (Kim and Tewari, 2020, arXiv 1912.05695)",
    _DISCOUNT_NOTE.format("thompson"),
)
@checked
class DiscountedThompson(Thompson):
    """Thompson sampling in which older labels count less."""

    v: Annotated[float, Range(0.03, 2.0, log=True)] = 0.25
    """The standard deviation of a reward; lower than in `Thompson`, as forgetting makes arms more uncertain.
    """
    gamma: Annotated[Discount, Range(0.95, 1.0)] = 0.99


# ---- experts: all models are asked, and weighed by their errors


LEARNING_RATES = (0.01, 0.03, 0.1, 0.3, 1.0)


@answer_policy(
    "hedge",
    "all",
    "the plurality, each vote counting its model's weight, which falls with every wrong answer",
    protocols=("online",),
    fewest_models=2,
    source="Freund and Schapire 1997; fixed share: Herbster and Warmuth 1998",
    differs="starts with the weights that a pass over train leaves; the rate is the one whose votes are "
    "right most often there (`rate`); a little weight is shared out evenly, to follow a stream that "
    "changes (`share=0`: none)",
)
@checked
class Hedge(MethodBase):
    """Votes with weights: w_m <- w_m exp(-η [m was wrong]), normalised, then w_m <- (1 - α) w_m + α / N."""

    rate: NonNegativeFloat = 0.0
    """η, the rate; 0: the one of `LEARNING_RATES` whose votes are right most often in a pass over train.

    Ties: the smallest.
    """
    share: Annotated[float, Field(ge=0, lt=1), Range(1e-4, 0.3, log=True)] = 0.01
    """α, the assumed probability that the best model changes; 0: Freund and Schapire's Hedge."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Hedger]:
        passes = {
            rate: weights_along(~train.correct, rate, self.share)
            for rate in ([self.rate] if self.rate else LEARNING_RATES)
        }
        n_right = {
            rate: int((vote(train, each[:-1]) == train.labels)[train.labels >= 0].sum())
            for rate, each in passes.items()
        }
        best = max(passes, key=lambda rate: n_right[rate])
        return [Hedger(passes[best][-1], best, self.share)]


@dataclass(frozen=True)
class Hedger:
    """Calls all models, and answers their weighted plurality."""

    log_weights: Floats
    """(N,) ln w, the weights after train"""
    rate: float
    share: float

    def decide(self, calls: Calls) -> Answers:
        """Decides on all documents by the weights after train; no test label is seen."""
        return Answers(vote(calls.call_all(), self.log_weights))

    def decide_along(self, stream: Stream) -> None:
        """Answers a stream. After each answer, the weights of the models that were wrong fall."""
        log_weights = self.log_weights
        for turn in stream:
            turn.answer(int(vote(turn.calls.call_all(), log_weights)[0]))
            log_weights = reweigh(log_weights, ~turn.right, self.rate, self.share)


def reweigh(log_weights: Floats, wrong: Bools, rate: float, share: float) -> Floats:
    """(N,) ln w, normalised, after one document on which the models in `wrong` (N,) were wrong."""
    # In logarithms: a weight that underflowed to 0 could never rise again.
    left = log_weights - rate * wrong
    left = left - float(np.logaddexp.reduce(left))
    if not share:
        return left
    return np.asarray(np.logaddexp(left + np.log1p(-share), np.log(share / len(left))))


def weights_along(wrong: Bools, rate: float, share: float) -> Floats:
    """(T + 1, N) ln w before each of T documents and after the last; the first weights are equal.

    `wrong` (T, N) says which models were wrong.
    """
    every = [np.full(wrong.shape[1], -np.log(wrong.shape[1]))]
    for row in wrong:
        every.append(reweigh(every[-1], row, rate, share))
    return np.stack(every)


def vote(outputs: Dataset, log_weights: Floats) -> Ints:
    """(T,) the slot of the weighted plurality of all models; log-weights are (T, N) or (N,)."""
    votes = outputs.predictions[:, :, None] == np.arange(outputs.probs.shape[2])
    # Rounded, or the float error of a weight would break a tie.
    weights = np.exp(log_weights).round(12)
    everyone = np.ones(outputs.predictions.shape[1], dtype=np.bool_)
    return soft_vote(votes * weights[..., None], everyone, outputs.kind)


@register(
    Entry(
        "sliding_best",
        "the model that was right most often on the last 200 labels; then the others, to know who was right",
        "what the first answers",
        protocols=("online",),
        fewest_models=2,
        is_default=False,
        source="follow the leader (Hannan 1957; Cesa-Bianchi and Lugosi 2006), over a sliding window",
        differs="the window starts with the last train documents; every model is called for every document, "
        "and counted",
    )
)
@checked
class SlidingWindowLeader(MethodBase):
    """Answers as the model does that was right most often on the last labels; calls all models."""

    window: Annotated[PositiveInt, Range(20, 2000, log=True)] = 200
    """The number of labels in the window."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Follower]:
        return [Follower(train.correct[-self.window :], self.window)]


@dataclass(frozen=True)
class Follower:
    """Answers as the model does that was right most often in the window. Ties: the alphabetically first."""

    train_correct: Bools
    """(W, N) which models were right on the last W train documents; W is at most the window"""
    window: int

    def decide(self, calls: Calls) -> Answers:
        """Asks the model that leads at the end of train for every document; no test label is seen."""
        return ask(calls, np.full(len(calls), self.train_correct.sum(axis=0).argmax()))

    def decide_along(self, stream: Stream) -> None:
        """Answers a stream with a moving window.

        After each answer it calls the other models too, because a label is compared with called models alone.
        """
        last = list(self.train_correct)
        n_right = self.train_correct.sum(axis=0)
        for turn in stream:
            turn.answer(int(ask(turn.calls, n_right[None].argmax(axis=1)).slots[0]))
            turn.calls.call_all()
            last.append(turn.right)
            n_right = n_right + last[-1]
            if len(last) > self.window:
                n_right = n_right - last.pop(0)

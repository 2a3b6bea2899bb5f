"""Cascades, which ask models in turn, the next one only where the last is not sure.

A search on train finds the chain of models, and the score from which each model's answer is accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Annotated, NamedTuple, Protocol

import numpy as np

from rlfocal.base.arrays import Bools, Floats
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget
from rlfocal.methods.checking import Range
from rlfocal.methods.registry import MethodBase, answer_policy

N_THRESHOLDS = 40
"""The default number of thresholds tried per model."""
MAX_CHAIN_MODELS = 3
"""The most models in a chain."""
MAX_CANDIDATE_MODELS = 16
"""The most models that chains are made of.

Of a larger pool, chains are made of the models with the best trade-off of cost and train accuracy.
"""
_COST_SLACK = 1e-9  # mean costs are sums of inexact shares


class AnswerScorer(Protocol):
    """A function that scores how far to trust a model's answer, from that model's output alone."""

    def __call__(self, documents: Dataset, model: int) -> Floats:
        """(T,) the scores of the answers of the model at this position."""
        ...


class Chain(NamedTuple):
    """Models in the order in which they are asked.

    The answer of each model but the last is accepted only if its score reaches the model's threshold.
    """

    order: tuple[int, ...]
    thresholds: tuple[float, ...]
    """The threshold of each model but the last, in the order of asking."""


class CascadeTable(NamedTuple):
    """The scores, correctness and prices on train that the search for a chain uses."""

    scores: Floats
    """(T, N) the score of each model's answer"""
    right: Bools
    """(T, N) whether each model is right"""
    prices: Floats
    """(N,) the price of each model, in cents per 1,000 queries; NaN where unknown"""


class CascadeScore(NamedTuple):
    """The cost and accuracy of a chain on train."""

    n_right: int
    cost: float
    """The mean cost of a document, in models or cents as the budget's unit is."""
    chain: Chain


@dataclass(frozen=True)
class Cascade:
    """Asks the models of a chain in turn until an answer's score reaches the model's threshold.

    The last model has no threshold.
    """

    chain: Chain
    beliefs: tuple[Logistic, ...]
    """For each model of the chain, the probability that it is right where it is asked, given its score."""
    scorer: AnswerScorer
    table: CascadeTable
    polish: bool
    """Whether Nelder-Mead refines the thresholds beyond the grid."""
    points: int
    """The number of thresholds tried per model."""

    def decide(self, calls: Calls) -> Answers:
        T, models = len(calls), np.arange(len(calls.models))
        slots, probability = np.full(T, -1, dtype=np.int64), np.zeros(T)
        open_ = np.ones(T, dtype=np.bool_)
        for model, threshold, belief in zip(*_list_stages(self.chain), self.beliefs, strict=True):
            outputs = calls.call(open_[:, None] & (models == model))
            score = self.scorer(outputs, model)
            slots = np.where(open_, outputs.predictions[:, model], slots)
            probability = np.where(open_, belief(_log_odds(score)[:, None]), probability)
            open_ &= score < threshold
        return Answers(slots, probability)

    def hold_to_budget(self, budget: Budget) -> Cascade | None:
        """The cascade that is right most often on train within the budget; None if none is cheap enough."""
        chain = best_chain(
            self.table, budget.costs(self.table.prices), budget.amount, self.points, self.polish
        )
        return None if chain is None else replace(self, chain=chain, beliefs=_fit_beliefs(chain, self.table))


def fit_cascade(train: Dataset, scorer: AnswerScorer, points: int, polish: bool = False) -> Cascade:
    """The cascade that is right most often on train, whatever it costs; ties: the fewest calls."""
    N = len(train.models)
    scores = np.stack([scorer(train, model) for model in range(N)], axis=1)
    table = CascadeTable(scores, train.correct, train.prices)
    chain = best_chain(table, np.ones(N), math.inf, points, polish)
    assert chain is not None  # with no budget, some single model is left
    return Cascade(chain, _fit_beliefs(chain, table), scorer, table, polish, points)


def best_chain(
    table: CascadeTable, cost: Floats, amount: float, points: int = N_THRESHOLDS, polish: bool = False
) -> Chain | None:
    """The chain of up to MAX_CHAIN_MODELS models that is right most often on train, within a budget.

    Its mean cost on train is at most `amount`, if a call of each model has the `cost` (N,). All orders of the
    models and all pairs of thresholds on a grid are tried: `points` quantiles of each model's scores. Ties go
    to the cheaper chain, then to the first order. `polish`: Nelder-Mead then refines the thresholds. None if
    no model is cheap enough.
    """
    models = _preselect(table, cost)
    best: CascadeScore | None = None
    for model in models:
        if cost[model] <= amount + _COST_SLACK:
            n_right = int(table.right[:, model].sum())
            best = _choose_better(best, CascadeScore(n_right, float(cost[model]), Chain((model,), ())))
    for reached in _extend_chains(table, cost, models, amount, points):
        best = _choose_better(best, reached)
    if best is None:
        return None
    return _polish(best, table, cost, amount).chain if polish else best.chain


def run(chain: Chain, table: CascadeTable, cost: Floats) -> CascadeScore:
    """Runs a chain on train, document by document, and returns its cost and accuracy."""
    T = len(table.right)
    open_, n_right, total = np.ones(T, dtype=np.bool_), 0, 0.0
    for model, threshold in zip(*_list_stages(chain), strict=True):
        total += cost[model] * int(open_.sum())
        accepted = open_ & (table.scores[:, model] >= threshold)
        n_right += int(table.right[accepted, model].sum())
        open_ &= ~accepted
    return CascadeScore(n_right, total / max(T, 1), chain)


def _list_stages(chain: Chain) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The chain's models, and the least score at which each one's answer is accepted."""
    return chain.order, (*chain.thresholds, -math.inf)


def _fit_beliefs(chain: Chain, table: CascadeTable) -> tuple[Logistic, ...]:
    """For each model of the chain, a regression of being right on its score, where the chain asks it."""
    open_, beliefs = np.ones(len(table.right), dtype=np.bool_), []
    for model, threshold in zip(*_list_stages(chain), strict=True):
        score = table.scores[:, model]
        beliefs.append(fit_logistic(_log_odds(score[open_])[:, None], table.right[open_, model]))
        open_ &= score < threshold
    return tuple(beliefs)


def _preselect(table: CascadeTable, cost: Floats) -> list[int]:
    """Positions of at most MAX_CANDIDATE_MODELS models of known cost.

    They are those on the frontier of cost and accuracy, then the most accurate.
    """
    n_right = table.right.sum(axis=0)
    ranked = [int(m) for m in np.lexsort((cost, -n_right)) if math.isfinite(cost[m])]
    front, cheapest = [], math.inf
    for model in ranked:
        if cost[model] < cheapest:
            front.append(model)
            cheapest = cost[model]
    rest = [model for model in ranked if model not in front]
    return sorted([*front, *rest][:MAX_CANDIDATE_MODELS])


def _choose_better(best: CascadeScore | None, score: CascadeScore) -> CascadeScore:
    if best is None:
        return score
    return score if (score.n_right, -score.cost) > (best.n_right, -best.cost + _COST_SLACK) else best


def _extend_chains(
    table: CascadeTable, cost: Floats, models: list[int], amount: float, points: int
) -> Iterator[CascadeScore]:
    """Yields, for every ordered pair of models, the best chain of two or three models that starts with it."""
    from scipy.sparse import csr_array

    T, right = len(table.right), table.right.astype(np.float64)
    # A model's candidate thresholds are the distinct quantiles of its scores.
    shares = np.linspace(0, 1, points + 2)[1:-1]
    edges = [np.unique(np.quantile(scores, shares, method="higher")) for scores in table.scores.T]
    bins = [np.searchsorted(e, table.scores[:, m], side="right") for m, e in enumerate(edges)]
    for i, j in permutations(models, 2):
        last = np.array([k for k in models if k not in (i, j)], dtype=np.int64)
        shape = (len(edges[i]) + 1, len(edges[j]) + 1)
        cell = bins[i] * shape[1] + bins[j]
        onehot = csr_array((np.ones(T), (cell, np.arange(T))), shape=(shape[0] * shape[1], T))
        stacked = np.column_stack([np.ones(T), right[:, i], right[:, j], right[:, last]])
        below = _sum_below((onehot @ stacked).reshape(*shape, -1))
        # below[a, b]: counts over the documents under the a-th threshold of i and the b-th of j.
        n, of_i, of_j, of_last = below[..., 0], below[..., 1], below[..., 2], below[..., 3:]
        so_far = (of_i[-1, -1] - of_i[:, -1:]) + (of_j[:, -1:] - of_j)
        spent = cost[i] + cost[j] * n[:, -1:] / T + np.zeros_like(n)
        if not len(last):
            so_far, spent = (so_far + of_j)[..., None], spent[..., None]
        else:
            so_far = so_far[..., None] + of_last
            spent = spent[..., None] + cost[last] * n[..., None] / T
        # The last row and column are above every score: there j, or the third model, is asked everywhere.
        n_right = np.where(spent <= amount + _COST_SLACK, so_far.round(), -1)
        top = n_right == n_right.max()
        a, b, k = np.unravel_index(np.where(top, spent, math.inf).argmin(), top.shape)
        if n_right[a, b, k] < 0:
            continue
        order = (i, j, int(last[k])) if len(last) else (i, j)
        thresholds = (_find_threshold(edges[i], int(a)), _find_threshold(edges[j], int(b)))[: len(order) - 1]
        yield CascadeScore(int(n_right[a, b, k]), float(spent[a, b, k]), _shorten(Chain(order, thresholds)))


def _sum_below(counts: Floats) -> Floats:
    """(A + 1, B + 1, ...) sums over all cells (A, B, ...) before each row and column."""
    padded = np.zeros((counts.shape[0] + 1, counts.shape[1] + 1, *counts.shape[2:]))
    padded[1:, 1:] = counts.cumsum(axis=0).cumsum(axis=1)
    return padded


def _find_threshold(edges: Floats, index: int) -> float:
    """The threshold that accepts scores from cell `index` between the edges on."""
    return -math.inf if index == 0 else math.inf if index > len(edges) else float(edges[index - 1])


def _shorten(chain: Chain) -> Chain:
    """The chain up to the first model whose answer is always accepted."""
    if -math.inf in chain.thresholds:
        end = chain.thresholds.index(-math.inf)
        return Chain(chain.order[: end + 1], chain.thresholds[:end])
    return chain


def _polish(start: CascadeScore, table: CascadeTable, cost: Floats, amount: float) -> CascadeScore:
    """Refines the grid's best thresholds by Nelder-Mead; keeps the result only if it is better."""
    from scipy.optimize import minimize

    if not start.chain.thresholds or not np.isfinite(start.chain.thresholds).all():
        return start
    T, best = len(table.right), start

    def loss(thresholds: Floats) -> float:
        nonlocal best
        reached = run(Chain(start.chain.order, tuple(thresholds.tolist())), table, cost)
        if reached.cost > amount + _COST_SLACK:
            return 1.0 + reached.cost - amount
        best = _choose_better(best, reached)
        return -reached.n_right / T

    first = np.array(start.chain.thresholds)
    simplex = np.vstack([first, first + 0.02 * np.eye(len(first))])
    minimize(loss, first, method="Nelder-Mead", options={"initial_simplex": simplex, "maxfev": 200})
    return best


_MIN_PROBABILITY = 1e-6  # bound on probabilities, so that log-odds are finite


def top_probability_of(documents: Dataset, model: int) -> Floats:
    """(T,) a model's probability (or share of samples) for its own answer; 0 without an answer."""
    predictions = documents.predictions[:, model]
    of_answer = documents.probs[np.arange(len(predictions)), model, np.maximum(predictions, 0)]
    return np.where(predictions >= 0, of_answer, 0.0)


def _log_odds(probability: Floats) -> Floats:
    """The log-odds of probabilities, clipped away from 0 and 1."""
    kept = np.clip(probability, _MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
    odds: Floats = np.log(kept) - np.log1p(-kept)
    return odds


@dataclass(frozen=True)
class Logistic:
    """A logistic regression with one output, σ(w · x + b)."""

    weights: Floats
    bias: float

    def __call__(self, x: Floats) -> Floats:
        """(T,) probabilities, from x (T, D)."""
        from scipy.special import expit

        probability: Floats = expit(x @ self.weights + self.bias)
        return probability


def fit_logistic(x: Floats, right: Bools, inverse_ridge: float = 1.0) -> Logistic:
    """A logistic regression of being right (T,) on standardised x (T, D).

    If all are right or all wrong, it is the constant (n right + 1) / (n + 2).
    """
    from sklearn.linear_model import LogisticRegression

    if right.all() or not right.any():
        share = (right.sum() + 1) / (len(right) + 2)
        return Logistic(np.zeros(x.shape[1]), float(_log_odds(np.array(share))))
    mean, scale = x.mean(axis=0), x.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    fitted = LogisticRegression(C=inverse_ridge, tol=1e-8, max_iter=10_000).fit((x - mean) / scale, right)
    weights = fitted.coef_[0] / scale
    return Logistic(weights, float(fitted.intercept_[0] - weights @ mean))


# ---- the cascade by calibrated confidence


@answer_policy(
    "cascade",
    f"up to {MAX_CHAIN_MODELS} models in turn, until a calibrated top probability is high enough",
    "what the last one answers",
    has_budgets=True,
    source="rational LLM cascades (arXiv 2501.09345)",
    differs=f"order and thresholds by grid search on train ({N_THRESHOLDS} quantiles per model, every order "
    f"of {MAX_CANDIDATE_MODELS} models) instead of a copula model for a given order; top probabilities are "
    "calibrated by Platt's method",
)
@dataclass(frozen=True)
class CalibratedCascade(MethodBase):
    """Stops at the first model whose calibrated top probability reaches its threshold.

    The calibrated probability is P(right) = σ(a · logit(top probability) + b), with a and b per model, fitted
    on train. Order and thresholds have the highest train accuracy, within a budget if there is one.
    """

    points: Annotated[int, Range(3, 80, log=True)] = N_THRESHOLDS
    """The number of thresholds tried per model."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Cascade]:
        return [fit_cascade(train, RightByOutput.fit(train, _top_log_odds), self.points)]


@dataclass(frozen=True)
class RightByOutput:
    """Scores an answer by the probability that it is right, from a logistic regression for each model."""

    regressions: tuple[Logistic, ...]
    """One regression for each model."""
    features: Callable[[Dataset, int], Floats]
    """A function of documents and a model's position that returns (T, D) features of the model's output."""

    @classmethod
    def fit(cls, train: Dataset, features: Callable[[Dataset, int], Floats]) -> RightByOutput:
        each = (fit_logistic(features(train, model), right) for model, right in enumerate(train.correct.T))
        return cls(tuple(each), features)

    def __call__(self, documents: Dataset, model: int) -> Floats:
        return self.regressions[model](self.features(documents, model))


def _top_log_odds(documents: Dataset, model: int) -> Floats:
    """(T, 1) the log-odds of the probability that a model gives its own answer to each document"""
    return _log_odds(top_probability_of(documents, model))[:, None]

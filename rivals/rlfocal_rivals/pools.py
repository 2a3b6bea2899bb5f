"""Constant pools: the same few models for every document, chosen on train.

They are chosen by the accuracy of their vote, by their held-out likelihood, or by the mutual information of
their votes and the right answer.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, Policy
from rlfocal.methods.constant_pools import MAX_POOL_SIZE, PoolFusion, constant_pool
from rlfocal.methods.registry import MethodBase, answer_policy
from rlfocal.statistics.diversity import plurality_accuracy
from rlfocal.statistics.votes import find_earliest_slots, plurality, soft_vote

# ---- by the accuracy of their vote


@dataclass(frozen=True)
class ConstantVote:
    """Asks the same models on every document, and answers by their vote."""

    fusion: Vote
    pool: Bools

    def decide(self, calls: Calls) -> Answers:
        return Answers(self.fusion.vote(calls.call(self.pool), self.pool))


class Vote(PoolFusion):
    """A rule that fuses a pool's outputs without learned parameters; a subclass says how."""

    @abstractmethod
    def vote(self, documents: Dataset, pool: Bools) -> Ints:
        """(T,) the slots that the pool (N,) answers, from the outputs of its members."""

    def fit(self, train: Dataset, pool: Bools) -> Policy:
        return ConstantVote(self, pool)


@constant_pool("best_plurality", "plurality", "the plurality")
class PluralityFusion(Vote):
    """Answers the slot that most members predict."""

    enumerable = 20_000

    def vote(self, documents: Dataset, pool: Bools) -> Ints:
        return plurality(documents.predictions, pool, documents.kind)

    def accuracies(self, train: Dataset, pools: Bools) -> Floats:
        return plurality_accuracy(train.predictions, train.labels, pools, train.kind)


@constant_pool("best_soft_vote", "soft vote", "the highest mean probability")
class SoftVoteFusion(Vote):
    """Answers the slot with the members' highest mean probability."""

    def vote(self, documents: Dataset, pool: Bools) -> Ints:
        return soft_vote(documents.probs, pool, documents.kind)


# ---- grown greedily


Members = tuple[int, ...]
"""Positions of models, in the order in which they joined the pool."""


class PoolCriterion(Protocol):
    """The criterion by which a pool is chosen, fitted on train, and the fusion of its members."""

    def score_members(self, members: Members) -> float: ...

    def answer(self, outputs: Dataset, members: Members) -> Answers:
        """The members' fused answers, from `outputs`."""
        ...


@dataclass(frozen=True)
class ConstantPool(MethodBase):
    """A constant pool, grown greedily: each step adds the model that raises the criterion most."""

    chosen_by: Callable[[Dataset], PoolCriterion]
    size: int = 0
    """The number of models in the pool; 0: until the criterion no longer rises, up to MAX_POOL_SIZE."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[GrownPool]:
        choice, amount = self.chosen_by(train), float(self.size or MAX_POOL_SIZE)
        members = grow(
            choice.score_members, np.ones(len(train.models)), amount, None if self.size else MAX_POOL_SIZE
        )
        return [GrownPool(choice, members, train.prices)]


@dataclass(frozen=True)
class GrownPool:
    """Asks the same grown pool on every document, and fuses its outputs as its criterion says."""

    choice: PoolCriterion
    members: Members
    prices: Floats
    """(N,) the price of each model, in cents per 1,000 queries; NaN where unknown"""

    def decide(self, calls: Calls) -> Answers:
        outputs = calls.call(np.isin(np.arange(len(calls.models)), self.members))
        return self.choice.answer(outputs, self.members)

    def hold_to_budget(self, budget: Budget) -> GrownPool | None:
        """A pool grown anew within the budget; None if the budget pays for no model."""
        members = grow(self.choice.score_members, budget.costs(self.prices), budget.amount, MAX_POOL_SIZE)
        return GrownPool(self.choice, members, self.prices) if members else None


def grow(score: Callable[[Members], float], cost: Floats, amount: float, largest: int | None) -> Members:
    """The members of a pool, added one by one: each time the affordable model that raises the score most.

    `amount` limits the summed `cost` (N,), which is infinite where unknown. With `largest`, growth also stops
    at that many models, or when no model raises the score. Ties: the first model.
    """
    pool: Members = ()
    worth_now, spent = -math.inf, 0.0
    while largest is None or len(pool) < largest:
        affordable = [
            m
            for m in range(len(cost))
            if m not in pool and spent + cost[m] <= amount + 1e-9 and cost[m] < math.inf
        ]
        if not affordable:
            break
        worths = [score((*pool, model)) for model in affordable]
        best = int(np.argmax(worths))
        if largest is not None and worths[best] <= worth_now:
            break
        pool, worth_now = (*pool, affordable[best]), worths[best]
        spent += cost[affordable[best]]
    return pool


ChosenBy = TypeVar("ChosenBy", bound=Callable[[Dataset], PoolCriterion])


def grown_pool(name: str, asks: str, answers: str, **more: Any) -> Callable[[ChosenBy], ChosenBy]:
    """Registers a method of constant pools; the decorated function returns its criterion from train.

    `more`: further fields of the method's `Entry`.
    """

    def enter(chosen_by: ChosenBy) -> ChosenBy:
        answer_policy(
            name,
            f"the pool of up to {MAX_POOL_SIZE} models {asks}",
            answers,
            has_budgets=True,
            argument="size",
            make=lambda making: ConstantPool(chosen_by, making.size or 0),
            **more,
        )(ConstantPool)
        return chosen_by

    return enter


LIKELIHOOD_FOLDS = 5
TEMPERATURES = np.geomspace(0.1, 10.0, 21)
_MIN_SHARE = 1e-3  # lower bound on shares, so that an answer no member gave has a finite logarithm


@dataclass(frozen=True)
class Likelihood:
    """The criterion Σ_t log(mean over members m of p_m(right slot)), out of fold on train.

    For choices, p_m = softmax(log-probs / temperature_m), with temperatures from a grid. For free answers,
    p_m is the share of samples times its mean at the right answer.
    """

    scales: Floats
    """(N,) each model's temperature for choices, or its factor on shares of samples for free answers."""
    right_probs: Floats
    """(T, N) each model's calibrated probability of the right slot of train documents, out of fold."""

    def score_members(self, members: Members) -> float:
        total = np.log(np.maximum(self.right_probs[:, list(members)].mean(axis=1), _MIN_SHARE)).sum()
        return round(float(total), 9)

    def answer(self, outputs: Dataset, members: Members) -> Answers:
        """Answers the slot with the highest mean calibrated probability."""
        pool = np.isin(np.arange(len(outputs.models)), members)
        calibrated = np.where(pool[:, None], _calibrate(outputs, self.scales), 0.0)
        mean = calibrated.sum(axis=1) / max(len(members), 1)
        return Answers(soft_vote(calibrated, pool, outputs.kind), mean.max(axis=1, initial=0.0))


@grown_pool(
    "likelihood_pool",
    "with the highest held-out likelihood, once calibrated",
    "the highest mean calibrated probability",
    source="calibrated log-likelihood of multi-LLM answers (arXiv 2510.02377)",
    differs="chooses one pool for all documents instead of one answer per document; log-likelihood of the "
    f"right choice, each model's temperature fitted on the other {LIKELIHOOD_FOLDS - 1} of "
    f"{LIKELIHOOD_FOLDS} folds",
    needs=("log-probs",),
)
def calibrate(train: Dataset) -> Likelihood:
    """The criterion, calibrated on the train documents with a right slot, in `LIKELIHOOD_FOLDS` folds."""
    rows = train.rows(train.labels >= 0)
    fold = np.arange(len(rows)) % LIKELIHOOD_FOLDS
    if train.kind == "answers":
        share = rows.chances
        factors = [
            (share[fold != f].sum(axis=0) + 1) / ((fold != f).sum() + 2)
            for f in (*range(LIKELIHOOD_FOLDS), -1)
        ]
        return Likelihood(factors[-1], share * np.array(factors)[fold])
    right = rows.labels[:, None, None]
    logs = np.stack([np.take_along_axis(_log_softmax(rows, t), right, axis=2)[:, :, 0] for t in TEMPERATURES])
    best = [logs[:, fold != f].sum(axis=1).argmax(axis=0) for f in (*range(LIKELIHOOD_FOLDS), -1)]
    held_out = np.exp(np.take_along_axis(logs, np.array(best)[fold][None], axis=0)[0])
    # Without documents, all temperatures tie, and the first on the grid would be taken.
    scales = TEMPERATURES[best[-1]] if len(rows) else np.ones(len(train.models))
    return Likelihood(scales, held_out)


def _calibrate(documents: Dataset, scales: Floats) -> Floats:
    """(T, N, C) the models' calibrated probabilities, by temperatures or by factors (N,) on shares"""
    if documents.kind == "answers":
        return documents.probs * scales[:, None]
    return np.exp(_log_softmax(documents, scales[:, None]))


def _log_softmax(documents: Dataset, temperature: Floats | float) -> Floats:
    """(T, N, C) the log-softmax of the log-probs divided by a temperature; -inf where the slot does not
    exist."""
    from scipy.special import log_softmax

    exists = np.arange(documents.probs.shape[2]) < documents.n_choices[:, None, None]
    logs: Floats = log_softmax(np.where(exists, documents.logprobs / temperature, -np.inf), axis=2)
    return logs


@grown_pool(
    "mutual_information_pool",
    "grown by the mutual information of votes and correctness",
    "the likeliest slot, given who votes for it",
    source="Turkmen et al., an information-theoretic view of LLM ensemble selection (arXiv 2602.08003)",
    differs="every choice of a document is read as a statement, true or false, that a model votes for or "
    "not; stops where the Miller-Madow estimate no longer rises, unless a size is given",
)
@dataclass(frozen=True)
class Information:
    """The criterion I(Y; X_S), the mutual information of a pool S's votes with which slot is right.

    There is one observation per document and slot: Y is whether the slot is right, and X_m whether m predicts
    it. A model m raises the criterion by I(Y; X_m | X_S).
    """

    train: Dataset

    def score_members(self, members: Members) -> float:
        return round(mutual_information(*self._read_votes(members)), 12)

    def answer(self, outputs: Dataset, members: Members) -> Answers:
        """Answers the slot whose pattern of members' votes was right most often on train."""
        exists = np.arange(outputs.probs.shape[2]) < outputs.n_choices[:, None]
        chance = np.where(exists, self.chances(members)[_read_patterns(outputs, members)], -1.0)
        top = exists & (chance == chance.max(axis=1, keepdims=True))
        voted = outputs.predictions[:, :, None] == np.arange(outputs.probs.shape[2])
        winner = find_earliest_slots(top, voted) if outputs.kind == "answers" else top.argmax(axis=1)
        slots = np.where(exists.any(axis=1), winner, -1).astype(np.int64)
        return Answers(slots, np.maximum(chance.max(axis=1, initial=0.0), 0.0))

    def chances(self, members: Members) -> Floats:
        """(2^M,) P(Y = 1 | pattern), smoothed: (n right + share) / (n + 1) for a pattern of n slots. `share`
        is the share of right slots among all."""
        pattern, is_right = self._read_votes(members)
        seen = np.bincount(pattern, minlength=2 ** len(members))
        right = np.bincount(pattern, weights=is_right, minlength=2 ** len(members))
        share = is_right.mean() if len(is_right) else 0.0
        shares: Floats = (right + share) / (seen + 1)
        return shares

    def _read_votes(self, members: Members) -> tuple[Ints, Bools]:
        """(R,) the pattern of votes and (R,) whether the slot is right, for all slots of train documents."""
        slots = np.arange(self.train.probs.shape[2])
        exists = slots < self.train.n_choices[:, None]
        return _read_patterns(self.train, members)[exists], (self.train.labels[:, None] == slots)[exists]


def mutual_information(pattern: Ints, is_right: Bools) -> float:
    """I(Y; X) of n patterns X (n,) and outcomes Y (n,), in nats, less Miller and Madow's bias (1955).

    The bias is (distinct pairs of X and Y - distinct X - distinct Y + 1) / 2n.
    """
    n = len(pattern)
    if n == 0:
        return 0.0
    _, pattern_of = np.unique(pattern, return_inverse=True)
    joint = np.bincount(2 * pattern_of + is_right, minlength=2 * (pattern_of.max() + 1)).reshape(-1, 2) / n
    of_x, of_y = joint.sum(axis=1, keepdims=True), joint.sum(axis=0, keepdims=True)
    cell = joint > 0
    information = (joint[cell] * np.log(joint[cell] / (of_x * of_y)[cell])).sum()
    bias = (cell.sum() - len(of_x) - (of_y > 0).sum() + 1) / (2 * n)
    return float(information - bias)


def _read_patterns(documents: Dataset, members: Members) -> Ints:
    """(T, C) the pattern of votes for each slot: bit i is 1 where the i-th member predicts it."""
    slots = np.arange(documents.probs.shape[2])
    pattern = np.zeros((len(documents), len(slots)), dtype=np.int64)
    for bit, model in enumerate(members):
        pattern |= (documents.predictions[:, model, None] == slots).astype(np.int64) << bit
    return pattern

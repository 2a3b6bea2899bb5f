"""The constant pool whose votes are most informative about the right answer (arXiv 2602.08003)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget
from rlfocal.methods.pools import Grown, grow
from rlfocal.methods.pools.constant_pools import LARGEST
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.statistics.votes import first_given


@register(
    Entry(
        "mutual_information_pool",
        f"the pool of up to {LARGEST} models grown by the mutual information of votes and correctness",
        "the likeliest slot, given who votes for it",
        has_budgets=True,
        is_default=False,
        source="Turkmen et al., an information-theoretic view of LLM ensemble selection (arXiv 2602.08003)",
        differs="every choice of a document is read as a statement, true or false, that a model votes for or "
        "not; stops where the Miller-Madow estimate no longer rises, unless a size is given",
        argument="size",
        make=lambda making: MutualInformationPool(making.size or 0),
        reads=("outputs",),
    )
)
@dataclass(frozen=True)
class MutualInformationPool(MethodBase):
    """Grown greedily: each model added has the highest I(Y; X_m | X_S), which is I(Y; X_S∪m) - I(Y; X_S).

    One observation per document and slot: Y, whether the slot is right, and X_m, whether m predicts it. The
    pool answers the slot with the highest P(Y = 1 | X_S), counted on train.
    """

    size: int = 0
    """Models in the pool; 0: as many as add information, up to LARGEST."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[VotePool]:
        pool = _grow_pool(train, np.ones(len(train.models)), float(self.size or LARGEST), exact=self.size > 0)
        return [fit_votes(train, pool)]


@dataclass(frozen=True)
class VotePool:
    """Answers the slot whose pattern of votes was most often right on train."""

    members: tuple[int, ...]
    """Positions, in the order in which the pool grew."""
    chances: Floats
    """(2^M,) the probability that a slot is right, by its pattern of votes."""
    train: Dataset

    def decide(self, calls: Calls) -> Answered:
        said = calls.call(np.isin(np.arange(len(calls.models)), self.members))
        exists = np.arange(said.probs.shape[2]) < said.n_choices[:, None]
        chance = np.where(exists, self.chances[_patterns(said, self.members)], -1.0)
        top = exists & (chance == chance.max(axis=1, keepdims=True))
        voted = said.predictions[:, :, None] == np.arange(said.probs.shape[2])
        winner = first_given(top, voted) if calls.kind == "answers" else top.argmax(axis=1)
        slots = np.where(exists.any(axis=1), winner, -1).astype(np.int64)
        return Answered(slots, np.maximum(chance.max(axis=1, initial=0.0), 0.0))

    def within(self, budget: Budget) -> VotePool | None:
        """Grown within the budget; None if it cannot pay for any model."""
        members = _grow_pool(self.train, budget.costs(self.train.prices), budget.amount, exact=False)
        return fit_votes(self.train, members) if members else None


def fit_votes(train: Dataset, members: Grown) -> VotePool:
    """P(Y = 1 | pattern) as (right + share) / (seen + 1), with share that of all slots that are right."""
    pattern, is_right = _observed(train, members)
    seen = np.bincount(pattern, minlength=2 ** len(members))
    right = np.bincount(pattern, weights=is_right, minlength=2 ** len(members))
    share = is_right.mean() if len(is_right) else 0.0
    return VotePool(members, (right + share) / (seen + 1), train)


def mutual_information(pattern: Ints, is_right: Bools) -> float:
    """I(Y; X) of observed patterns and outcomes, in nats, less Miller and Madow's bias (1955).

    The bias is (cells that occur - patterns that occur - outcomes that occur + 1) / 2n.
    """
    n = len(pattern)
    if n == 0:
        return 0.0
    _, at = np.unique(pattern, return_inverse=True)
    joint = np.bincount(2 * at + is_right, minlength=2 * (at.max() + 1)).reshape(-1, 2) / n
    of_x, of_y = joint.sum(axis=1, keepdims=True), joint.sum(axis=0, keepdims=True)
    cell = joint > 0
    information = (joint[cell] * np.log(joint[cell] / (of_x * of_y)[cell])).sum()
    bias = (cell.sum() - len(of_x) - (of_y > 0).sum() + 1) / (2 * n)
    return float(information - bias)


def _grow_pool(train: Dataset, cost: Floats, amount: float, exact: bool) -> Grown:
    def information(members: Grown) -> float:
        return round(mutual_information(*_observed(train, members)), 12)

    return grow(information, cost, amount, None if exact else LARGEST)


def _observed(train: Dataset, members: Grown) -> tuple[Ints, Bools]:
    """(R,) pattern of votes and (R,) whether the slot is right, for every slot of every document."""
    slots = np.arange(train.probs.shape[2])
    exists = slots < train.n_choices[:, None]
    return _patterns(train, members)[exists], (train.labels[:, None] == slots)[exists]


def _patterns(documents: Dataset, members: Grown) -> Ints:
    """(T, C) which members predict a slot, as a binary number."""
    slots = np.arange(documents.probs.shape[2])
    pattern = np.zeros((len(documents), len(slots)), dtype=np.int64)
    for bit, model in enumerate(members):
        pattern |= (documents.predictions[:, model, None] == slots).astype(np.int64) << bit
    return pattern

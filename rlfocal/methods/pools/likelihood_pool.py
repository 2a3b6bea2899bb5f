"""The constant pool with the highest held-out likelihood on train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget
from rlfocal.methods.pools import Grown, grow
from rlfocal.methods.pools.constant_pools import LARGEST
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.statistics.votes import soft_vote

FOLDS = 5
TEMPERATURES = np.geomspace(0.1, 10.0, 21)
_FLOOR = 1e-3  # lower bound on shares, so that an answer no member gave has a finite logarithm


@register(
    Entry(
        "likelihood_pool",
        f"the pool of up to {LARGEST} models with the highest held-out likelihood, once calibrated",
        "the highest mean calibrated probability",
        has_budgets=True,
        is_default=False,
        source="calibrated log-likelihood of multi-LLM answers (arXiv 2510.02377)",
        differs="chooses one pool for all documents instead of one answer per document; log-likelihood of "
        f"the right choice, each model's temperature fitted on the other {FOLDS - 1} of {FOLDS} folds",
        argument="size",
        make=lambda making: LikelihoodPool(making.size or 0),
        needs=("log-probs",),
        reads=("outputs",),
    )
)
@dataclass(frozen=True)
class LikelihoodPool(MethodBase):
    """Grown greedily by Σ_t log(mean over members m of p_m(right slot)), out-of-fold on train.

    For choices, p_m = softmax(log-probs / temperature_m). Free answers have no log-probs: there p_m is the
    share of passes times its mean for the right answer. Temperatures come from a grid.
    """

    size: int = 0
    """Models in the pool; 0: as many as help, up to LARGEST."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[CalibratedVote]:
        scales, held_out = calibrate(train)
        start = CalibratedVote((), scales, held_out, train.prices)
        grown = start.grown(np.ones(len(train.models)), float(self.size or LARGEST), exact=self.size > 0)
        return [grown]


@dataclass(frozen=True)
class CalibratedVote:
    """Answers the slot with the highest mean calibrated probability."""

    members: Grown
    scales: Floats
    """(N,) temperatures for choices, factors for free answers."""
    held_out: Floats
    """(T, N) the out-of-fold calibrated probability of train's right slots."""
    prices: Floats

    def decide(self, calls: Calls) -> Answered:
        pool = np.isin(np.arange(len(calls.models)), self.members)
        said = calls.call(pool)
        calibrated = np.where(pool[:, None], _calibrated(said, self.scales), 0.0)
        mean = calibrated.sum(axis=1) / max(len(self.members), 1)
        return Answered(soft_vote(calibrated, pool, calls.kind), mean.max(axis=1, initial=0.0))

    def grown(self, cost: Floats, amount: float, exact: bool) -> CalibratedVote:
        """The pool grown greedily from no members."""

        def likelihood(members: Grown) -> float:
            total = np.log(np.maximum(self.held_out[:, list(members)].mean(axis=1), _FLOOR)).sum()
            return round(float(total), 9)

        members = grow(likelihood, cost, amount, None if exact else LARGEST)
        return CalibratedVote(members, self.scales, self.held_out, self.prices)

    def within(self, budget: Budget) -> CalibratedVote | None:
        """Grown within the budget; None if it cannot pay for any model."""
        found = self.grown(budget.costs(self.prices), budget.amount, exact=False)
        return found if found.members else None


def calibrate(train: Dataset) -> tuple[Floats, Floats]:
    """(N,) each model's scale, and (T', N) the out-of-fold calibrated probability of the right slot.

    T' of the T documents have a right slot; the t-th of them is in fold t mod FOLDS.
    """
    rows = train.rows(train.labels >= 0)
    fold = np.arange(len(rows)) % FOLDS
    if train.kind == "answers":
        share = rows.chances
        factors = [(share[fold != f].sum(axis=0) + 1) / ((fold != f).sum() + 2) for f in (*range(FOLDS), -1)]
        return factors[-1], share * np.array(factors)[fold]
    right = rows.labels[:, None, None]
    logs = np.stack([np.take_along_axis(_log_softmax(rows, t), right, axis=2)[:, :, 0] for t in TEMPERATURES])
    best = [logs[:, fold != f].sum(axis=1).argmax(axis=0) for f in (*range(FOLDS), -1)]
    held_out = np.exp(np.take_along_axis(logs, np.array(best)[fold][None], axis=0)[0])
    # Without documents, all temperatures tie, and the first on the grid would be taken.
    return TEMPERATURES[best[-1]] if len(rows) else np.ones(len(train.models)), held_out


def _calibrated(documents: Dataset, scales: Floats) -> Floats:
    """(T, N, C)"""
    if documents.kind == "answers":
        return documents.probs * scales[:, None]
    return np.exp(_log_softmax(documents, scales[:, None]))


def _log_softmax(documents: Dataset, temperature: Floats | float) -> Floats:
    """(T, N, C) of the log-probs divided by a temperature; -inf where there is no slot."""
    from scipy.special import log_softmax

    exists = np.arange(documents.probs.shape[2]) < documents.n_choices[:, None, None]
    logs: Floats = log_softmax(np.where(exists, documents.logprobs / temperature, -np.inf), axis=2)
    return logs

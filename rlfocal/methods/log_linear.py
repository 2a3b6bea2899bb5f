"""Log-linear pools: a weight per model and a bias per choice, fitted by cross-entropy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from rlfocal.base.arrays import Bools, Floats
from rlfocal.base.errors import RunError
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset, Kind
from rlfocal.methods.checking import Range
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.statistics.calibration import top_probability
from rlfocal.statistics.votes import first_given

RIDGE = 1e-3
CONVERGED = 1e-4  # the largest gradient entry of the mean loss, by the largest |x|, that counts as converged


@register(
    Entry(
        "log_linear",
        "all",
        "the highest weighted sum of log-probs, plus a bias per choice",
        needs=("log-probs",),
        reads=("outputs",),
        with_task="fitted per task",
    )
)
@dataclass(frozen=True)
class LogLinear(MethodBase):
    """The log-linear pool of all models."""

    ridge: Annotated[float, Range(1e-4, 100.0, log=True)] = RIDGE

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[LogLinearPool]:
        return [fit_log_linear(train, np.ones(len(train.models), dtype=np.bool_), self.ridge)]


@dataclass(frozen=True)
class LogLinearPool:
    """Answers the slot c with the highest Σ_i w_i x_ic + b_c over the members i."""

    members: Bools
    """(N,)"""
    weights: Floats
    """(M,) w, one per member"""
    biases: Floats
    """(C,) b"""

    def decide(self, calls: Calls) -> Answered:
        documents = calls.call(self.members)
        x, exists = evidence(documents, self.members)
        logits = np.einsum("tmc,m->tc", x, self.weights) + self.biases
        return highest(logits, x, exists, documents.kind)


def highest(logits: Floats, x: Floats, exists: Bools, kind: Kind) -> Answered:
    """The existing slot with the highest logit (T, C); `x` is the evidence (T, M, C)."""
    # Rounded, or the float error of a sum would break a tie.
    logits = np.where(exists, logits.round(9), -np.inf)
    top = exists & (logits == logits.max(axis=1, keepdims=True))
    winner = first_given(top, x > 0) if kind == "answers" else top.argmax(axis=1)
    slots = np.where(exists.any(axis=1), winner, -1).astype(np.int64)
    return Answered(slots, top_probability(logits, exists))


def fit_log_linear(train: Dataset, members: Bools, ridge: float = RIDGE) -> LogLinearPool:
    """The log-linear pool of the `members` (N,), fitted by L-BFGS to convergence.

    Minimises the cross-entropy summed over the train documents + ridge / 2 · Σ w². For choices, x is the
    log-softmax over a document's choices. Free answers have no fixed slots, so no bias can be learned, and
    most shares are 0, which has no logarithm: there x is the share of passes, and the biases stay 0.
    Documents where no slot is right, or no member gave the right answer, are left out.

    Raises RunError if the fit does not converge.
    """
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    every_x, every_exists = evidence(train, members)
    T, M, C = every_x.shape
    has_right = (train.labels >= 0) & every_exists[np.arange(T), train.labels]
    start = np.concatenate([np.full(M, 1 / M), np.zeros(C)])
    if not has_right.any():
        return LogLinearPool(members, start[:M], start[M:])
    labels = train.labels[has_right]
    right = np.eye(C)[labels]
    closed = np.where(every_exists[has_right], 0.0, -np.inf)
    x = np.ascontiguousarray(every_x[has_right].transpose(1, 0, 2)).reshape(M, -1)
    n, learns_bias = len(labels), train.kind == "choices"

    def mean_loss(parameters: Floats) -> tuple[float, Floats]:
        w, b = parameters[:M], parameters[M:]
        log_p = log_softmax((w @ x).reshape(n, C) + b + closed, axis=1)
        surplus = (np.exp(log_p) - right) / n
        slope = np.concatenate([x @ surplus.ravel() + ridge / n * w, learns_bias * surplus.sum(axis=0)])
        return float(-log_p[np.arange(n), labels].mean() + ridge / (2 * n) * w @ w), slope

    limits = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-7}
    found = minimize(mean_loss, start, jac=True, method="L-BFGS-B", options=limits)
    if not np.abs(found.jac).max() < CONVERGED * max(1.0, np.abs(x).max(initial=0.0)):
        raise RunError(f"the log-linear pool of {train.benchmark!r} did not converge: {found.message}")
    return LogLinearPool(members, found.x[:M], found.x[M:])


def evidence(documents: Dataset, members: Bools) -> tuple[Floats, Bools]:
    """(T, M, C) x, 0 where there is no slot, and (T, C) which slots the members' outputs have."""
    if documents.kind == "answers":
        shares = documents.probs[:, members]
        return shares, np.asarray((shares > 0).any(axis=1))
    exists = np.arange(documents.probs.shape[2]) < documents.n_choices[:, None]
    return np.where(exists[:, None], documents.logprobs[:, members], 0.0), exists

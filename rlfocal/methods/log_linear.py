"""Log-linear pools: a weight per model and a bias per choice, which the text may shift, by cross-entropy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import RunError
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset, Kind
from rlfocal.data.text import TFIDF, Encoder, fit_encoder
from rlfocal.methods.checking import Range
from rlfocal.methods.registry import Entry, MethodBase, answer_policy, register
from rlfocal.methods.text import RIDGES, questions_of, ridge_by_folds
from rlfocal.statistics.calibration import top_probability
from rlfocal.statistics.votes import first_given

RIDGE = 1e-3
CONVERGED = 1e-4  # the largest gradient entry of the mean loss, by the largest |x|, that counts as converged
_TO_CONVERGENCE = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-7}
_TO_TELL_RIDGES_APART = {"maxiter": 1_000, "ftol": 1e-9, "gtol": 1e-5}


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


@answer_policy(
    "log_linear+text",
    "all",
    "as `log_linear`; the question's text shifts the biases, or with free answers the weights",
    needs=("questions", "log-probs"),
    source="`log_linear`, given the same text as the methods that read questions",
    differs="free answers have no fixed slots that a text could favour, so it shifts the weights",
    reads=("question", "outputs"),
)
@dataclass(frozen=True)
class LogLinearText(MethodBase):
    """`log_linear` with text features e beside the log-probs; their ridge is cross-validated on train.

    Slot c has the logit Σ_i w_i x_ic + b_c + v_c · e; for free answers, Σ_i (w_i + v_i · e) x_ic.
    """

    encoder: str = TFIDF

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[LogLinearPool]:
        everyone = np.ones(len(train.models), dtype=np.bool_)
        encoder = fit_encoder(self.encoder, questions_of(train))
        examples = Examples.of(train, everyone, encoder.encode(questions_of(train)))

        def held_out_losses(fitted: Ints, held: Ints) -> Iterator[float]:
            pool, others, tested = examples.start, examples.take(fitted), examples.take(held)
            for ridge in RIDGES:
                pool, _ = minimise(others, pool, RIDGE, ridge, _TO_TELL_RIDGES_APART)
                yield tested.loss(pool)[0]

        ridge = ridge_by_folds(len(examples.labels), held_out_losses)
        pool = _converged(examples, RIDGE, ridge, f"log_linear+text of {train.benchmark!r}")
        return [LogLinearPool(everyone, *pool, encoder)]


class Parameters(NamedTuple):
    """What is learned of M models."""

    weights: Floats
    """(M,) w"""
    biases: Floats
    """(C,) b"""
    by_text: Floats
    """(D, C) v; for free answers (D, M)"""


@dataclass(frozen=True)
class LogLinearPool:
    """Answers the slot c with the highest Σ_i w_i x_ic + b_c over the members i; text may shift b or w."""

    members: Bools
    """(N,)"""
    weights: Floats
    """(M,) w, one per member"""
    biases: Floats
    """(C,) b"""
    by_text: Floats | None = None
    """As in `Parameters`."""
    encoder: Encoder | None = None
    """None: the text is not read."""

    def decide(self, calls: Calls) -> Answered:
        documents = calls.call(self.members)
        x, exists = evidence(documents, self.members)
        logits = np.einsum("tmc,m->tc", x, self.weights) + self.biases
        if self.encoder is not None and self.by_text is not None:
            shift = self.encoder.encode(questions_of(calls)) @ self.by_text
            logits += shift if calls.kind == "choices" else np.einsum("tmc,tm->tc", x, shift)
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
    examples = Examples.of(train, members, np.zeros((len(train), 0)))
    pool = _converged(examples, ridge, np.inf, f"the log-linear pool of {train.benchmark!r}")
    return LogLinearPool(members, *pool)


class Examples(NamedTuple):
    """n documents whose right slot the members' outputs contain."""

    kind: Kind
    x: Floats
    """(M, n, C)"""
    closed: Floats
    """(n, C) -inf where there is no slot, else 0"""
    text: Floats
    """(n, D)"""
    labels: Ints
    """(n,)"""

    @classmethod
    def of(cls, train: Dataset, members: Bools, text: Floats) -> Examples:
        x, exists = evidence(train, members)
        taught = (train.labels >= 0) & exists[np.arange(len(train)), train.labels]
        by_model = np.ascontiguousarray(x[taught].transpose(1, 0, 2))
        closed = np.where(exists[taught], 0.0, -np.inf)
        return cls(train.kind, by_model, closed, text[taught], train.labels[taught])

    def take(self, rows: Ints) -> Examples:
        return Examples(self.kind, self.x[:, rows], self.closed[rows], self.text[rows], self.labels[rows])

    @property
    def start(self) -> Parameters:
        """Equal weights."""
        M, _, C = self.x.shape
        by_text = np.zeros((self.text.shape[1], C if self.kind == "choices" else M))
        return Parameters(np.full(M, 1 / M), np.zeros(C), by_text)

    def loss(self, pool: Parameters) -> tuple[float, Parameters]:
        """The cross-entropy summed over the documents, and its gradient."""
        # SciPy takes a while to import, and listing the methods must not.
        from scipy.special import log_softmax

        M, n, C = self.x.shape
        reads = pool.by_text.size > 0
        logits = (pool.weights @ self.x.reshape(M, -1)).reshape(n, C) + pool.biases
        if reads and self.kind == "choices":
            logits += self.text @ pool.by_text
        elif reads:
            logits = np.einsum("mnc,nm->nc", self.x, pool.weights + self.text @ pool.by_text)
        log_p = log_softmax(logits + self.closed, axis=1)
        rows = np.arange(n)
        value = -float(log_p[rows, self.labels].sum())
        surplus = np.exp(log_p)
        surplus[rows, self.labels] -= 1
        by_weight = self.x.reshape(M, -1) @ surplus.ravel()
        if self.kind == "choices":
            by_text = self.text.T @ surplus if reads else pool.by_text
            return value, Parameters(by_weight, surplus.sum(axis=0), by_text)
        by_text = self.text.T @ np.einsum("mnc,nc->nm", self.x, surplus) if reads else pool.by_text
        return value, Parameters(by_weight, np.zeros(C), by_text)


def minimise(
    examples: Examples, start: Parameters, ridge: float, text_ridge: float, limits: dict[str, float]
) -> tuple[Parameters, float]:
    """The minimum of the cross-entropy summed over documents + ridge / 2 · Σ w² + text_ridge / 2 · Σ v², by
    L-BFGS, and the largest absolute gradient entry of the mean loss there. An infinite `text_ridge` leaves v
    as it is."""
    from scipy.optimize import minimize

    n, M, until = len(examples.labels), len(start.weights), len(start.weights) + len(start.biases)

    def parts_of(parameters: Floats) -> Parameters:
        by_text = parameters[until:].reshape(start.by_text.shape)
        return Parameters(parameters[:M], parameters[M:until], by_text)

    def mean_loss(parameters: Floats) -> tuple[float, Floats]:
        pool = parts_of(parameters)
        value, slopes = examples.loss(pool)
        value += ridge / 2 * float(pool.weights @ pool.weights)
        by_text = np.zeros(start.by_text.size)
        if by_text.size and np.isfinite(text_ridge):
            value += text_ridge / 2 * float((pool.by_text**2).sum())
            by_text = (slopes.by_text + text_ridge * pool.by_text).ravel()
        slope = np.concatenate([slopes.weights + ridge * pool.weights, slopes.biases, by_text])
        return value / n, slope / n

    first = np.concatenate([part.ravel() for part in start])
    minimum = minimize(mean_loss, first, jac=True, method="L-BFGS-B", options=limits)
    return parts_of(minimum.x), float(np.abs(minimum.jac).max())


def _converged(examples: Examples, ridge: float, text_ridge: float, what: str) -> Parameters:
    """The minimum; where nothing can be learned, the start. Raises RunError if it is not reached."""
    if not len(examples.labels):
        return examples.start
    pool, slope = minimise(examples, examples.start, ridge, text_ridge, _TO_CONVERGENCE)
    if not slope < CONVERGED * max(1.0, np.abs(examples.x).max(initial=0.0)):
        raise RunError(f"{what} did not converge (gradient {slope:.1e})")
    return pool


def evidence(documents: Dataset, members: Bools) -> tuple[Floats, Bools]:
    """(T, M, C) x, 0 where there is no slot, and (T, C) which slots the members' outputs have."""
    if documents.kind == "answers":
        shares = documents.probs[:, members]
        return shares, np.asarray((shares > 0).any(axis=1))
    exists = np.arange(documents.probs.shape[2]) < documents.n_choices[:, None]
    return np.where(exists[:, None], documents.logprobs[:, members], 0.0), exists

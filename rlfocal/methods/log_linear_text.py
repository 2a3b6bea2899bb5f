"""Log-linear pools whose biases, or weights, depend on the question's text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import RunError
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset, Kind
from rlfocal.data.text import TFIDF, Encoder, fit_encoder
from rlfocal.methods.log_linear import CONVERGED, RIDGE, evidence, highest
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.methods.text import RIDGES, questions_of, ridge_by_folds

_TO_CONVERGENCE = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-7}
_TO_TELL_RIDGES_APART = {"maxiter": 1_000, "ftol": 1e-9, "gtol": 1e-5}


@register(
    Entry(
        "log_linear+text",
        "all",
        "as `log_linear`; the question's text shifts the biases, or with free answers the weights",
        needs=("questions", "log-probs"),
        is_default=False,
        source="`log_linear`, given the same text as the methods that read questions",
        differs="free answers have no fixed slots that a text could favour, so it shifts the weights",
        reads=("question", "outputs"),
    )
)
@dataclass(frozen=True)
class LogLinearText(MethodBase):
    """`log_linear` with text features e beside the log-probs; their ridge is cross-validated on train.

    Slot c has the logit Σ_i w_i x_ic + b_c + v_c · e; for free answers, Σ_i (w_i + v_i · e) x_ic.
    """

    encoder: str = TFIDF

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[LogLinearTextPool]:
        encoder = fit_encoder(self.encoder, questions_of(train))
        examples = Examples.of(train, encoder.encode(questions_of(train)))
        M, C = examples.x.shape[1:]
        start = Pool(np.full(M, 1 / M), np.zeros(C), np.zeros((examples.text.shape[1], examples.text_width)))
        if not len(examples.labels):
            return [LogLinearTextPool(encoder, np.inf, start)]

        def held_out_losses(fitted: Ints, held: Ints) -> Iterator[float]:
            pool, others, tested = start, examples.take(fitted), examples.take(held)
            for ridge in RIDGES:
                pool, _ = minimise(others, ridge, pool, _TO_TELL_RIDGES_APART)
                yield tested.loss(tested.log_probabilities(pool))

        ridge = ridge_by_folds(len(examples.labels), held_out_losses)
        pool, slope = minimise(examples, ridge, start, _TO_CONVERGENCE)
        if not slope < CONVERGED:
            raise RunError(f"log_linear+text of {train.benchmark!r} did not converge (gradient {slope:.1e})")
        return [LogLinearTextPool(encoder, ridge, pool)]


class Pool(NamedTuple):
    """The learned parameters."""

    weights: Floats
    """(M,) w, one per model"""
    biases: Floats
    """(C,) b"""
    by_text: Floats
    """(D, C) v; for free answers (D, M)"""

    def logits(self, x: Floats, text: Floats, kind: Kind) -> Floats:
        """(T, C) from the evidence (T, M, C) and the text features (T, D)."""
        if kind == "choices":
            return np.asarray(np.einsum("tmc,m->tc", x, self.weights) + self.biases + text @ self.by_text)
        return np.asarray(np.einsum("tmc,tm->tc", x, self.weights + text @ self.by_text))


@dataclass(frozen=True)
class LogLinearTextPool:
    """Answers the slot with the highest logit."""

    encoder: Encoder
    ridge: float
    """Penalty on v; infinite: the text is left out."""
    pool: Pool

    def decide(self, calls: Calls) -> Answered:
        documents = calls.call_all()
        x, exists = evidence(documents, np.ones(len(calls.models), dtype=np.bool_))
        logits = self.pool.logits(x, self.encoder.encode(questions_of(calls)), calls.kind)
        return highest(logits, x, exists, calls.kind)


class Examples(NamedTuple):
    """n documents whose right slot the models' outputs contain."""

    kind: Kind
    x: Floats
    """(n, M, C)"""
    exists: Bools
    """(n, C)"""
    text: Floats
    """(n, D)"""
    labels: Ints
    """(n,)"""

    @classmethod
    def of(cls, train: Dataset, text: Floats) -> Examples:
        x, exists = evidence(train, np.ones(len(train.models), dtype=np.bool_))
        taught = (train.labels >= 0) & exists[np.arange(len(train)), train.labels]
        return cls(train.kind, x[taught], exists[taught], text[taught], train.labels[taught])

    @property
    def text_width(self) -> int:
        """The number of biases, or with free answers weights, that the text shifts."""
        return int(self.x.shape[2 if self.kind == "choices" else 1])

    def take(self, at: Ints) -> Examples:
        return Examples(self.kind, self.x[at], self.exists[at], self.text[at], self.labels[at])

    def log_probabilities(self, pool: Pool) -> Floats:
        """(n, C)"""
        from scipy.special import log_softmax

        logits = pool.logits(self.x, self.text, self.kind)
        return np.asarray(log_softmax(np.where(self.exists, logits, -np.inf), axis=1))

    def loss(self, log_probabilities: Floats) -> float:
        """Cross-entropy summed over the documents."""
        return -float(log_probabilities[np.arange(len(self.labels)), self.labels].sum())

    def slopes(self, log_probabilities: Floats) -> Pool:
        """The gradient of `loss`."""
        surplus = np.exp(log_probabilities)
        surplus[np.arange(len(self.labels)), self.labels] -= 1
        by_weight = np.einsum("nmc,nc->nm", self.x, surplus)
        if self.kind == "choices":
            return Pool(by_weight.sum(axis=0), surplus.sum(axis=0), self.text.T @ surplus)
        return Pool(by_weight.sum(axis=0), np.zeros(self.x.shape[2]), self.text.T @ by_weight)


def minimise(examples: Examples, ridge: float, start: Pool, limits: dict[str, float]) -> tuple[Pool, float]:
    """The pool that minimises the cross-entropy summed over documents + RIDGE / 2 · Σ w² + ridge / 2 · Σ v²,
    by L-BFGS, and the largest absolute gradient entry of the mean loss there."""
    from scipy.optimize import minimize

    n, reads = len(examples.labels), np.isfinite(ridge)
    ends = np.cumsum([part.size for part in start])[:-1]

    def pool_of(parameters: Floats) -> Pool:
        w, b, v = np.split(parameters, ends)
        return Pool(w, b, v.reshape(start.by_text.shape))

    def mean_loss(parameters: Floats) -> tuple[float, Floats]:
        pool = pool_of(parameters)
        log_probabilities = examples.log_probabilities(pool)
        slopes = examples.slopes(log_probabilities)
        held_down = RIDGE / 2 * (pool.weights**2).sum()
        by_text = np.zeros_like(slopes.by_text)
        if reads:
            held_down += ridge / 2 * (pool.by_text**2).sum()
            by_text = slopes.by_text + ridge * pool.by_text
        slope = np.concatenate([slopes.weights + RIDGE * pool.weights, slopes.biases, by_text.ravel()])
        return (examples.loss(log_probabilities) + float(held_down)) / n, slope / n

    first = np.concatenate([part.ravel() for part in start])
    found = minimize(mean_loss, first, jac=True, method="L-BFGS-B", options=limits)
    return pool_of(found.x), float(np.abs(found.jac).max())

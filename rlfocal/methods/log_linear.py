"""Log-linear ensembles, fitted by cross-entropy, with a weight per model and a bias per choice.

A question's text may shift them. `online_log_linear` takes a Newton step per label, and forgets old labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import RunError
from rlfocal.data.calls import Answers, Calls, Stream
from rlfocal.data.dataset import Dataset, Kind
from rlfocal.data.text import TEXT_RIDGES, TFIDF, Encoder, fit_encoder, questions_of, ridge_by_folds
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.registry import Entry, MethodBase, answer_policy, register
from rlfocal.statistics.calibration import top_probability
from rlfocal.statistics.votes import find_earliest_slots

WEIGHT_RIDGE = 1e-3
GRADIENT_TOLERANCE = (
    1e-4  # the largest gradient entry of the mean loss, by the largest |x|, that counts as converged
)
_FIT_OPTIONS = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-7}
_RIDGE_SEARCH_OPTIONS = {"maxiter": 1_000, "ftol": 1e-9, "gtol": 1e-5}


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
    """The log-linear ensemble of all models."""

    ridge: Annotated[float, Range(1e-4, 100.0, log=True)] = WEIGHT_RIDGE

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
    """`log_linear` with text features e beside the log-probs, under a ridge penalty cross-validated on train.

    Slot c has the logit Σ_i w_i x_ic + b_c + v_c · e; for free answers, Σ_i (w_i + v_i · e) x_ic.
    """

    encoder: str = TFIDF

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[LogLinearPool]:
        everyone = np.ones(len(train.models), dtype=np.bool_)
        encoder = fit_encoder(self.encoder, questions_of(train))
        examples = Examples.from_dataset(train, everyone, encoder.encode(questions_of(train)))

        def held_out_losses(fit_rows: Ints, held_out_rows: Ints) -> Iterator[float]:
            pool, others, tested = examples.start, examples.take(fit_rows), examples.take(held_out_rows)
            for ridge in TEXT_RIDGES:
                pool, _ = minimise(others, pool, WEIGHT_RIDGE, ridge, _RIDGE_SEARCH_OPTIONS)
                yield tested.loss(pool)[0]

        ridge = ridge_by_folds(len(examples.labels), held_out_losses)
        pool = _minimise(examples, WEIGHT_RIDGE, ridge, f"log_linear+text of {train.benchmark!r}")
        return [LogLinearPool(everyone, *pool, encoder)]


class Parameters(NamedTuple):
    """The parameters of a log-linear ensemble of M models."""

    weights: Floats
    """(M,) w, a weight for each model"""
    biases: Floats
    """(C,) b, a bias for each slot"""
    by_text: Floats
    """(D, C) v, the weights of text features for each slot; for free answers (D, M), for each model"""


@dataclass(frozen=True)
class LogLinearPool:
    """A log-linear ensemble, which answers the slot c with the highest Σ_i w_i x_ic + b_c over members i.

    Text features may shift b or w.
    """

    members: Bools
    """(N,) which models are members"""
    weights: Floats
    """(M,) w, a weight for each member"""
    biases: Floats
    """(C,) b, a bias for each slot"""
    by_text: Floats | None = None
    """The weights of text features, as in `Parameters`; None if the text is not read."""
    encoder: Encoder | None = None
    """The encoder of the questions' texts; None if they are not read."""

    def decide(self, calls: Calls) -> Answers:
        documents = calls.call(self.members)
        x, exists = evidence(documents, self.members)
        logits = np.einsum("tmc,m->tc", x, self.weights) + self.biases
        if self.encoder is not None and self.by_text is not None:
            shift = self.encoder.encode(questions_of(calls)) @ self.by_text
            logits += shift if calls.kind == "choices" else np.einsum("tmc,tm->tc", x, shift)
        return answer_highest(logits, x, exists, documents.kind)


def answer_highest(logits: Floats, x: Floats, exists: Bools, kind: Kind) -> Answers:
    """Answers the existing slot with the highest logit (T, C); ties go by the outputs x (T, M, C)."""
    # Rounded, or the float error of a sum would break a tie.
    logits = np.where(exists, logits.round(9), -np.inf)
    top = exists & (logits == logits.max(axis=1, keepdims=True))
    winner = find_earliest_slots(top, x > 0) if kind == "answers" else top.argmax(axis=1)
    slots = np.where(exists.any(axis=1), winner, -1).astype(np.int64)
    return Answers(slots, top_probability(logits, exists))


def fit_log_linear(train: Dataset, members: Bools, ridge: float = WEIGHT_RIDGE) -> LogLinearPool:
    """Fits the log-linear ensemble of the `members` (N,) by L-BFGS, to convergence.

    Minimises the cross-entropy summed over the train documents + ridge / 2 · Σ w². For choices, x is the
    log-softmax over a document's choices. For free answers, x is the share of samples, because most shares
    are 0 and have no logarithm. Their slots are not fixed, so that biases stay 0. Documents where no slot is
    right, or no member gave the right answer, are left out.

    Raises RunError if the fit does not converge.
    """
    examples = Examples.from_dataset(train, members, np.zeros((len(train), 0)))
    pool = _minimise(examples, ridge, np.inf, f"the log-linear ensemble of {train.benchmark!r}")
    return LogLinearPool(members, *pool)


class Examples(NamedTuple):
    """n documents whose right slot the members' outputs contain."""

    kind: Kind
    x: Floats
    """(M, n, C) the members' outputs for each slot, as `evidence` reads them"""
    penalties: Floats
    """(n, C) -inf where the slot does not exist, else 0"""
    text: Floats
    """(n, D) the text features"""
    labels: Ints
    """(n,) the right slot"""

    @classmethod
    def from_dataset(cls, train: Dataset, members: Bools, text: Floats) -> Examples:
        x, exists = evidence(train, members)
        taught = (train.labels >= 0) & exists[np.arange(len(train)), train.labels]
        by_model = np.ascontiguousarray(x[taught].transpose(1, 0, 2))
        closed = np.where(exists[taught], 0.0, -np.inf)
        return cls(train.kind, by_model, closed, text[taught], train.labels[taught])

    def take(self, rows: Ints) -> Examples:
        return Examples(self.kind, self.x[:, rows], self.penalties[rows], self.text[rows], self.labels[rows])

    @property
    def start(self) -> Parameters:
        """Parameters from which a fit starts: equal weights and no biases."""
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
        log_p = log_softmax(logits + self.penalties, axis=1)
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
    """Minimises the cross-entropy summed over documents + ridge / 2 · Σ w² + text_ridge / 2 · Σ v² by L-BFGS.

    Returns the minimum and the largest absolute gradient entry of the mean loss there. An infinite
    `text_ridge` leaves v as it is.
    """
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


def _minimise(examples: Examples, ridge: float, text_ridge: float, what: str) -> Parameters:
    """The parameters with the least loss; the start if there are no documents.

    Raises RunError, which names `what`, if L-BFGS does not converge.
    """
    if not len(examples.labels):
        return examples.start
    pool, slope = minimise(examples, examples.start, ridge, text_ridge, _FIT_OPTIONS)
    if not slope < GRADIENT_TOLERANCE * max(1.0, np.abs(examples.x).max(initial=0.0)):
        raise RunError(f"{what} did not converge (gradient {slope:.1e})")
    return pool


def evidence(documents: Dataset, members: Bools) -> tuple[Floats, Bools]:
    """(T, M, C) the members' log-probs of choices or shares of samples; and (T, C) which slots they have.

    Log-probs are 0 where the slot does not exist.
    """
    if documents.kind == "answers":
        shares = documents.probs[:, members]
        return shares, np.asarray((shares > 0).any(axis=1))
    exists = np.arange(documents.probs.shape[2]) < documents.n_choices[:, None]
    return np.where(exists[:, None], documents.logprobs[:, members], 0.0), exists


MIN_CURVATURE = 1.0
"""The minimum curvature along every weight and bias, so that steps stay bounded where data are uninformative.
"""


@answer_policy(
    "online_log_linear",
    "all",
    "as `log_linear`, whose weights and biases take a step with every label",
    protocols=("online",),
    fewest_models=2,
    source="recursive Newton estimation with exponential forgetting (Ljung and Söderström 1983)",
    differs="starts from the fit on train, which counts as at most `memory` documents",
    needs=("log-probs",),
)
@checked
class OnlineLogLinear(MethodBase):
    """A log-linear ensemble of all models, fitted on train and then updated with each label."""

    memory: Annotated[float, Field(ge=1), Range(100.0, 10_000.0, log=True)] = 1000.0
    """The number of documents after which a label counts 1/e of what it did at first."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[NewtonPool]:
        everyone = np.ones(len(train.models), dtype=np.bool_)
        pool = fit_log_linear(train, everyone)
        parameters = np.concatenate([pool.weights, pool.biases])
        x, exists = evidence(train, everyone)
        bends = np.zeros((len(parameters), len(parameters)))
        for row in range(len(train)):
            bends += _make_document(parameters, features(x[row], train.kind), exists[row]).curvature
        counts = min(1.0, self.memory / max(len(train), 1))
        return [NewtonPool(parameters, counts * bends + MIN_CURVATURE * np.eye(len(bends)), self.memory)]


@dataclass(frozen=True)
class NewtonPool:
    """A log-linear ensemble of all models, updated by a Newton step per label."""

    parameters: Floats
    """(M + C,) weights and biases after train"""
    precision: Floats
    """(M + C, M + C) the curvature of the loss, in which old labels count less"""
    memory: float

    def decide(self, calls: Calls) -> Answers:
        """Answers by the ensemble that was fitted to train, without updates."""
        return self._pool(self.parameters, len(calls.models)).decide(calls)

    def decide_along(self, stream: Stream) -> None:
        """Answers a stream, with an update after each label.

        Documents where no slot is right, or no model gave the right answer, cause no update.
        """
        parameters, precision = self.parameters, self.precision
        for turn in stream:
            answered = self._pool(parameters, len(stream.models)).decide(turn.calls)
            turn.answer(int(answered.slots[0]))
            x, exists = evidence(turn.calls.outputs(), turn.calls.called[0])
            if turn.label >= 0 and exists[0, turn.label]:
                parameters, precision = newton_step(
                    parameters, precision, features(x[0], stream.kind), exists[0], turn.label, self.memory
                )

    def _pool(self, parameters: Floats, n_models: int) -> LogLinearPool:
        everyone = np.ones(n_models, dtype=np.bool_)
        return LogLinearPool(everyone, parameters[:n_models], parameters[n_models:])


class _UnlabelledDocument(NamedTuple):
    """The ensemble's view of one document before its label is known."""

    chances: Floats
    """(C,) the probability of each slot"""
    curvature: Floats
    """(K, K) curvature of the cross-entropy in the parameters, which does not depend on the label"""


def features(x: Floats, kind: Kind) -> Floats:
    """(C, M + C) the features in which a document's logits are linear, from the models' outputs x (M, C).

    Free answers have no biases, so that their last C features are 0.
    """
    n_slots = x.shape[1]
    return np.hstack([x.T, np.eye(n_slots) if kind == "choices" else np.zeros((n_slots, n_slots))])


def _make_document(parameters: Floats, x: Floats, exists: Bools) -> _UnlabelledDocument:
    """The probabilities and curvature of a document, from features x (C, K) and which slots exist (C,)."""
    if not exists.any():
        return _UnlabelledDocument(np.zeros(len(x)), np.zeros((len(parameters), len(parameters))))
    logits = np.where(exists, x @ parameters, -np.inf)
    chances = np.exp(logits - logits.max())
    chances /= chances.sum()
    mean = chances @ x
    return _UnlabelledDocument(chances, (x.T * chances) @ x - np.outer(mean, mean))


def newton_step(
    parameters: Floats, precision: Floats, x: Floats, exists: Bools, label: int, memory: float
) -> tuple[Floats, Floats]:
    """The parameters θ and their precision A after the label of a document with features x (C, K).

    A <- γ A + (1 - γ) MIN_CURVATURE I + H and θ <- θ + A⁻¹ g, with γ = exp(-1 / memory). g is the gradient of
    the right slot's log-probability, and H its negative curvature.
    """
    chances, curvature = _make_document(parameters, x, exists)
    keep = np.exp(-1 / memory)
    precision = keep * precision + (1 - keep) * MIN_CURVATURE * np.eye(len(parameters)) + curvature
    slope = x[label] - chances @ x
    return parameters + np.linalg.solve(precision, slope), precision

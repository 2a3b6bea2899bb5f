"""What methods learn from questions by: texts, principal directions, ridges and logistic regressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF, Encoder, fit_encoder
from rlfocal.methods.checking import Range
from rlfocal.methods.log_linear import INVERSE_RIDGE, log_prob_features
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.statistics.calibration import top_probability

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression


RIDGES = (np.inf, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
"""Penalties on the weights of unit-length text features, beside a cross-entropy summed over documents; the
first leaves the text out."""
FOLDS = 5
_FEWEST = 20
"""Labelled documents needed for cross-validation."""


def questions_of(documents: Dataset | Calls) -> tuple[str, ...]:
    """(T,) the questions; empty ones where the data hold no text."""
    return documents.questions or ("",) * len(documents)


def ridge_by_folds(n: int, held_out_losses: Callable[[Ints, Ints], Iterator[float]]) -> float:
    """The one of RIDGES with the least cross-validated loss on n documents; ties: the strongest.

    `held_out_losses(fitted, held)` takes positions and yields, for each of RIDGES in turn, the cross-entropy
    summed over `held` after fitting on `fitted`. Weaker ridges are tried as long as they help. With too few
    documents, the text is left out.
    """
    if n < _FEWEST:
        return RIDGES[0]
    parts = np.array_split(np.random.default_rng(0).permutation(n), FOLDS)
    paths = [
        held_out_losses(np.concatenate([*parts[:at], *parts[at + 1 :]]), part)
        for at, part in enumerate(parts)
    ]
    best, least = RIDGES[0], np.inf
    for ridge, losses in zip(RIDGES, zip(*paths, strict=True), strict=True):
        if not sum(losses) < least:
            break
        best, least = ridge, sum(losses)
    return best


@dataclass(frozen=True)
class Directions:
    """The leading principal directions of train questions, each scaled to unit variance."""

    encoder: Encoder
    middle: Floats
    """(D,) the mean train question"""
    axes: Floats
    """(D, K)"""

    def encode(self, texts: Sequence[str]) -> Floats:
        """(T, K)"""
        along: Floats = (self.encoder.encode(texts) - self.middle) @ self.axes
        return along


def fit_directions(encoder: str, train: Sequence[str], most: int) -> Directions:
    """At most `most` directions, without those along which train questions do not vary."""
    fitted = fit_encoder(encoder, train)
    vectors = fitted.encode(train)
    middle = vectors.mean(axis=0)
    spreads, axes = np.linalg.eigh(np.cov(vectors.T, bias=True).reshape(len(middle), len(middle)))
    kept = np.argsort(-spreads, kind="stable")[:most]
    kept = kept[spreads[kept] > 1e-9]
    return Directions(fitted, middle, axes[:, kept] / np.sqrt(spreads[kept]))


_FOLD_TOLERANCE = 1e-3
"""Held-out losses rank the ridges long before a fit has converged."""


@dataclass(frozen=True)
class TextRegression:
    """Answers the likeliest of a document's choices that was ever right in train."""

    classes: Ints
    ridge: float
    """Penalty on the text's weights; infinite: the text is left out."""
    inverse_ridge: float
    """scikit-learn's C, for the weights of the other features."""
    middle: Floats
    """(F,) the other features' means on train"""
    scale: Floats
    """(F,) their standard deviations"""
    model: LogisticRegression | None
    """None if fewer than two choices were ever right."""

    def answer(self, others: Floats, text: Floats, n_choices: Ints) -> Answered:
        """From the other features (T, F) and the text features (T, D)."""
        scores = np.zeros((len(text), len(self.classes)))
        if self.model is not None:
            standard = (others - self.middle) / self.scale
            given = _side_by_side(standard, text, self.ridge, self.inverse_ridge)
            scores = self.model.predict_log_proba(given)
        exists = self.classes < n_choices[:, None]
        winner = self.classes[np.where(exists, scores, -np.inf).argmax(axis=1)]
        slots = np.where(exists.any(axis=1), winner, -1).astype(np.int64)
        return Answered(slots, top_probability(scores, exists))


def fit_text_regression(others: Floats, text: Floats, labels: Ints, inverse_ridge: float) -> TextRegression:
    """Multinomial regression on standardised features (T, F) and text features (T, D) to labels (T,).

    Minimises the cross-entropy summed over documents + Σ w² / 2C + ridge / 2 · Σ v², w the weights of the
    features and v those of the text; the ridge is cross-validated. Documents of label -1, where no choice is
    right, are left out.
    """
    has_right = labels >= 0
    others, text, labels = others[has_right], text[has_right], labels[has_right]
    classes = np.unique(labels)
    if len(classes) < 2:
        known = classes if len(classes) else np.zeros(1, dtype=np.int64)
        none = np.zeros(others.shape[1])
        return TextRegression(known, np.inf, inverse_ridge, none, none, None)
    middle, spread = others.mean(axis=0), others.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    others = (others - middle) / scale

    def held_out_losses(fitted: Ints, held: Ints) -> Iterator[float]:
        known = np.unique(labels[fitted])
        tested = held[np.isin(labels[held], known)]
        if len(known) < 2 or not len(tested):
            yield from np.zeros(len(RIDGES))
            return
        model = _regression(inverse_ridge, _FOLD_TOLERANCE)
        model.warm_start = True
        for ridge in RIDGES:
            given = _side_by_side(others, text, ridge, inverse_ridge)
            model.fit(given[fitted], labels[fitted])
            log_p = model.predict_log_proba(given[tested])
            yield -float(log_p[np.arange(len(tested)), np.searchsorted(known, labels[tested])].sum())

    ridge = ridge_by_folds(len(labels), held_out_losses)
    model = _regression(inverse_ridge, 1e-8).fit(_side_by_side(others, text, ridge, inverse_ridge), labels)
    return TextRegression(classes, ridge, inverse_ridge, middle, scale, model)


def _regression(inverse_ridge: float, tolerance: float) -> LogisticRegression:
    # scikit-learn takes a second to import, and listing the methods must not.
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=inverse_ridge, tol=tolerance, max_iter=10_000)


def _side_by_side(others: Floats, text: Floats, ridge: float, inverse_ridge: float) -> Floats:
    """(T, F + D) scaled so that one ridge 1 / C on all weights acts as `ridge` on those of the text."""
    return np.hstack([others, text / np.sqrt(inverse_ridge * ridge)])


@register(
    Entry(
        "text_only",
        "none",
        "logistic regression from the question's text features to the right choice",
        kinds=("choices",),
        role="reference",
        needs=("questions",),
        is_default=False,
        source="a control: what text features are worth without any model",
        reads=("question",),
    )
)
@dataclass(frozen=True)
class TextOnly(MethodBase):
    """Multinomial regression on text features, with a ridge cross-validated on train; asks no model."""

    encoder: str = TFIDF

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ReadsText]:
        encoder = fit_encoder(self.encoder, questions_of(train))
        text = encoder.encode(questions_of(train))
        nothing = np.zeros((len(train), 0))
        return [ReadsText(encoder, fit_text_regression(nothing, text, train.labels, 1.0), asks=False)]


@register(
    Entry(
        "stacking+text",
        "all",
        "as `stacking`, with the question's text features beside the log-probs",
        kinds=("choices",),
        needs=("questions", "log-probs"),
        is_default=False,
        source="`stacking`, given the same text as the methods that read questions",
        reads=("question", "outputs"),
        space={"inverse_ridge": Range(1e-4, 10.0, log=True)},
    )
)
@dataclass(frozen=True)
class StackingText(MethodBase):
    """`stacking` whose regression also sees text features; their ridge is cross-validated on train."""

    encoder: str = TFIDF
    inverse_ridge: float = INVERSE_RIDGE

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ReadsText]:
        encoder = fit_encoder(self.encoder, questions_of(train))
        text = encoder.encode(questions_of(train))
        said = log_prob_features(train)
        return [ReadsText(encoder, fit_text_regression(said, text, train.labels, self.inverse_ridge))]


@dataclass(frozen=True)
class ReadsText:
    """Answers the likeliest choice, as `stacking`, by the text and what models say, or by the text alone."""

    encoder: Encoder
    regression: TextRegression
    asks: bool = True

    def decide(self, calls: Calls) -> Answered:
        said = log_prob_features(calls.call_all()) if self.asks else np.zeros((len(calls), 0))
        return self.regression.answer(said, self.encoder.encode(questions_of(calls)), calls.n_choices)

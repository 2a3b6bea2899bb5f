"""Multinomial regressions that predict the right choice, from all log-probs, the question's text, or both."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TEXT_RIDGES, TFIDF, Encoder, fit_encoder, questions_of, ridge_by_folds
from rlfocal.methods.checking import Range
from rlfocal.methods.registry import Entry, MethodBase, answer_policy, register
from rlfocal.statistics.calibration import top_probability

if TYPE_CHECKING:
    from sklearn.linear_model import LogisticRegression


INVERSE_RIDGE = 0.1
"""The inverse of the ridge penalty, scikit-learn's C."""
_FOLD_TOLERANCE = 1e-3
"""The tolerance of fits on folds, whose losses rank ridge penalties long before the fits have converged."""


@register(
    Entry(
        "stacking",
        "all",
        f"logistic regression on all log-probs side by side, standardised (C = {INVERSE_RIDGE})",
        kinds=("choices",),
        needs=("log-probs",),
        reads=("outputs",),
        with_task="fitted per task",
    )
)
@dataclass(frozen=True)
class StackedRegression(MethodBase):
    """A multinomial regression of the right choice on the standardised log-probs of all models."""

    inverse_ridge: Annotated[float, Range(1e-4, 10.0, log=True)] = INVERSE_RIDGE

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[StackedPolicy]:
        return [_fit_stacked(train, None, self.inverse_ridge)]


@answer_policy(
    "stacking+text",
    "all",
    "as `stacking`, with the question's text features beside the log-probs",
    kinds=("choices",),
    needs=("questions", "log-probs"),
    source="`stacking`, given the same text as the methods that read questions",
    reads=("question", "outputs"),
)
@dataclass(frozen=True)
class StackedTextRegression(MethodBase):
    """`stacking` whose regression also sees text features, with a ridge penalty cross-validated on train."""

    encoder: str = TFIDF
    inverse_ridge: Annotated[float, Range(1e-4, 10.0, log=True)] = INVERSE_RIDGE

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[StackedPolicy]:
        return [_fit_stacked(train, self.encoder, self.inverse_ridge)]


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
class TextRegression(MethodBase):
    """A multinomial regression of the right choice on text features alone, without asking any model.

    Its ridge penalty is cross-validated on train.
    """

    encoder: str = TFIDF

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[StackedPolicy]:
        return [_fit_stacked(train, self.encoder, 1.0, asks=False)]


@dataclass(frozen=True)
class StackedPolicy:
    """Answers the likeliest of a document's choices, among those that were right for some train document."""

    encoder: Encoder | None
    """The encoder of the questions' texts; None if they are not read."""
    asks: bool
    """Whether all models are asked; if not, none is."""
    regression: Regression

    def decide(self, calls: Calls) -> Answers:
        features = _log_prob_features(calls.call_all()) if self.asks else np.zeros((len(calls), 0))
        scores = self.regression.log_chances(features, _text_features(self.encoder, calls))
        classes = self.regression.classes
        exists = classes < calls.n_choices[:, None]
        winner = classes[np.where(exists, scores, -np.inf).argmax(axis=1)]
        slots = np.where(exists.any(axis=1), winner, -1).astype(np.int64)
        return Answers(slots, top_probability(scores, exists))


def _fit_stacked(
    train: Dataset, encoder: str | None, inverse_ridge: float, *, asks: bool = True
) -> StackedPolicy:
    """Fits a regression to train on log-probs, if it `asks` models, and on texts, if `encoder` names one."""
    fitted = None if encoder is None else fit_encoder(encoder, questions_of(train))
    features = _log_prob_features(train) if asks else np.zeros((len(train), 0))
    regression = fit_regression(features, _text_features(fitted, train), train.labels, inverse_ridge)
    return StackedPolicy(fitted, asks, regression)


def _log_prob_features(documents: Dataset) -> Floats:
    """(T, N · C) log-probs; 0 where they are not finite, as for choices that do not exist."""
    finite = np.isfinite(documents.logprobs)
    return np.where(finite, documents.logprobs, 0.0).reshape(len(documents), -1)


def _text_features(encoder: Encoder | None, documents: Dataset | Calls) -> Floats:
    """(T, D) text features; (T, 0) without an encoder."""
    return np.zeros((len(documents), 0)) if encoder is None else encoder.encode(questions_of(documents))


@dataclass(frozen=True)
class Regression:
    """A multinomial regression on standardised features and on text features."""

    classes: Ints
    """The choices that were right for some train document."""
    ridge: float
    """The ridge penalty on the text's weights; infinite if the text is left out."""
    inverse_ridge: float
    """scikit-learn's C for the weights of the features other than text."""
    middle: Floats
    """(F,) the means on train of the features other than text"""
    scale: Floats
    """(F,) the standard deviations on train of the features other than text"""
    model: LogisticRegression | None
    """The fitted regression; None if fewer than two choices were right for some train document."""

    def log_chances(self, features: Floats, text: Floats) -> Floats:
        """(T, classes) log-probabilities, from features (T, F) and text features (T, D)."""
        if self.model is None:
            return np.zeros((len(text), len(self.classes)))
        standard = (features - self.middle) / self.scale
        given = _join_features(standard, text, self.ridge, self.inverse_ridge)
        return np.asarray(self.model.predict_log_proba(given))


def fit_regression(features: Floats, text: Floats, labels: Ints, inverse_ridge: float) -> Regression:
    """Fits a multinomial regression of labels (T,) on standardised features (T, F) and text features (T, D).

    Minimises the cross-entropy summed over documents + Σ w² / 2C + ridge / 2 · Σ v². w are the weights of the
    features, and v those of the text. The ridge is cross-validated. Documents with the label -1, where no
    choice is right, are left out.
    """
    has_right = labels >= 0
    features, text, labels = features[has_right], text[has_right], labels[has_right]
    classes = np.unique(labels)
    middle, scale = np.zeros(features.shape[1]), np.ones(features.shape[1])
    if len(classes) < 2:
        present = classes if len(classes) else np.zeros(1, dtype=np.int64)
        return Regression(present, np.inf, inverse_ridge, middle, scale, None)
    if features.shape[1]:
        # scikit-learn takes a second to import, and listing the methods must not.
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler().fit(features)
        middle, scale = scaler.mean_, scaler.scale_
    features = (features - middle) / scale

    def held_out_losses(fit_rows: Ints, held_out_rows: Ints) -> Iterator[float]:
        present = np.unique(labels[fit_rows])
        tested = held_out_rows[np.isin(labels[held_out_rows], present)]
        if len(present) < 2 or not len(tested):
            yield from np.zeros(len(TEXT_RIDGES))
            return
        model = _regression(inverse_ridge, _FOLD_TOLERANCE)
        model.warm_start = True
        for ridge in TEXT_RIDGES:
            given = _join_features(features, text, ridge, inverse_ridge)
            _fit(model, given[fit_rows], labels[fit_rows])
            log_p = model.predict_log_proba(given[tested])
            yield -float(log_p[np.arange(len(tested)), np.searchsorted(present, labels[tested])].sum())

    ridge = ridge_by_folds(len(labels), held_out_losses) if text.shape[1] else np.inf
    given = _join_features(features, text, ridge, inverse_ridge)
    model = _fit(_regression(inverse_ridge, 1e-8), given, labels)
    return Regression(classes, ridge, inverse_ridge, middle, scale, model)


def _regression(inverse_ridge: float, tolerance: float) -> LogisticRegression:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=inverse_ridge, tol=tolerance, max_iter=10_000)


def _fit(model: LogisticRegression, given: Floats, labels: Ints) -> LogisticRegression:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes")  # few documents for many choices
        return model.fit(given, labels)


def _join_features(features: Floats, text: Floats, ridge: float, inverse_ridge: float) -> Floats:
    """(T, F + D) features and scaled text, on whose weights one ridge 1 / C acts as `ridge` on the text's."""
    return np.hstack([features, text / np.sqrt(inverse_ridge * ridge)])

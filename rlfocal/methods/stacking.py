"""Stacking: logistic regression on the log-probs of all models, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.methods.checking import Range
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.statistics.calibration import top_probability

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

INVERSE_RIDGE = 0.1
"""scikit-learn's C."""


@register(
    Entry(
        "stacking",
        "all",
        f"logistic regression on all log-probs side by side, standardised (C = {INVERSE_RIDGE})",
        kinds=("choices",),
        needs=("log-probs",),
        reads=("outputs",),
        with_task="fitted per task",
        space={"inverse_ridge": Range(1e-4, 10.0, log=True)},
    )
)
@dataclass(frozen=True)
class Stacking(MethodBase):
    """Multinomial regression on the standardised log-probs of all models; free answers cannot be stacked."""

    inverse_ridge: float = INVERSE_RIDGE

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Stacked]:
        # scikit-learn takes a second to import, and listing the methods must not.
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        has_right = train.labels >= 0
        classes = np.unique(train.labels[has_right])
        if len(classes) < 2:
            return [Stacked(classes if len(classes) else np.zeros(1, dtype=np.int64), None)]
        regression = LogisticRegression(C=self.inverse_ridge, tol=1e-8, max_iter=10_000)
        model = make_pipeline(StandardScaler(), regression)
        model.fit(log_prob_features(train)[has_right], train.labels[has_right])
        return [Stacked(classes, model)]


@dataclass(frozen=True)
class Stacked:
    """Answers the likeliest of a document's choices that was ever right in train."""

    classes: Ints
    model: Pipeline | None
    """None if fewer than two choices were ever right."""

    def decide(self, calls: Calls) -> Answered:
        documents = calls.call_all()
        shape = (len(documents), len(self.classes))
        scores = (
            np.zeros(shape)
            if self.model is None
            else self.model.predict_log_proba(log_prob_features(documents))
        )
        exists = self.classes < documents.n_choices[:, None]
        winner = self.classes[np.where(exists, scores, -np.inf).argmax(axis=1)]
        slots = np.where(exists.any(axis=1), winner, -1).astype(np.int64)
        return Answered(slots, top_probability(scores, exists))


def log_prob_features(documents: Dataset) -> Floats:
    """(T, N · C) log-probs, 0 where they are not finite, as where a document has no such choice."""
    finite = np.isfinite(documents.logprobs)
    return np.where(finite, documents.logprobs, 0.0).reshape(len(documents), -1)

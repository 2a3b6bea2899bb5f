"""FrugalGPT (Chen et al., 2023): a cascade of three services with a learned score for each answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.data.dataset import Dataset
from rlfocal.methods.cascades._cascades import AMONG, LONGEST, POINTS, Cascade, fit_cascade
from rlfocal.methods.cascades._confidence import (
    Logistic,
    entropy_of,
    fit_logistic,
    margin_of,
    top_probability_of,
)
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.methods.spaces import Range


@register(
    Entry(
        "frugalgpt",
        f"up to {LONGEST} models in turn, until the last one's answer scores high enough",
        "what the last one answers",
        has_budgets=True,
        is_default=False,
        source="FrugalGPT (arXiv 2305.05176)",
        differs="the score g is one logistic regression per model on its top probability, margin and "
        "entropy, not a DistilBERT on the texts; ordered triples of the "
        f"{AMONG} models that are best on train "
        f"or cheaper than all better ones; {POINTS} thresholds per model, then Nelder-Mead",
        reads=("outputs",),
        space={"points": Range(3, 80, log=True)},
    )
)
@dataclass(frozen=True)
class FrugalGPT(MethodBase):
    """Model k is accepted where 1 - g_k < τ_k, else the next is asked; the last is always accepted.

    g_k(x, a): how likely k's answer a is right. All ordered triples and a grid of thresholds are searched for
    the highest train accuracy at a mean cost within the budget; Nelder-Mead refines the best. Here model k is
    accepted where g_k >= 1 - τ_k.
    """

    points: int = POINTS
    """Thresholds tried per model."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Cascade]:
        right = train.correct
        scores = tuple(
            fit_logistic(features(train, model), right[:, model]) for model in range(len(train.models))
        )
        return [fit_cascade(train, AnswerScore(scores), self.points, polish=True)]


@dataclass(frozen=True)
class AnswerScore:
    """g: how likely a model's answer is right."""

    regressions: tuple[Logistic, ...]
    """One per model."""

    def __call__(self, documents: Dataset, model: int) -> Floats:
        return self.regressions[model](features(documents, model))


def features(documents: Dataset, model: int) -> Floats:
    """(T, 3) top probability, margin, entropy."""
    parts = [measure(documents, model) for measure in (top_probability_of, margin_of, entropy_of)]
    return np.column_stack(parts)

"""Cascades: models in turn, the next one asked only where the last is not sure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.data.dataset import Dataset
from rlfocal.methods.cascades import AMONG, LONGEST, POINTS, Cascade, fit_cascade
from rlfocal.methods.cascades._confidence import (
    Logistic,
    entropy_of,
    fit_logistic,
    log_odds,
    margin_of,
    top_probability_of,
)
from rlfocal.methods.checking import Range
from rlfocal.methods.registry import Entry, MethodBase, register


@register(
    Entry(
        "cascade",
        f"up to {LONGEST} models in turn, until the last one's calibrated top probability is high enough",
        "what the last one answers",
        has_budgets=True,
        is_default=False,
        source="rational LLM cascades (arXiv 2501.09345)",
        differs=f"order and thresholds by grid search on train ({POINTS} quantiles per model, every order of "
        f"{AMONG} models) instead of a copula model for a given order; top probabilities calibrated by "
        "Platt's method",
        reads=("outputs",),
        space={"points": Range(3, 80, log=True)},
    )
)
@dataclass(frozen=True)
class CalibratedCascade(MethodBase):
    """Stops at the first model whose calibrated top probability passes its threshold.

    Calibrated: P(right) = σ(a · logit(top probability) + b), with a and b per model, fitted on train. Order
    and thresholds are those most often right on train, within a budget if there is one.
    """

    points: int = POINTS
    """Thresholds tried per model."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Cascade]:
        return [fit_cascade(train, RightByOutput.fit(train, top_log_odds), self.points)]


@register(
    Entry(
        "self_consistency_cascade",
        f"up to {LONGEST} models in turn, until enough of the last one's passes agree",
        "what the last one answers",
        has_budgets=True,
        is_default=False,
        kinds=("answers",),
        needs=("passes",),
        source="LLM cascades by answer consistency (arXiv 2310.03094)",
        differs="the share of stored passes that give the model's answer, uncalibrated; order and thresholds "
        "as in `cascade`; a model counts as one call, however many passes it took",
        reads=("outputs",),
        space={"points": Range(3, 80, log=True)},
    )
)
@dataclass(frozen=True)
class SelfConsistencyCascade(MethodBase):
    """Stops at the first model whose share of passes for its own answer reaches its threshold."""

    points: int = POINTS
    """Thresholds tried per model."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Cascade]:
        return [fit_cascade(train, top_probability_of, self.points)]


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
        scorer = RightByOutput.fit(train, answer_features)
        return [fit_cascade(train, scorer, self.points, polish=True)]


@dataclass(frozen=True)
class RightByOutput:
    """How likely a model is right, by a logistic regression of its own on features of its output."""

    regressions: tuple[Logistic, ...]
    """One per model."""
    features: Callable[[Dataset, int], Floats]
    """(T, D) of a model's output"""

    @classmethod
    def fit(cls, train: Dataset, features: Callable[[Dataset, int], Floats]) -> RightByOutput:
        each = (fit_logistic(features(train, at), right) for at, right in enumerate(train.correct.T))
        return cls(tuple(each), features)

    def __call__(self, documents: Dataset, model: int) -> Floats:
        return self.regressions[model](self.features(documents, model))


def top_log_odds(documents: Dataset, model: int) -> Floats:
    """(T, 1)"""
    return log_odds(top_probability_of(documents, model))[:, None]


def answer_features(documents: Dataset, model: int) -> Floats:
    """(T, 3) top probability, margin, entropy."""
    parts = [measure(documents, model) for measure in (top_probability_of, margin_of, entropy_of)]
    return np.column_stack(parts)

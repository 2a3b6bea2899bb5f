"""A cascade: models in turn, the next one asked only where the last is not sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlfocal.base.arrays import Floats
from rlfocal.data.dataset import Dataset
from rlfocal.methods.cascades._cascades import AMONG, LONGEST, POINTS, Cascade, fit_cascade
from rlfocal.methods.cascades._confidence import Logistic, fit_logistic, log_odds, top_probability_of
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.methods.spaces import Range


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
        right = train.correct
        curves = tuple(
            fit_logistic(log_odds(top_probability_of(train, model))[:, None], right[:, model])
            for model in range(len(train.models))
        )
        return [fit_cascade(train, CalibratedTop(curves), self.points)]


@dataclass(frozen=True)
class CalibratedTop:
    """How likely a model is right, given its top probability."""

    curves: tuple[Logistic, ...]
    """One per model."""

    def __call__(self, documents: Dataset, model: int) -> Floats:
        return self.curves[model](log_odds(top_probability_of(documents, model))[:, None])

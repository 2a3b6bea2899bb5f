"""A cascade by self-consistency: a model is accepted if its own passes agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlfocal.data.dataset import Dataset
from rlfocal.methods.cascades._cascades import LONGEST, POINTS, Cascade, fit_cascade
from rlfocal.methods.cascades._confidence import top_probability_of
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.methods.spaces import Range


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

"""LinUCB: the model with the highest upper confidence bound on its probability of being right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.methods.online._bandits import Arms, Bandit, Score
from rlfocal.methods.registry import Entry, register
from rlfocal.methods.spaces import Range


@register(
    Entry(
        "linucb",
        "one: the highest upper bound on a linear probability of being right, learned as labels arrive",
        "what it answers",
        protocols=("online",),
        fewest_models=2,
        needs=("questions",),
        is_default=False,
        source="Li et al. 2010, arXiv 1003.0146; as in public LinUCB routers of LLMs",
        differs="every model first learns from train instead of starting from scratch (`warm_start`)",
        reads=("question",),
        space={"alpha": Range(0.03, 3.0, log=True), "directions": Range(4, 64, log=True)},
    )
)
@dataclass(frozen=True)
class LinUcb(Bandit):
    """Calls argmax_m θ_m · x + α √(xᵀ A_m⁻¹ x); only the called model learns."""

    alpha: float = 1.0
    """α, the weight of uncertainty in a model's favour."""
    seeded = False

    def score(self, seed: int) -> Score:
        return self._bounds

    def _bounds(self, arms: Arms, context: Floats) -> Floats:
        return np.asarray(arms.means @ context + self.alpha * np.sqrt(arms.variances(context)))

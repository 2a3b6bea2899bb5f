"""LinUCB: the model whose chance to be right may be highest, by an upper bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlfocal.methods.online._bandits import Arms, Bandit, Floats, Score
from rlfocal.methods.registry import Entry, register


@register(
    Entry(
        "linucb",
        "one: the highest upper bound of a linear chance to be right, learned as labels come in",
        "what it answers",
        protocols=("online",),
        fewest_models=2,
        needs=("questions",),
        is_default=False,
        source="Li et al. 2010, arXiv 1003.0146; as in public LinUCB routers of LLMs",
        differs="starts with what train tells of every model, not with nothing (`warm_start`)",
    )
)
@dataclass(frozen=True)
class LinUcb(Bandit):
    """Calls argmax_m θ_m · x + α √(xᵀ A_m⁻¹ x); only the called model learns."""

    alpha: float = 1.0
    """How much uncertainty speaks for a model."""
    seeded = False

    def score(self, seed: int) -> Score:
        return self._bounds

    def _bounds(self, arms: Arms, context: Floats) -> Floats:
        variances = np.einsum("i,nij,j->n", context, arms.inverses, context)
        return np.asarray(arms.means @ context + self.alpha * np.sqrt(np.maximum(variances, 0.0)))

"""Thompson sampling: the model with the highest probability of being right under a posterior draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.methods.online._bandits import Arms, Bandit, Score
from rlfocal.methods.registry import Entry, register
from rlfocal.methods.spaces import Range


@register(
    Entry(
        "thompson",
        "one: the highest linear probability of being right, drawn from the posterior so far",
        "what it answers",
        protocols=("online",),
        fewest_models=2,
        needs=("questions",),
        is_default=False,
        source="Agrawal and Goyal 2013, arXiv 1209.3352",
        differs="every model first learns from train instead of starting from scratch (`warm_start`)",
        reads=("question",),
        space={"v": Range(0.03, 2.0, log=True), "directions": Range(4, 64, log=True)},
    )
)
@dataclass(frozen=True)
class Thompson(Bandit):
    """Calls argmax_m t_m · x with t_m drawn from N(θ_m, v² A_m⁻¹); only the called model learns."""

    v: float = 0.5
    """The standard deviation of a reward, which is 0 or 1."""
    seeded = True

    def score(self, seed: int) -> Score:
        rng = np.random.default_rng(seed)

        def drawn(arms: Arms, context: Floats) -> Floats:
            # For Gaussian t, the product t · x is Gaussian too, with variance v² xᵀ A⁻¹ x.
            spreads = self.v * np.sqrt(arms.variances(context))
            return np.asarray(arms.means @ context + spreads * rng.standard_normal(len(spreads)))

        return drawn

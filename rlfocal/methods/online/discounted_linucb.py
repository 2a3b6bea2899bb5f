"""LinUCB that forgets, to follow a stream that turns."""

from __future__ import annotations

from dataclasses import dataclass

from rlfocal.methods.online._bandits import Arms
from rlfocal.methods.online._fading import FadingArms
from rlfocal.methods.online.linucb import LinUcb
from rlfocal.methods.registry import Entry, register
from rlfocal.methods.spaces import Range


@register(
    Entry(
        "discounted_linucb",
        "one: the highest upper bound on a linear probability of being right, by labels that fade with age",
        "what it answers",
        protocols=("online",),
        fewest_models=2,
        needs=("questions",),
        is_default=False,
        source="D-LinUCB (Russac et al., 2019, arXiv 1909.09146)",
        differs="each model has its own statistics, as in `linucb`; every model first learns from train, "
        "which fades as well",
        reads=("question",),
        space={
            "alpha": Range(0.03, 3.0, log=True),
            "directions": Range(4, 64, log=True),
            "gamma": Range(0.95, 1.0),
        },
    )
)
@dataclass(frozen=True)
class DiscountedLinUcb(LinUcb):
    """Calls argmax_m θ_m · x + α √(xᵀ A_m⁻¹ B_m A_m⁻¹ x), all statistics discounted by γ a document."""

    alpha: float = 0.5
    """α, the weight of uncertainty in a model's favour."""
    gamma: float = 0.99
    """γ, above 0, up to 1; at 1 nothing is forgotten."""

    def prepared(self, arms: Arms) -> FadingArms:
        return FadingArms.after(arms, self.gamma, "discounted_linucb")

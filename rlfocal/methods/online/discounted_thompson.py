"""Thompson sampling that forgets, to follow a stream that turns."""

from __future__ import annotations

from dataclasses import dataclass

from rlfocal.methods.online._bandits import Arms
from rlfocal.methods.online._fading import FadingArms
from rlfocal.methods.online.thompson import Thompson
from rlfocal.methods.registry import Entry, register
from rlfocal.methods.spaces import Range


@register(
    Entry(
        "discounted_thompson",
        "one: the highest linear probability of being right, drawn from a posterior whose labels fade with "
        "age",
        "what it answers",
        protocols=("online",),
        fewest_models=2,
        needs=("questions",),
        is_default=False,
        source="discounted linear Thompson sampling (Kim and Tewari, 2020, arXiv 1912.05695)",
        differs="each model has its own statistics, as in `thompson`; every model first learns from train, "
        "which fades as well",
        reads=("question",),
        space={
            "v": Range(0.03, 2.0, log=True),
            "directions": Range(4, 64, log=True),
            "gamma": Range(0.95, 1.0),
        },
    )
)
@dataclass(frozen=True)
class DiscountedThompson(Thompson):
    """Calls argmax_m t_m · x, t_m from N(θ_m, v² A_m⁻¹ B_m A_m⁻¹), all statistics discounted by γ a "
    "document."""

    v: float = 0.25
    """The standard deviation of a reward, of which forgetting keeps more uncertain."""
    gamma: float = 0.99
    """γ, above 0, up to 1; at 1 nothing is forgotten."""

    def prepared(self, arms: Arms) -> FadingArms:
        return FadingArms.after(arms, self.gamma, "discounted_thompson")

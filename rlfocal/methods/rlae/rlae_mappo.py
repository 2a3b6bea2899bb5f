"""RLAE-MAPPO: each model's agent sets its weight, and a central critic judges them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlfocal.methods.registry import Entry, register
from rlfocal.methods.rlae._rlae import SPACE, Rlae


@register(
    Entry(
        "rlae_mappo",
        "all",
        "the highest mean probability, with weights, each set by its model's own agent (MAPPO)",
        fewest_models=2,
        is_default=False,
        source="RLAE, arXiv 2506.00439",
        differs="one span, as in `rlae_ppo`; an agent sees the question and its own model's entropy, the "
        "critic all of them",
        reads=("outputs",),
        space=SPACE,
    )
)
@dataclass(frozen=True)
class RlaeMappo(Rlae):
    """N Gaussian policies of one logit each, under a shared reward and a critic on the joint state."""

    each_its_own: ClassVar[bool] = True

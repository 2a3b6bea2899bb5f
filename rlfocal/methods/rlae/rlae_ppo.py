"""RLAE-PPO: one agent sets the weights of all models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlfocal.methods.registry import Entry, register
from rlfocal.methods.rlae._rlae import SPACE, Rlae


@register(
    Entry(
        "rlae_ppo",
        "all",
        "the highest mean probability, with weights that one agent sets for each document (PPO)",
        fewest_models=2,
        is_default=False,
        source="RLAE, arXiv 2506.00439",
        differs="one span: stored outputs cannot be reweighted within an answer; a small network on text "
        "features and the models' entropies in place of a language model",
        reads=("outputs",),
        space=SPACE,
    )
)
@dataclass(frozen=True)
class RlaePpo(Rlae):
    """A Gaussian policy over the logits of all weights, from the question and all models' entropies."""

    each_its_own: ClassVar[bool] = False

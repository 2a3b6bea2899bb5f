"""Dynamic ensemble selection: the models that were right on similar train documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import TFIDF
from rlfocal.methods.checking import Range
from rlfocal.methods.neighbours._competence import COMPETENCES, Weigh
from rlfocal.methods.neighbours._likeness import Likeness, fit_likeness
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.statistics.votes import soft_vote

NEAREST = 50
"""Number of neighbours."""


@register(
    Entry(
        "des",
        "all; with `neighbours=text` the selected ones alone",
        "a vote of those selected on similar train documents; `dews`, `lwse`: their mean probability",
        is_default=False,
        fewest_models=2,
        source="KNORA-E, KNORA-U (Ko et al., 2008), OLA (Woods et al., 1997), DEWS-U, LWSE-U "
        "(all by deskit), DES-P (Woloszynski et al., 2012)",
        differs="similarity is measured on all models' outputs, on text, or on both, not on features; "
        f"the {NEAREST} nearest instead of 7 to 10",
        argument="name",
        names=tuple(COMPETENCES),
        needs_argument=True,
        make=lambda making: DynamicSelection(making.argument or ""),
        reads=("outputs",),
        space={"nearest": Range(3, 200, log=True)},
    )
)
@dataclass(frozen=True)
class DynamicSelection(MethodBase):
    """Weighs models by their competence among the nearest train documents.

    knora_e: those right on all of them, or else on as many of the nearest as any model is; knora_u: one vote
    per neighbour that a model is right on; ola: the one right on most; dews: softmax of the mean probability
    of the right slot, over models with at least half the best one's; lwse: non-negative least squares from
    probabilities to labels; des_p: those right more often than chance.
    """

    name: str
    neighbours: str = "outputs"
    """"text": asks the selected models alone; "outputs" or "both": has to ask all of them first."""
    nearest: int = NEAREST
    encoder: str = TFIDF

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Selection]:
        likeness = fit_likeness(self.neighbours, self.encoder, train)
        known = likeness.vectors(train, range(len(train.models)))
        kind = COMPETENCES[self.name]
        fitted = kind.fit(known, train, min(self.nearest, len(train)))
        return [Selection(likeness, fitted, self.neighbours != "text", kind.votes)]


@dataclass(frozen=True)
class Selection:
    """Answers by a vote of the competent models, or by their weighted mean probability."""

    likeness: Likeness
    weigh: Weigh
    asks_all: bool
    votes: bool

    def decide(self, calls: Calls) -> Answered:
        everybody = range(len(calls.models))
        said = calls.call_all() if self.asks_all else calls.outputs()
        weights = self.weigh(self.likeness.vectors(said, everybody))
        said = calls.call(weights > 0)
        voted = said.predictions[:, :, None] == np.arange(said.probs.shape[2])
        weighed = weights[:, :, None] * (voted if self.votes else said.probs)
        slots = soft_vote(weighed, weights > 0, calls.kind)
        return Answered(slots, None if self.votes else weighed.sum(axis=1).max(axis=1, initial=0.0))

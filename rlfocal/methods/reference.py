"""Reference policies: what every learned method has to beat, and the ceiling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Decisions
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.statistics.votes import plurality, soft_vote


@register(
    Entry(
        "single",
        "that model",
        "what it answers",
        argument="model",
        needs_argument=True,
        is_default=False,
        make=lambda making: Single(making.argument or ""),
    )
)
@dataclass(frozen=True)
class Single(MethodBase):
    """Always asks one model, and answers what it answers."""

    model: str

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Single]:
        return [self]

    def decide(self, calls: Calls) -> Answered:
        asked = np.array([model == self.model for model in calls.models])
        return Answered(calls.call(asked).predictions[:, asked.argmax()])


@register(
    Entry(
        "best_single",
        "the model with the best train accuracy",
        "what it answers",
        role="reference",
        with_task="fitted per task",
    )
)
@dataclass(frozen=True)
class BestSingle(MethodBase):
    """The single model with the most right train answers; ties: the alphabetically first."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Single]:
        return [Single(train.models[int(train.correct.sum(axis=0).argmax())])]


@register(Entry("plurality", "all", "what most models predict", role="reference", reads=("outputs",)))
@dataclass(frozen=True)
class Plurality(MethodBase):
    """The slot most models of the pool predict."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Plurality]:
        return [self]

    def decide(self, calls: Calls) -> Answered:
        said = calls.call_all()
        return Answered(plurality(said.predictions, calls.called, calls.kind))


@register(Entry("soft_vote", "all", "the highest mean probability", role="reference", reads=("outputs",)))
@dataclass(frozen=True)
class SoftVote(MethodBase):
    """The slot with the highest mean probability over the pool."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[SoftVote]:
        return [self]

    def decide(self, calls: Calls) -> Answered:
        said = calls.call_all()
        mean = said.probs.mean(axis=1)
        return Answered(soft_vote(said.probs, calls.called, calls.kind), mean.max(axis=1, initial=0.0))


@register(
    Entry("constant_choice", "none", "the most frequent train label", role="reference", kinds=("choices",))
)
@dataclass(frozen=True)
class ConstantChoice(MethodBase):
    """Always the most frequent train label. Ties: the lowest index."""

    choice: int = 0

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ConstantChoice]:
        return [ConstantChoice(int(np.bincount(train.labels[train.labels >= 0], minlength=1).argmax()))]

    def decide(self, calls: Calls) -> Answered:
        return Answered(np.where(calls.n_choices > self.choice, self.choice, -1).astype(np.int64))


@register(
    Entry("oracle", "all", "right wherever some model is: a ceiling", role="ceiling", reads=("outputs",))
)
@dataclass(frozen=True)
class Oracle(MethodBase):
    """Right wherever some model is right. A ceiling, not a method: it reads the labels it decides on."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Oracle]:
        return [self]

    def decide_seeing_all(self, documents: Dataset) -> Decisions:
        some_right = documents.correct.any(axis=1)
        right_or_first = np.where(some_right, documents.labels, documents.predictions[:, 0])
        return Decisions(np.ones(documents.predictions.shape, dtype=np.bool_), right_or_first)

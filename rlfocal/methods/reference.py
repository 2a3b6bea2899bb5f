"""Reference policies, which every learned method has to beat, and the oracle.

They are single models, votes, and one model chosen at random or by the last label (paper, section 3.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.calls import Answers, Calls, Stream
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Decisions
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.methods.routing import ask
from rlfocal.statistics.votes import plurality, soft_vote

N_BEST_MODELS = 3
"""The number of models to choose from, if the method's name gives none."""


@register(
    Entry(
        "single",
        "that model",
        "what it answers",
        argument="model",
        needs_argument=True,
        is_default=False,
        make=lambda making: FixedModel(making.argument or ""),
    )
)
@dataclass(frozen=True)
class FixedModel(MethodBase):
    """Always asks one model, and gives its answer."""

    model: str

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[FixedModel]:
        return [self]

    def decide(self, calls: Calls) -> Answers:
        asked = np.array([model == self.model for model in calls.models])
        return Answers(calls.call(asked).predictions[:, asked.argmax()])


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
class BestSingleModel(MethodBase):
    """The single model with the most right train answers; ties as `Dataset.rank_models` says."""

    revision = "2"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[FixedModel]:
        return [FixedModel(train.models[train.rank_models()[0]])]


@register(Entry("plurality", "all", "what most models predict", role="reference", reads=("outputs",)))
@dataclass(frozen=True)
class Plurality(MethodBase):
    """Answers the slot that most models of the pool predict."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Plurality]:
        return [self]

    def decide(self, calls: Calls) -> Answers:
        outputs = calls.call_all()
        return Answers(plurality(outputs.predictions, calls.called, calls.kind))


@register(Entry("soft_vote", "all", "the highest mean probability", role="reference", reads=("outputs",)))
@dataclass(frozen=True)
class SoftVote(MethodBase):
    """Answers the slot with the highest mean probability over the pool."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[SoftVote]:
        return [self]

    def decide(self, calls: Calls) -> Answers:
        outputs = calls.call_all()
        n_called = np.maximum(calls.called.sum(axis=1), 1)
        mean = outputs.probs.sum(axis=1) / n_called[:, None]  # models that are down have no vote
        return Answers(soft_vote(outputs.probs, calls.called, calls.kind), mean.max(axis=1, initial=0.0))


@register(
    Entry("constant_choice", "none", "the most frequent train label", role="reference", kinds=("choices",))
)
@dataclass(frozen=True)
class ConstantChoice(MethodBase):
    """Always answers the most frequent train label; ties: the lowest index."""

    choice: int = 0

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ConstantChoice]:
        return [ConstantChoice(int(np.bincount(train.labels[train.labels >= 0], minlength=1).argmax()))]

    def decide(self, calls: Calls) -> Answers:
        return Answers(np.where(calls.n_choices > self.choice, self.choice, -1).astype(np.int64))


@register(
    Entry("oracle", "all", "right wherever some model is: a ceiling", role="ceiling", reads=("outputs",))
)
@dataclass(frozen=True)
class Oracle(MethodBase):
    """Answers right wherever some model is right, by reading labels: a ceiling of all methods."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Oracle]:
        return [self]

    def decide_seeing_all(self, documents: Dataset) -> Decisions:
        some_right = documents.correct.any(axis=1)
        right_or_first = np.where(some_right, documents.labels, documents.predictions[:, 0])
        return Decisions(np.ones(documents.predictions.shape, dtype=np.bool_), right_or_first)


@register(
    Entry(
        "weighted_vote",
        "all",
        "the plurality, each vote weighted by its model's train accuracy",
        reads=("outputs",),
        with_task="fitted per task",
    )
)
@dataclass(frozen=True)
class WeightedVote(MethodBase):
    """Every model votes for its prediction, weighted by its accuracy on train."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Votes]:
        # Counts instead of shares, so that sums are exact and equal votes tie.
        n_right = train.correct.sum(axis=0).astype(np.float64)
        return [Votes(n_right if n_right.any() else np.ones(len(n_right)))]


@dataclass(frozen=True)
class Votes:
    """Answers the slot with the highest sum of the models' weighted votes."""

    weights: Floats
    """(N,) the weight of each model's vote"""

    def decide(self, calls: Calls) -> Answers:
        outputs = calls.call_all()
        slots = np.arange(outputs.probs.shape[2])
        votes = (outputs.predictions[:, :, None] == slots) * self.weights[:, None]
        return Answers(soft_vote(votes, calls.called, calls.kind))


@register(
    Entry(
        "random_select",
        f"one of the {N_BEST_MODELS} best on train, at random",
        "what it answers",
        argument="size",
        make=lambda making: RandomSelect(making.size or N_BEST_MODELS),
    )
)
@dataclass(frozen=True)
class RandomSelect(MethodBase):
    """Asks one of the `size` best models on train, drawn anew for every document."""

    size: int = N_BEST_MODELS
    seeded = True

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[RandomPolicy]:
        return [RandomPolicy(best_on_train(train, self.size), seed) for seed in seeds]


@dataclass(frozen=True)
class RandomPolicy:
    """Asks a model drawn anew for every document."""

    candidates: Ints
    """The positions of the models to choose from."""
    seed: int

    def decide(self, calls: Calls) -> Answers:
        return ask(calls, np.random.default_rng(self.seed).choice(self.candidates, len(calls)))


@register(
    Entry(
        "latest_correct",
        f"one of the {N_BEST_MODELS} best on train that was right on the previous document, else any of "
        "them; then the others, to know who was right",
        "what the first answers",
        protocols=("online",),
        argument="size",
        make=lambda making: LatestCorrect(making.size or N_BEST_MODELS),
    )
)
@dataclass(frozen=True)
class LatestCorrect(MethodBase):
    """Asks one of the `size` best models on train, drawn from those that were right on the last document.

    It needs each document's label before the next document, so it does not run under the frozen protocol.
    """

    size: int = N_BEST_MODELS
    seeded = True
    revision = "2"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[LatestCorrectPolicy]:
        return [LatestCorrectPolicy(best_on_train(train, self.size), seed) for seed in seeds]


@dataclass(frozen=True)
class LatestCorrectPolicy:
    """Asks a random one of the models that were right on the previous document.

    At the start, and where none was right, it asks a random one of all candidates.
    """

    candidates: Ints
    """The positions of the models to choose from."""
    seed: int

    def decide(self, calls: Calls) -> Answers:
        """Asks a random candidate about every document, because there are no labels."""
        nobody = np.zeros((len(calls), len(self.candidates)), dtype=np.bool_)
        return ask(calls, self._pick(nobody, np.random.default_rng(self.seed)))

    def decide_along(self, stream: Stream) -> None:
        """Answers a stream.

        After each answer it calls the other models, because a label shows only which called models were
        right.
        """
        rng, everyone = np.random.default_rng(self.seed), np.zeros(len(stream.models), dtype=np.bool_)
        everyone[self.candidates] = True
        before = np.zeros((1, len(self.candidates)), dtype=np.bool_)
        for turn in stream:
            turn.answer(int(ask(turn.calls, self._pick(before, rng)).slots[0]))
            turn.calls.call(everyone)
            before = turn.right[None, self.candidates]

    def _pick(self, was_right: Bools, rng: np.random.Generator) -> Ints:
        """(T,) the position of a random one of K candidates among those that `was_right` (T, K) marks.

        If it marks none, all candidates may be drawn.
        """
        draws = rng.random(was_right.shape)
        candidates = was_right | ~was_right.any(axis=1, keepdims=True)
        # The candidate with the highest of i.i.d. draws is a uniform choice.
        picked: Ints = self.candidates[np.where(candidates, draws, -1.0).argmax(axis=1)]
        return picked


def best_on_train(train: Dataset, size: int) -> Ints:
    """(size,) positions of the models with the most right train answers; ties: alphabetically."""
    return np.argsort(-train.correct.sum(axis=0), kind="stable")[:size].astype(np.int64)

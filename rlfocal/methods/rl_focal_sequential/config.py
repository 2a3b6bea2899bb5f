"""The settings of `rl_focal_sequential`, and its entry among the methods, without an import of torch."""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from rlfocal.methods.checking import Range, checked
from rlfocal.methods.learning.agents import TrainedMethod
from rlfocal.methods.trained import register_trained

_LONG_TRAIN_DOCUMENTS = 2_000
"""The number of train documents from which three folds serve as well as five."""


class Ridges(NamedTuple):
    """The ridge penalties on parts of one regression's weights; 0 leaves the part out."""

    outputs: NonNegativeFloat
    """The ridge of weights from each model's output for a slot to all slots' logits."""
    surface: NonNegativeFloat = 0.0
    """The ridge of weights on the question's surface features."""
    words: NonNegativeFloat = 0.0
    """The ridge of weights on the question's words."""
    gates: NonNegativeFloat = 0.0
    """The ridge of weights by which the question's words shift the models' weights."""
    curves: NonNegativeFloat = 0.0
    """The ridge of weights on Nyström features of the question's surface features."""
    shared: NonNegativeFloat = 1.0
    """A factor on `shared_ridge`, the penalty of each model's weight; 0 leaves these weights out."""
    votes: NonNegativeFloat = 0.0
    """The ridge of weights on each model's likeliest slot, however probable; unused for free answers."""


Recipes = Annotated[tuple[Ridges, ...], Field(min_length=1)]


@checked
class SequentialConfig:
    """Settings of `rl_focal_sequential`. Raises InputError for a value that cannot work."""

    mean_pool: Annotated[float, Field(ge=1)] | None = None
    """The most models asked per document, as a mean over train; None: 40 % of the pool, from 3 to 5.5.

    On held-out train rows of BIG-Bench Hard's tasks, 2 cost 0.7 points, and 5 gained 0.1. More are asked
    where test documents are harder than train documents.
    """
    size_penalty: NonNegativeFloat = 0.0
    """The penalty of asking all models, where a right answer has a reward of 1.

    Training raises it until `mean_pool` is met.
    """
    price_penalty: NonNegativeFloat = 0.0
    """The penalty of the prices of all models, where a right answer has a reward of 1.

    A model's part of it is its share of all prices. Above 0, prices also influence the order of asking.
    """
    round_penalty: NonNegativeFloat = 0.0
    """The penalty of each round of calls, for its time, where a right answer has a reward of 1.

    Above 0, stages that are not worth a round are left out, so that more models are asked at once.
    """
    abstention_price: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The cost of an abstention, where a wrong answer costs 1 and a right one nothing (Chow, 1970).

    Answers less probable than 1 - `abstention_price` count as abstentions, so that calls go where they may
    lift an answer above that line. At 1 there are no abstentions.
    """
    has_floor: bool = True
    """Whether the start or the most accurate model decides unless the learned policy is clearly better.

    They are compared on held-out train documents.
    """
    folds: Annotated[int, Field(ge=2)] = 5
    """The number of folds of train. Held-out decisions on a fold come from fits to the other folds."""
    shared_ridge: PositiveFloat = 5.0
    """The ridge penalty on the weight of each model in Fusion, which is the same for all slots."""
    recipes: Recipes = (
        Ridges(100), Ridges(10), Ridges(100, surface=30, gates=500), Ridges(1000, words=10, gates=100),
        Ridges(100, words=0.1), Ridges(100, curves=1), Ridges(30, curves=0.3),
        Ridges(0, shared=0.2, votes=5), Ridges(0, gates=30, shared=0.2, votes=5),
        Ridges(0, shared=0, votes=5),
    )  # fmt: skip
    """Ridge penalties of the regressions that Fusion mixes, with shares by held-out likelihood.

    For free answers, only the first is used. Each was added because it raised the held-out likelihood most on
    train rows of MMLU and of BIG-Bench Hard's tasks. Those with votes alone are for data whose probabilities
    mean nothing.
    """
    word_directions: NonNegativeInt = 60
    """The number of principal directions of the questions' words."""
    landmarks: NonNegativeInt = 40
    """The number of train questions that define the features of `curves`; 200 were no better on train."""
    gate_directions: NonNegativeInt = 4
    """The number of first principal directions of the words that may shift the models' weights."""
    revision: ClassVar[int] = 13
    online_revision: ClassVar[int] = 2

    @property
    def worth_of_abstaining(self) -> float:
        """The reward of an abstention, where a right answer has a reward of 1."""
        return 1.0 - self.abstention_price

    def budget(self, n_models: int) -> float:
        """The most models asked per document on average over train, in a pool of `n_models`."""
        return min(max(0.4 * n_models, 3.0), 5.5) if self.mean_pool is None else self.mean_pool


def sequential_config(n_train: int) -> SequentialConfig:
    """Settings of `rl_focal_sequential` for `n_train` train rows; many rows are held out in fewer folds."""
    return SequentialConfig(folds=5 if n_train < _LONG_TRAIN_DOCUMENTS else 3)


register_trained(
    "rl_focal_sequential",
    "the Decider: after each answer or two, stop or ask the next models, by fitted Q-iteration",
    "softmax regressions over what was said so far",
    TrainedMethod(
        sequential_config,
        "rlfocal.methods.rl_focal_sequential.training:SEQUENTIAL_VARIANT",
        space={
            "size_penalty": Range(0.0, 0.2),
            "shared_ridge": Range(0.5, 50.0, log=True),
            "word_directions": Range(20, 120),
        },
    ),
    with_task="fitted per task",
)

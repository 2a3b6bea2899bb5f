"""What can be set about `rl_focal_sequential`."""

from __future__ import annotations

from typing import Annotated, ClassVar, NamedTuple

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from rlfocal.methods.checking import checked

_LONG_TRAIN_DOCUMENTS = 2_000
"""Train documents from which three parts serve as well as five."""


class Ridges(NamedTuple):
    """One regression's ridges; 0 leaves that part out."""

    outputs: NonNegativeFloat
    """The ridge of weights on models' outputs slot by slot: what one says of choice A tells about choice
    B."""
    surface: NonNegativeFloat = 0.0
    """The ridge of weights on the question's surface."""
    words: NonNegativeFloat = 0.0
    """The ridge of weights on the question's words."""
    gates: NonNegativeFloat = 0.0
    """The ridge of weights by which the question's words shift the models' weights."""
    curves: NonNegativeFloat = 0.0
    """The ridge of weights on curves over the question's surface."""
    shared: NonNegativeFloat = 1.0
    """Times `shared_ridge`; 0 leaves out the models' log-probs that all slots share."""
    votes: NonNegativeFloat = 0.0
    """The ridge of weights on each model's likeliest slot, however sure it is; free answers have no votes."""


Recipes = Annotated[tuple[Ridges, ...], Field(min_length=1)]


@checked
class SequentialConfig:
    """Raises InputError for a value that cannot work."""

    mean_pool: Annotated[float, Field(ge=1)] | None = None
    """Models asked per document, at most, on the average over train. None: 40 % of them, but at least 3 (on
    held-out train rows of BIG-Bench Hard's tasks 2 cost 0.7 points, and 5 gained 0.1) and at most 5.5: where
    test is harder than train more are asked, and 6 are to suffice."""
    size_penalty: NonNegativeFloat = 0.0
    """What asking the whole pool costs, where being right earns 1; raised until `mean_pool` is met."""
    price_penalty: NonNegativeFloat = 0.0
    """What asking the whole pool costs in money, where being right earns 1: a model's part of that is its
    price's part of all prices. Above 0, prices decide about the order of asking, too."""
    round_penalty: NonNegativeFloat = 0.0
    """What a round of asking costs in time, where being right earns 1. Above 0, stages that do not pay for a
    round of their own are left out, so that more models are asked at once."""
    abstention_price: Annotated[float, Field(gt=0, le=1)] = 1.0
    """What an abstention costs, where a wrong answer costs 1 and a right one nothing (Chow, 1970). Answers of
    a probability below 1 - `abstention_price` count as abstentions, so that calls go where they may lift an
    answer above that line. At 1 nobody abstains."""
    has_floor: bool = True
    """Whether the start or the most accurate model decides, where asking on is not clearly better on held-out
    train documents."""
    folds: Annotated[int, Field(ge=2)] = 5
    """The number of folds of train; decisions on a fold come from fits on the others."""
    shared_ridge: PositiveFloat = 5.0
    """Ridge on the weights that Fusion shares among slots, one per model."""
    recipes: Recipes = (
        Ridges(100), Ridges(10), Ridges(100, surface=30, gates=500), Ridges(1000, words=10, gates=100),
        Ridges(100, words=0.1), Ridges(100, curves=1), Ridges(30, curves=0.3),
        Ridges(0, shared=0.2, votes=5), Ridges(0, gates=30, shared=0.2, votes=5),
        Ridges(0, shared=0, votes=5),
    )  # fmt: skip
    """Regularisations that Fusion mixes, by how well each does on the held-out parts of train; of free
    answers the first alone. The list: what added most to the held-out likelihood on train rows of MMLU and
    of BIG-Bench Hard's tasks, one after the other; votes alone, for data where confidence means nothing."""
    word_directions: NonNegativeInt = 60
    """Principal directions of the questions' words."""
    landmarks: NonNegativeInt = 40
    """Train questions to whose surfaces others are likened, for `curves`; 200 did no better on train."""
    gate_directions: NonNegativeInt = 4
    """The first of them, along which the models' weights may shift."""
    revision: ClassVar[int] = 12
    online_revision: ClassVar[int] = 2
    later: ClassVar[tuple[str, ...]] = ("abstention_price",)
    """Settings that are younger than the revision: by their defaults, agents are what they were before."""

    @property
    def worth_of_abstaining(self) -> float:
        """What an abstention earns, where being right earns 1."""
        return 1.0 - self.abstention_price

    def budget(self, n_models: int) -> float:
        """Models asked on average, at most, of so many."""
        return min(max(0.4 * n_models, 3.0), 5.5) if self.mean_pool is None else self.mean_pool


def sequential_config(n_train: int) -> SequentialConfig:
    """`rl_focal_sequential` on as many train rows: fewer, larger parts of a long stream are held out."""
    return SequentialConfig(folds=5 if n_train < _LONG_TRAIN_DOCUMENTS else 3)

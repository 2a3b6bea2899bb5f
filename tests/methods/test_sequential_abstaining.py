"""`rl_focal_sequential` at a price per abstention: whom it asks, against optimal stopping by brute force."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.datasets import make_dataset
from support.sequential_data import ANSWERS, CHOICES, SMALL, right

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import decide
from rlfocal.methods import CheckpointStore, RLFocal
from rlfocal.methods.rl_focal_sequential.agents import SequentialHeader
from rlfocal.methods.rl_focal_sequential.config import Ridges, SequentialConfig
from rlfocal.methods.rl_focal_sequential.decider import Ledger, StageView, fit_decider, stop_stages, view
from rlfocal.methods.rl_focal_sequential.training import prepare, train
from rlfocal.methods.trained import configure, recipe

QUICK = SequentialConfig(folds=3, recipes=(Ridges(100),), word_directions=0, landmarks=0, has_floor=False)
prices = st.floats(0.02, 0.98)


def random_views(seed: int, least: float) -> list[StageView]:
    rng = np.random.default_rng(seed)
    return [StageView(rng.random((60, 5)), size, 0.01 * size, least) for size in (1, 2, 4)]


@given(st.integers(0, 100), prices)
def test_stopping_is_worth_the_better_of_answering_and_abstaining(seed: int, price: float) -> None:
    for seen in random_views(seed, SequentialConfig(abstention_price=price).worth_of_abstaining):
        probability = seen.features[:, 1]
        least_cost = np.minimum(1 - probability, price)
        np.testing.assert_allclose(seen.stop_reward(0.1), 1 - least_cost - 0.1 * seen.size - seen.cost)
        answered = probability >= 1 - price
        expected = np.where(answered, probability > 0.5, 1 - price)
        np.testing.assert_allclose(seen.outcome(probability > 0.5), expected)


@given(st.integers(0, 100), st.floats(0, 0.05))
def test_where_nobody_abstains_nothing_changes_to_the_bit(seed: int, penalty: float) -> None:
    free = SequentialConfig().worth_of_abstaining
    assert free == 0
    for seen in random_views(seed, free):
        assert seen.expected_reward.tobytes() == seen.features[:, 1].tobytes()
    surer = [
        one._replace(features=0.5 + one.features / 2, abstention_reward=0.5 * at)
        for at in (0, 1)
        for one in random_views(seed, 0)
    ]
    assert fit_decider(surer[:3], penalty).tobytes() == fit_decider(surer[3:], penalty).tobytes()


def world(first: tuple[float, ...], second: float, n: int) -> tuple[list[StageView], NDArray[np.float64]]:
    """Two choices and two models: the first is right as often as it says, by question one of `first`; the
    second, asked of the same questions, on a share `second` of them. Every case as often as it happens.

    Returns what both stages show, and the first's probabilities.
    """
    one: list[tuple[float, int, tuple[int, ...]]] = []
    two: list[tuple[float, int, tuple[int, ...]]] = []
    for p in first:
        for agrees in (True, False):
            joint = p * second, (1 - p) * (1 - second)  # the first is right, and wrong, if they agree
            if not agrees:
                joint = p * (1 - second), (1 - p) * second
            fused = max(joint) / sum(joint)
            said = int(joint[1] > joint[0])  # 0: what the first said
            times = round(n * sum(joint))
            one += [(p, 0, (0,))] * times
            two += [(fused, said, (0, 0 if agrees else 1))] * times
    stages = []
    for size, cases in enumerate((one, two), 1):
        probability = np.array([p for p, _, _ in cases])
        slots = np.array([said for _, said, _ in cases])
        spread = np.where(np.arange(2) == slots[:, None], probability[:, None], 1 - probability[:, None])
        stages.append(StageView(view(spread, slots, np.array([votes for *_, votes in cases]), 2), size))
    return stages, np.array([p for p, _, _ in one])


@given(
    st.tuples(st.floats(0.5, 0.65), st.floats(0.7, 0.8), st.floats(0.88, 0.97)), st.floats(0.55, 0.95),
    prices, st.floats(0.001, 0.1),
)  # fmt: skip
def test_two_models_are_asked_as_optimal_stopping_with_abstentions_would(
    first: tuple[float, ...], second: float, price: float, penalty: float
) -> None:
    """By enumeration: the second is asked where what it brings, abstentions included, is above its price."""
    stages, asked = world(first, second, 40_000)
    expected = {}
    for p in first:
        worth = 0.0
        for joint in ((p * second, (1 - p) * (1 - second)), (p * (1 - second), (1 - p) * second)):
            worth += max(*joint, (1 - price) * sum(joint))
        gain = worth - penalty - max(p, 1 - price)
        assume(abs(gain) > 0.01)
        expected[p] = int(gain > 0)
    priced = [seen._replace(abstention_reward=1 - price) for seen in stages]
    stop = stop_stages(fit_decider(priced, penalty), [seen.features for seen in stages])
    assert {p: set(stop[asked == p]) for p in first} == {p: {at} for p, at in expected.items()}


def mixed(T: int = 3_000) -> tuple[Dataset, NDArray[np.bool_]]:
    """Four choices, four models, each as sure as it is often right: of half of the questions it knows nothing
    or a little, of the others something or much. And which test questions are of the first half."""
    rng = np.random.default_rng(0)
    labels, hard = rng.integers(0, 4, size=T), rng.random(T) < 0.5
    chance = np.where(hard[:, None], rng.choice([0.3, 0.55], (T, 4)), rng.choice([0.75, 0.85], (T, 4)))
    wrong = (labels[:, None] + rng.integers(1, 4, size=(T, 4))) % 4
    says = np.where(rng.random((T, 4)) < chance, labels[:, None], wrong)
    probs = np.where(np.arange(4) == says[..., None], chance[..., None], (1 - chance[..., None]) / 3)
    return make_dataset(probs, labels, n_train=2_000), hard[2_000:]


def test_calls_go_where_they_may_lift_an_answer_above_the_line() -> None:
    """Without a price to hard questions, of which most stay below it."""
    data, hard = mixed()
    asks, earns = {}, {}
    for price in (1.0, 0.1):
        [agents] = train(data.train, replace(QUICK, mean_pool=2.0, abstention_price=price), [0])
        decided = decide(agents, data.test)
        assert decided.probability is not None
        asks[price] = [float(decided.pools[at].sum(axis=1).mean()) for at in (hard, ~hard)]
        answered = decided.probability >= 0.9
        earns[price] = np.where(answered, right(agents, data.test), 0.9).mean()
        assert decided.pools.sum(axis=1).mean() < 2.2
    assert asks[1.0][1] < 1.5 < 2.3 < asks[1.0][0]
    assert asks[0.1][0] < 1.8 < 2.3 < asks[0.1][1]
    assert earns[0.1] > earns[1.0] + 0.02


def test_the_best_model_alone_may_abstain_too() -> None:
    """What was learned has to be ahead of the best model's answers and abstentions, not of its answers."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, size=300)
    says = np.where(rng.random((300, 2)) < 0.55, labels[:, None], (labels[:, None] + 1) % 4)
    rows = make_dataset(np.where(np.arange(4) == says[..., None], 0.7, 0.1), labels, n_train=300).train
    for price, decides in ((1.0, "learned"), (0.2, "best single"), (0.4, "learned")):
        work = prepare(rows, replace(QUICK, has_floor=True, abstention_price=price), [0])
        fold = work.held_out[0]
        assert work.choose_fallbacks(np.full((1, 300), 0.75), (1,), work.starts(fold), fold) == (decides,)


def test_abstentions_count_in_what_asking_on_earned() -> None:
    probability = np.array([[0.3, 0.9], [0.7, 0.95]])
    views = [
        StageView(np.stack([np.ones(2), p], axis=1), size, abstention_reward=0.6)
        for size, p in enumerate(probability, 1)
    ]
    always, never = np.array([[1.0, 0.0]]), np.array([[-1.0, 0.0]])
    ledger, said = Ledger(views, []), np.array([[True, False], [False, True]])
    np.testing.assert_allclose(ledger.outcomes(said, never, 0.1), [[0.5, -0.1]] * 2)
    np.testing.assert_allclose(ledger.outcomes(said, always, 0.1), [[0.5, -0.1], [-0.2, 0.8]])


@pytest.mark.parametrize("data", [CHOICES, ANSWERS], ids=lambda data: data.kind)
def test_a_price_changes_whom_agents_ask_and_no_probability(data: Dataset) -> None:
    [free], [priced] = (train(data.train, replace(SMALL, abstention_price=a), [0]) for a in (1.0, 0.2))
    assert free.decider.tobytes() == train(data.train, SMALL, [0])[0].decider.tobytes()
    assert priced.decider.tobytes() != free.decider.tobytes()
    assert (priced.temperature, priced.order, priced.sizes) == (free.temperature, free.order, free.sizes)
    for one, other in zip(priced.fusions, free.fusions, strict=True):
        assert one.shares.tobytes() == other.shares.tobytes()


def test_agents_of_before_have_no_price_and_each_price_has_its_own(tmp_path: Path) -> None:
    config = configure("rl_focal_sequential", 100)
    priced = [configure("rl_focal_sequential", 100, {"abstention_price": a}) for a in (0.2, 0.3)]
    assert len({recipe(one) for one in (config, *priced)}) == 3
    store = CheckpointStore(tmp_path)
    files = {RLFocal("rl_focal_sequential", one, store).checkpoint(CHOICES, 0) for one in (config, *priced)}
    assert len(files) == 3
    about = SequentialHeader.make_metadata(train(CHOICES.train, SMALL, [0])[0])
    del about["config"]["abstention_price"]
    read = SequentialHeader.model_validate_json(json.dumps(about | {"history": []}))
    assert read.config == SMALL


@pytest.mark.parametrize("price", [0.0, -0.1, 1.1])
def test_a_price_that_cannot_work_is_refused(price: float) -> None:
    with pytest.raises(InputError, match=rf"abstention_price is {price}"):
        configure("rl_focal_sequential", 100, {"abstention_price": price})

"""`rl_focal_sequential`: what prices and rounds do to whom it asks, and the probability of its answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.datasets import make_dataset, make_logits
from support.sequential_data import ANSWERS, CHOICES, SMALL, right, trained

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import decide
from rlfocal.methods import CheckpointStore, RLFocal
from rlfocal.methods.rl_focal_sequential.agents import SequentialAgents
from rlfocal.methods.rl_focal_sequential.config import Ridges, SequentialConfig
from rlfocal.methods.rl_focal_sequential.decider import (
    Ledger,
    StageView,
    asking_order,
    fit_decider,
    list_stage_costs,
    price_shares,
    worthwhile_stages,
)
from rlfocal.methods.rl_focal_sequential.training import train
from rlfocal.methods.trained import configure
from rlfocal.serving import Router
from rlfocal.statistics.calibration import apply_temperature, fit_temperature, reliability

QUICK = SequentialConfig(
    mean_pool=4.0,
    folds=3,
    recipes=(Ridges(100),),
    word_directions=0,
    landmarks=0,
)


def honest(skills: list[float], prices: list[float], T: int = 1_500, seed: int = 0) -> Dataset:
    """Four choices; every model is as sure as it is often right on such a document, easy or hard."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, size=T)
    skill = np.where(rng.random((T, 1)) < 0.6, 0.98, 2.5 * (np.array(skills) - 0.6))
    chance = np.clip(skill, 0.26, 0.98)
    wrong = (labels[:, None] + rng.integers(1, 4, size=chance.shape)) % 4
    says = np.where(rng.random(chance.shape) < chance, labels[:, None], wrong)
    probs = np.where(np.arange(4) == says[..., None], chance[..., None], (1 - chance[..., None]) / 3)
    return replace(make_dataset(probs, labels, n_train=T * 2 // 3), prices=np.array(prices, dtype=np.float64))


def independent(n_models: int, T: int = 1_200) -> Dataset:
    """Four choices; every model is right on 55 % of documents, whoever else is, and equally sure of all."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, size=T)
    wrong = (labels[:, None] + rng.integers(1, 4, size=(T, n_models))) % 4
    says = np.where(rng.random((T, n_models)) < 0.55, labels[:, None], wrong)
    return make_dataset(np.where(np.arange(4) == says[..., None], 0.7, 0.1), labels, n_train=T * 2 // 3)


def mean_rounds(agents: SequentialAgents, documents: Dataset) -> float:
    rounds = decide(agents, documents).rounds
    assert rounds is not None
    return float(rounds.max(axis=1).mean())


def worth(agents: SequentialAgents, documents: Dataset, config: SequentialConfig) -> float:
    """What test documents earn on average: right answers less prices and rounds."""
    pools = decide(agents, documents).pools
    spent = (pools * documents.prices).sum(axis=1).mean() / documents.prices.sum()
    rounds = config.round_penalty * mean_rounds(agents, documents)
    return float(right(agents, documents).mean() - config.price_penalty * spent - rounds)


def test_prices_and_rounds_cost_what_the_settings_say() -> None:
    config = replace(QUICK, price_penalty=0.5, round_penalty=0.01)
    shares = price_shares(honest([0.8, 0.7, 0.6], [6, 3, 1]), config)
    assert shares.tolist() == [0.6, 0.3, 0.1]
    paid = list_stage_costs((2, 0, 1), (1, 3), shares, config)
    assert paid == pytest.approx([0.05 + 0.01, 0.5 + 0.02])
    free = replace(config, round_penalty=0.0)
    assert (
        list_stage_costs((0, 1, 2), (1, 2, 3), price_shares(honest([0.8] * 3, [0] * 3), free), free)
        == [0] * 3
    )


def test_an_unknown_price_is_named_where_it_counts() -> None:
    data = honest([0.8, 0.7], [1, np.nan], T=60)
    with pytest.raises(InputError, match="'m01' is unknown"):
        train(data.train, replace(QUICK, price_penalty=0.1), [0])
    train(data.train, replace(QUICK, round_penalty=0.1), [0])
    with pytest.raises(InputError, match=r"price_penalty is -0\.1"):
        configure("rl_focal_sequential", 100, {"price_penalty": -0.1})


def test_a_cheap_model_is_asked_first_and_the_dear_one_where_it_is_unsure() -> None:
    data = honest([0.9, 0.75], [100, 1])
    dear, cheap = 0, 1
    asks: dict[float, NDArray[Any]] = {}
    [heedless] = train(data.train, QUICK, [0])
    for penalty in (0.0, 0.15, 3.0):
        config = replace(QUICK, price_penalty=penalty)
        [agents] = train(data.train, config, [0])
        asks[penalty] = decide(agents, data.test).pools.mean(axis=0)
        assert worth(agents, data.test, config) >= worth(heedless, data.test, config)
    assert asks[0.0][dear] == 1
    assert asks[0.15][cheap] == 1
    assert 0.1 < asks[0.15][dear] < 0.6
    assert asks[3.0].tolist() == [0, 1]


@pytest.mark.slow
def test_where_a_round_is_dear_many_are_asked_at_once() -> None:
    """One alone is worth little, all together much."""
    data = independent(5)
    config = replace(QUICK, mean_pool=5.0, round_penalty=0.05)
    [agents], [heedless] = (
        train(data.train, config, [0]),
        train(data.train, replace(config, round_penalty=0), [0]),
    )
    assert agents.sizes[0] > 2
    assert mean_rounds(agents, data.test) < 1.5 < mean_rounds(heedless, data.test)
    assert worth(agents, data.test, config) > worth(heedless, data.test, config) + 0.03
    assert right(agents, data.test).mean() > right(heedless, data.test).mean() - 0.05


@given(st.integers(0, 100), st.floats(0, 0.05), st.floats(0, 0.05))
def test_what_was_paid_weighs_as_a_penalty_does(seed: int, penalty: float, paid: float) -> None:
    rng = np.random.default_rng(seed)
    features = [rng.random((60, 5)) for _ in range(3)]
    views = [StageView(f, size, paid * size) for f, size in zip(features, (1, 2, 4), strict=True)]
    plain = [view._replace(cost=0.0) for view in views]
    np.testing.assert_allclose(fit_decider(views, penalty), fit_decider(plain, penalty + paid), atol=1e-9)


@given(st.integers(0, 200), st.floats(0.001, 0.2))
def test_stages_left_out_were_not_worth_their_round(seed: int, cost: float) -> None:
    """Never less is earned than with all of them, or than with any one more left out."""
    rng = np.random.default_rng(seed)
    sizes, config = (1, 2, 4), SequentialConfig(mean_pool=2.0, round_penalty=cost)
    features = [rng.random((50, 5)) + 0.1 * at for at in range(3)]
    ledger = Ledger([StageView(f, s) for f, s in zip(features, sizes, strict=True)], features)

    def paid(some: Any) -> list[float]:
        return [cost * at for at in range(1, len(some) + 1)]

    def earned(stages: list[int]) -> float:
        return ledger.select_stages(stages, paid(stages)).mean_reward(config, 5)

    kept = worthwhile_stages(ledger, sizes, paid, config, 5)
    assert sizes[kept[0]] <= 2
    assert earned(kept) >= earned([0, 1, 2])
    fewer = [kept[:at] + kept[at + 1 :] for at in range(len(kept)) if len(kept) > 1]
    assert all(earned(one) <= earned(kept) for one in fewer if sizes[one[0]] <= 2)
    free = replace(config, round_penalty=0.0)
    assert worthwhile_stages(ledger, sizes, paid, free, 5) == [0, 1, 2]


def test_prices_are_part_of_what_is_trained_where_they_count(tmp_path: Path) -> None:
    data = replace(make_logits(0, T=160, N=5), prices=np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    dearer = replace(data, prices=data.prices[::-1])
    for config, moves in ((replace(SMALL, price_penalty=0.1), True), (SMALL, False)):
        method = RLFocal("rl_focal_sequential", config, CheckpointStore(tmp_path))
        assert (method.checkpoint(data, 0) != method.checkpoint(dearer, 0)) == moves


@pytest.mark.slow
def test_another_order_does_not_go_on_from_stages_that_were_kept(tmp_path: Path) -> None:
    """A training was killed, and prices changed before the next."""
    data = honest([0.9, 0.75, 0.6], [100, 1, 1], T=3_000)
    config = replace(QUICK, price_penalty=0.3, folds=2)

    def kill(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(data.train, config, [0], kill, tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    other = replace(data.train, prices=np.array([1.0, 100.0, 100.0]))
    [resumed], [anew] = train(other, config, [0], None, tmp_path), train(other, config, [0])
    assert resumed.order == anew.order != train(data.train, config, [0])[0].order
    assert resumed.decider.tobytes() == anew.decider.tobytes()


def test_complementary_models_are_asked_before_redundant_ones() -> None:
    """The second best errs mostly as the best does; the third errs elsewhere."""
    rng = np.random.default_rng(0)
    T = 2_000
    labels = rng.integers(0, 4, size=T)
    hard = rng.random((T, 3)) < [0.25, 0.0, 0.35]
    hard[:, 1] = np.where(rng.random(T) < 0.12, ~hard[:, 0], hard[:, 0])
    wrong = (labels[:, None] + rng.integers(1, 4, size=(T, 3))) % 4
    says = np.where(hard, wrong, labels[:, None])
    data = make_dataset(np.where(np.arange(4) == says[..., None], 0.7, 0.1), labels, n_train=T)
    accuracy = data.correct.mean(axis=0)
    assert accuracy[0] > accuracy[1] > accuracy[2]
    assert asking_order(data, SMALL) == (0, 2, 1)


@given(st.integers(0, 1_000), st.floats(0.3, 3.0))
def test_a_temperature_keeps_the_likeliest_and_closed_slots(seed: int, temperature: float) -> None:
    rng = np.random.default_rng(seed)
    given_ = rng.dirichlet(np.full(4, 0.5), size=30) * (rng.random((30, 4)) < 0.8)
    given_ /= np.maximum(given_.sum(axis=1, keepdims=True), 1e-300)
    got = apply_temperature(given_, temperature)
    assert ((got > 0) == (given_ > 0)).all()
    some = given_.any(axis=1)
    np.testing.assert_allclose(got.sum(axis=1), some.astype(float))
    assert (got.argmax(axis=1) == given_.argmax(axis=1)).all()
    flatter = got.max(axis=1) <= given_.max(axis=1) + 1e-12
    assert flatter.all() if temperature >= 1 else (got.max(axis=1) >= given_.max(axis=1) - 1e-12).all()
    np.testing.assert_allclose(apply_temperature(given_, 1.0)[some], given_[some], atol=1e-9)


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.8])
def test_the_temperature_that_was_is_found_and_makes_words_good(temperature: float) -> None:
    rng = np.random.default_rng(0)
    true = rng.dirichlet(np.full(4, 0.7), size=6_000)
    labels = (true.cumsum(axis=1) < rng.random((6_000, 1))).sum(axis=1).clip(max=3)
    said = apply_temperature(true, 1 / temperature)
    stages, known = [said[:2_000], said[2_000:4_000]], [labels[:2_000], labels[2_000:4_000]]
    found = fit_temperature(stages, known)
    assert found == pytest.approx(temperature, rel=0.08)
    after = apply_temperature(said[4_000:], found)
    hit = after.argmax(axis=1) == labels[4_000:]
    assert reliability(after.max(axis=1), hit).expected_error < 0.035
    blind = fit_temperature(stages, [np.full(2_000, -1)] * 2)
    assert blind == pytest.approx(1, abs=1e-3)


def test_the_probability_of_an_answer_is_how_often_it_is_right() -> None:
    """Though every model claims to be right nineteen times of twenty."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, size=4_000)
    wrong = (labels[:, None] + rng.integers(1, 4, size=(4_000, 3))) % 4
    says = np.where(rng.random((4_000, 3)) < [0.7, 0.65, 0.6], labels[:, None], wrong)
    data = make_dataset(np.where(np.arange(4) == says[..., None], 0.95, 0.05 / 3), labels, n_train=1_000)
    [agents] = train(data.train, replace(QUICK, mean_pool=3.0), [0])
    said = decide(agents, data.test).probability
    assert said is not None
    assert reliability(said, right(agents, data.test)).expected_error < 0.03


def output(documents: Dataset, row: int, model: int) -> Any:
    """As a caller would hand it over."""
    if documents.kind == "choices":
        return documents.logprobs[row, model, : documents.n_choices[row]]
    vote = documents.predictions[row, model]
    return documents.slots[row][vote] if vote >= 0 else []


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_router_and_decide_give_the_same_probability(kind: Any) -> None:
    agents = replace(trained(kind), temperature=1.7)
    test = (CHOICES if kind == "choices" else ANSWERS).test
    decided = decide(agents, test)
    assert decided.probability is not None
    router = Router(agents, online=False)
    for row in range(len(test)):
        said: dict[str, Any] = {}
        about = {"question": test.questions[row] if test.questions else "", "task": str(test.tasks[row])}
        while models := router.choose(about, said):
            said |= {model: output(test, row, test.models.index(model)) for model in models}
        router.fuse(said)
        assert (router.probability or 0.0) == pytest.approx(decided.probability[row], abs=1e-9)
    router.choose("another question")
    assert router.probability is None
    assert router.fuse(dict.fromkeys(agents.models)) is None
    assert router.probability is None

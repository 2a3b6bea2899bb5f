"""Constant pools and RL-Focal's agents at any budget, of one fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.datasets import make_answers, make_logits
from support.sequential_data import letters
from support.worded_data import accuracy_of, policy_of

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, BudgetedPolicy, decide
from rlfocal.methods import RLFocal, find_methods
from rlfocal.methods.learning.agents import BudgetedAgents, TrainedAgents
from rlfocal.methods.rl_focal.config import RLFocalConfig
from rlfocal.methods.rl_focal.training import train as train_rl_focal
from rlfocal.methods.rl_focal_sequential.config import Ridges, SequentialConfig
from rlfocal.methods.rl_focal_sequential.training import train as train_sequential

SHORT = RLFocalConfig(
    window=20, update_period=20, decider_episodes=1, fusion_episodes=2, joint_episodes=2, has_floor=False
)


@pytest.mark.parametrize("name", find_methods("constant_pool"))
def test_one_fit_gives_the_best_pool_of_every_budget(name: str) -> None:
    data = make_logits(4, T=80, N=4)
    policy = policy_of(name, data)
    assert isinstance(policy, BudgetedPolicy)
    exact = {size: policy_of(f"{name}:{size}", data) for size in range(1, 5)}
    right = {size: accuracy_of(one, data.train) for size, one in exact.items()}
    for most in range(1, 5):
        best = max(range(1, most + 1), key=lambda size: right[size])  # max: the first of equals
        held = policy.hold_to_budget(Budget(most))
        assert held is not None
        assert (decide(held, data.test).pools == decide(exact[best], data.test).pools).all()
        assert (decide(held, data.test).predictions == decide(exact[best], data.test).predictions).all()
    every = policy.hold_to_budget(Budget(np.inf))
    assert every is not None
    assert (decide(every, data.test).pools == decide(policy, data.test).pools).all()
    cheap = policy.hold_to_budget(Budget(1.5, "cents"))  # the prices are 1, 2, 3 and 4
    assert cheap is not None
    assert (decide(cheap, data.test).pools == [True, False, False, False]).all()
    four = exact[4]
    assert isinstance(four, BudgetedPolicy)
    assert four.hold_to_budget(Budget(3)) is None


@pytest.mark.parametrize(
    "data", [make_logits(0, T=160, N=5), make_answers(*letters(T=160))], ids=["choices", "answers"]
)
def test_the_sequential_agents_keep_to_a_budget(data: Dataset) -> None:
    config = SequentialConfig(
        has_floor=False, mean_pool=3.0, folds=3, recipes=(Ridges(100),), word_directions=2, gate_directions=0
    )
    [agents] = train_sequential(data.train, config, [0])
    free = decide(agents, data.test)
    assert free.rounds is not None
    assert free.pools.sum(axis=1).max() > 1
    for most in (1, 2, 3, np.inf):
        held = agents.hold_to_budget(Budget(most))
        assert held is not None
        asked = decide(held, data.test)
        assert asked.pools.sum(axis=1).max() <= most
        assert not (asked.pools & ~free.pools).any()
        small = free.pools.sum(axis=1) <= most
        assert (asked.pools[small] == free.pools[small]).all()
        assert (asked.predictions[small] == free.predictions[small]).all()


def test_the_papers_agents_keep_to_a_budget() -> None:
    data = make_logits(0, T=160, N=5)
    [agents] = train_rl_focal(data.train, SHORT, [0])
    free = decide(agents, data.test).pools
    sizes = set()
    for most in (1, 2, 3, 4, 6, np.inf):
        held = agents.hold_to_budget(Budget(most))
        assert held is not None
        asked = decide(held, data.test).pools
        sizes |= {int(size) for size in asked.sum(axis=1)}
        assert asked.sum(axis=1).max() <= most
        assert asked.any(axis=1).all()
        if most in SHORT.budgets:
            assert (asked.sum(axis=1) == most).all()
            known = agents.read_question_features(data.test, int(most))
        else:
            assert (asked == free).all()
            known = agents.read_question_features(data.test)
        logits = (agents.branch_logits(agents.memory.pool) + agents.question_logits(known)[0]).numpy()
        likeliest = agents.places[np.argsort(-logits)[: asked[0].sum()]]
        assert asked[0][likeliest].all()
    assert len(sizes) > 2
    assert replace(agents, prices=(np.nan,) * 5).hold_to_budget(Budget(np.inf, "cents")) is None
    moving = replace(agents, config=replace(SHORT, branching=False))
    assert moving.hold_to_budget(Budget(2)) is None


@pytest.mark.parametrize("method", ["rl_focal", "rl_focal_sequential"])
@pytest.mark.parametrize(
    "data", [make_logits(0, T=160, N=6), make_answers(*letters(T=160))], ids=["choices", "answers"]
)
def test_the_agents_keep_to_cents(method: str, data: Dataset) -> None:
    n_models = len(data.models)
    prices = np.array([4.0, 2.0, 8.0, 1.0, 16.0, np.nan][-n_models:])
    data = replace(data, prices=prices)
    settings: Any = {
        "rl_focal": SHORT,
        "rl_focal_sequential": SequentialConfig(
            has_floor=False, mean_pool=3.0, folds=3, recipes=(Ridges(100),)
        ),
    }
    [agents] = RLFocal(method, config=settings[method]).fit(data.train, [0])
    assert isinstance(agents, TrainedAgents)
    spent = []
    for cents in (1.0, 2.5, 3.0, 6.5, 11.0, 40.0):
        held = agents.hold_to_budget(Budget(cents, "cents"))
        assert held is not None
        asked = decide(held, data.test).pools
        assert not asked[:, np.isnan(prices)].any()
        assert asked.any(axis=1).all()
        each = np.where(asked, prices, 0.0).sum(axis=1)
        assert each.max() <= cents
        spent.append(each.mean())
    assert spent[0] == 1.0
    assert spent[-1] > 2.0
    assert agents.hold_to_budget(Budget(0.9, "cents")) is None
    known = replace(agents, prices=tuple(np.nan_to_num(prices, nan=1.0).tolist()))
    plenty = known.hold_to_budget(Budget(1e6, "cents"))
    assert plenty is not None
    free = decide(agents, data.test)
    if method == "rl_focal":
        assert (decide(plenty, data.test).pools == free.pools).all()
    assert (decide(plenty, data.test).predictions == free.predictions).all()


def test_a_dear_model_gives_way_to_as_many_as_its_price_buys() -> None:
    """The likeliest model costs more than 3 cents: whom the Decider would rather ask of the others comes."""
    data = make_logits(0, T=160, N=5)
    [agents] = train_rl_focal(data.train, SHORT, [0])
    of_pool = agents.branch_logits(agents.memory.pool)
    free, within = (
        agents.places[
            np.argsort(
                -(of_pool + agents.question_logits(agents.read_question_features(data.test, most))[0]).numpy()
            )
        ]
        for most in (None, 3)
    )
    costs = np.ones(5)
    costs[free[0]] = 3.5
    asked = decide(BudgetedAgents(agents, 3.0, costs), data.test).pools
    assert (asked.sum(axis=1) == 3).all()
    assert asked[0][within[within != free[0]][:3]].all()


def test_the_largest_pool_within_cents() -> None:
    """Everybody costs 1, one 3.5: of 3 cents the agents are told 3 models, of 2.9 they are told 2."""
    data = make_logits(0, T=160, N=6)
    [agents] = train_rl_focal(data.train, SHORT, [0])
    costs = np.ones(6)
    with torch.no_grad():  # free, they would ask all
        agents.networks.decider.question[0] += 20
    for most, models in ((3.0, 3), (2.9, 2), (1.0, 1), (4.5, 4)):
        held = decide(BudgetedAgents(agents, most, costs), data.test)
        told = decide(BudgetedAgents(agents, models, None), data.test)
        assert (held.pools == told.pools).all()
        assert (held.predictions == told.predictions).all()

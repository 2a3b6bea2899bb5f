"""Never below best single: what was learned decides only where it is ahead on held-out train documents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agents_data import random_dataset, skilled, stream

from rlfocal.data.dataset import Dataset, Kind
from rlfocal.data.policy import Budget, Decisions, decide
from rlfocal.methods.learning.earning import (
    AHEAD,
    FAR_AHEAD,
    Rung,
    has_earned,
    held_out_parts,
    needed_margin,
)
from rlfocal.methods.rl_focal.agents import PoolAgents, PoolDriver
from rlfocal.methods.rl_focal.config import RLFocalConfig
from rlfocal.methods.rl_focal.floor import build_floor
from rlfocal.methods.rl_focal.training import keep_mean_pool, train
from rlfocal.methods.trained import configure
from rlfocal.methods.variants import train_agents

FAST: dict[str, dict[str, Any]] = {
    "rl_focal": {"fusion_episodes": 4, "joint_episodes": 4, "stretches": 16},
    "gated_log_linear": {"steps": 60},
    "rl_focal_sequential": {"folds": 3},
}
each_method = pytest.mark.parametrize("method", FAST)


def fit(method: str, rows: Dataset, seed: int = 0, **changes: Any) -> Any:
    config = configure(method, len(rows), FAST[method] | changes)
    [agents] = train_agents(method, rows, config, [seed])
    return agents


def decide_within(agents: PoolAgents, budget: int, documents: Dataset) -> Decisions:
    policy = agents.within(Budget(budget))
    assert policy is not None
    return decide(policy, documents)


def accuracy(agents: Any, documents: Dataset) -> float:
    decided = decide(agents, documents)
    return float((decided.predictions == documents.labels).mean())


def best_single(data: Dataset) -> float:
    best = data.train.correct.mean(axis=0).argmax()
    return float(data.test.correct[:, best].mean())


@each_method
def test_one_model_far_ahead_decides_alone(method: str) -> None:
    """Nothing can be learned from nine models that guess, and each of them costs."""
    rng = np.random.default_rng(0)
    said = rng.integers(0, 4, (250, 10))
    labels = np.where(rng.random(250) < 0.95, said[:, 0], rng.integers(0, 4, 250))
    data = stream(said, labels, 4)
    agents = fit(method, data.train)
    assert agents.kept[-1] == "best single"
    decided = decide(agents, data.test)
    assert decided.pools.sum(axis=1).tolist() == [1] * len(data.test)
    assert accuracy(agents, data.test) == best_single(data)


@each_method
@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_shuffled_labels_teach_nothing(method: str, kind: Kind) -> None:
    """The good models agree, whatever the labels are made to say; one of them answers."""
    data = skilled([0.9, 0.85, 0.9, 0.8], n_docs=600, kind=kind)
    shuffled = np.random.default_rng(1).permutation(data.train.labels)
    agents = fit(method, replace(data.train, labels=shuffled))
    assert set(agents.kept) == {"best single"}
    assert accuracy(agents, data.test) > 0.7


@each_method
def test_what_earns_its_place_decides(method: str) -> None:
    """Five models that are right independently of each other beat any one of them."""
    data = skilled([0.7] * 5, n_docs=700)
    agents = fit(method, data.train)
    assert agents.kept[-1] in {"constant pool", "learned"}
    assert accuracy(agents, data.test) > best_single(data) + 0.03


@each_method
def test_without_the_floor_all_that_was_learned_decides(method: str) -> None:
    data = skilled([0.95, *(0.25,) * 5], n_docs=200)
    agents = fit(method, data.train, has_floor=False)
    assert set(agents.kept) <= {"learned"}


def test_tasks_have_their_own_best_model() -> None:
    """Two models that each know one task, where the task is an input and nothing else was learned."""
    rng = np.random.default_rng(0)
    labels, tasks = rng.integers(0, 4, 400), np.arange(400) % 2
    right = rng.random((400, 2)) < np.where(tasks[:, None] == np.arange(2), 0.95, 0.3)
    said = np.where(right, labels[:, None], (labels[:, None] + 1) % 4)
    data = replace(stream(said, labels, 4), tasks=np.array(["even", "odd"])[tasks])
    config = replace(configure("rl_focal", 320), fusion_episodes=0, joint_episodes=0, log_linear_start=0.0)
    [agents] = train(data.train, config, [0])
    assert agents.kept[0] == "best single per task"
    asked = decide_within(agents, 1, data.test).pools
    np.testing.assert_array_equal(asked.argmax(axis=1), np.arange(320, 400) % 2)
    elsewhere = replace(data.test, tasks=np.full(len(data.test), "a third"))
    assert len(np.unique(decide_within(agents, 1, elsewhere).pools.argmax(axis=1))) == 1


def climbing(rung: Rung, kind: Kind = "choices") -> tuple[PoolAgents, Dataset]:
    """Agents of which this rung decides, whatever it is worth."""
    data = random_dataset(5, kind, n_docs=150)
    data = replace(data, is_train=np.arange(150) < 100)
    config = replace(RLFocalConfig(), has_floor=False, fusion_episodes=1, joint_episodes=1, mean_pool=3.0)
    [agents] = train(data.train, config, [0])
    floor = build_floor(data.train, agents.tasks, config, agents.budgets)
    return replace(agents, floor=floor._replace(kept=(rung,) * len(floor.kept))), data.test


@pytest.mark.parametrize(("moved", "is_limited"), [(5.0, False), (5.0, True), (-5.0, True)])
def test_the_mean_pool_is_kept_whatever_training_ended_with(moved: float, is_limited: bool) -> None:
    """Of six models that are right 6 times in ten, each by itself: all of them are worth a call."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 400)
    wrong = (labels[:, None] + rng.integers(1, 4, (400, 6))) % 4
    data = stream(np.where(rng.random((400, 6)) < 0.6, labels[:, None], wrong), labels, 4)
    config = replace(RLFocalConfig(), has_floor=False, fusion_episodes=0, joint_episodes=0, mean_pool=3.0)
    [agents] = train(data, config, [0])
    assert agents.questions is not None
    agents.networks.decider.question.data[0] += moved
    assert decide(agents, data).pools.sum(axis=1).mean() == (6 if moved > 0 else 1)
    keep_mean_pool(agents, agents.questions.numbers(data), is_limited=is_limited)
    assert 2 <= decide(agents, data).pools.sum(axis=1).mean() <= 3


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_each_rung_asks_and_answers_as_it_says(kind: Kind) -> None:
    alone, test = climbing("best single", kind)
    assert alone.floor is not None
    best = int(alone.floor.singles[0].argmax())
    for decided in (decide(alone, test), decide_within(alone, 2, test)):
        assert decided.pools[:, best].all()
        assert decided.pools.sum() == len(test)
        np.testing.assert_array_equal(decided.predictions, test.predictions[:, best])
    pool, test = climbing("constant pool", kind)
    assert pool.floor is not None
    for budget, members in zip(pool.budgets, pool.floor.pools, strict=False):
        decided = decide_within(pool, budget, test)
        np.testing.assert_array_equal(decided.pools, np.tile(members.numpy() > 0, (len(test), 1)))
        assert decided.pools[0].sum() == budget


@pytest.mark.parametrize("rung", ["best single", "constant pool"])
def test_a_router_does_the_same(rung: Rung) -> None:
    agents, test = climbing(rung)
    together, driver = decide(agents, test), PoolDriver(agents)
    for row in range(5):
        driver.begin(test.questions[row] if test.questions else "", str(test.tasks[row]))
        np.testing.assert_array_equal(driver._pool > 0, together.pools[row])


def test_what_is_ahead_by_chance_has_not_earned() -> None:
    ones, zeros = np.ones(3), np.zeros(3)
    assert has_earned(np.ones(40), np.zeros(40), AHEAD)
    assert not has_earned(zeros, zeros, AHEAD)
    assert not has_earned(ones[:1], zeros[:1], AHEAD)  # one document is none
    assert not has_earned(np.array([1.0, 0, 1, 0]), np.array([0, 1.0, 0, 1]), AHEAD)
    assert not has_earned(ones, zeros, FAR_AHEAD)


def test_labels_that_tell_nothing_ask_for_more() -> None:
    data = skilled([0.9, 0.5, 0.5], n_docs=300)
    assert needed_margin(data.train) == AHEAD
    draws = [np.random.default_rng(seed).permutation(data.train.labels) for seed in range(100)]
    margins = [needed_margin(replace(data.train, labels=labels)) for labels in draws]
    assert margins.count(AHEAD) < 12  # 5 of 100 by design


@given(n=st.integers(0, 60), seed=st.integers(0, 5))
def test_every_document_is_held_out_once_or_none(n: int, seed: int) -> None:
    parts = held_out_parts(n, seed)
    assert sorted(np.concatenate(parts).tolist() if parts else range(n)) == list(range(n))
    assert bool(parts) == (n >= 10)

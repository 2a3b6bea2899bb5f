"""What the joint phase learns on pools whose best play is known: whom to ask, whom to believe, how many."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from test_agents_training import skilled, stream

from rlfocal.agents.rl_focal.agents import RLFocalAgents
from rlfocal.agents.rl_focal.config import RLFocalConfig
from rlfocal.agents.rl_focal.training import train
from rlfocal.dataset import Dataset
from rlfocal.policy import Budget, decide

LEARNS = RLFocalConfig(joint_episodes=40, stretches=8, window=100, mean_pool=0)
"""Some 240 gradient steps on 480 documents."""


def accuracy(agents: RLFocalAgents, data: Dataset) -> float:
    return float((decide(agents, data.test).predictions == data.test.labels).mean())


def specialists(seed: int = 0, n_docs: int = 600) -> Dataset:
    """One model right on one task, another on another; two that are right at random."""
    rng = np.random.default_rng(seed)
    tasks = np.where(np.arange(n_docs) % 2 == 0, "one", "two")
    labels = rng.integers(0, 4, n_docs)
    skills = np.where((tasks == "one")[:, None], [0.95, 0.3, 0.25, 0.25], [0.3, 0.95, 0.25, 0.25])
    right = rng.random((n_docs, 4)) < skills
    wrong = (labels[:, None] + rng.integers(1, 4, (n_docs, 4))) % 4
    return replace(stream(np.where(right, labels[:, None], wrong), labels, 4), tasks=tasks)


def test_who_is_right_on_which_task_is_asked_and_believed() -> None:
    data = specialists()
    of_task = (data.test.tasks == "two").astype(int)
    expert = data.test.correct[np.arange(len(of_task)), of_task].mean()
    for agents in train(data.train, replace(LEARNS, mean_pool=2.0), [0, 1]):
        decided = decide(agents, data.test)
        assert (decided.predictions == data.test.labels).mean() >= expert - 0.01
        assert decided.pools[np.arange(len(of_task)), of_task].all()
        assert decided.pools.sum(1).mean() < 2.75


def test_one_core_follows_the_task_where_both_are_asked() -> None:
    """The Decider held to the full pool: Fusion alone has to know whom to believe."""
    data = specialists(1)
    config = replace(LEARNS, start_logit=30.0, question_rate=1e-9, size_penalty=0.0)
    of_task = (data.test.tasks == "two").astype(int)
    expert = data.test.correct[np.arange(len(of_task)), of_task].mean()
    for agents in train(data.train, config, [0, 1]):
        assert decide(agents, data.test).pools.all()
        assert accuracy(agents, data) >= expert - 0.03


def test_what_a_slot_tells_of_another_is_learned() -> None:
    """All models are always wrong by one: no weight of a vote is ever right, the slot-wise part is."""
    data = skilled([0.0] * 4, n_docs=400)
    for agents in train(data.train, LEARNS, [0, 1]):
        assert accuracy(agents, data) > 0.9


def test_labels_by_chance_teach_nothing() -> None:
    data = skilled([0.8, 0.6, 0.5], n_docs=2000)
    shuffled = replace(data, labels=np.random.default_rng(3).permutation(data.labels))
    best = shuffled.test.correct.mean(axis=0).max()
    noise = 3 * np.sqrt(0.25 * 0.75 / len(shuffled.test))
    for agents in train(shuffled.train, replace(LEARNS, joint_episodes=10), [0, 1]):
        assert accuracy(agents, shuffled) < best + noise
        assert accuracy(agents, shuffled) > 0.25 - noise


@cache
def equals() -> Dataset:
    """Twelve independent models that are right 55 times in a hundred: each more helps, less and less."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 900)
    right = rng.random((900, 12)) < 0.55
    wrong = (labels[:, None] + rng.integers(1, 4, right.shape)) % 4
    return stream(np.where(right, labels[:, None], wrong), labels, 4)


def test_no_more_are_asked_than_the_mean_pool_allows() -> None:
    data, mean_pool = equals(), 5.5
    asked, right = [], []
    for limit in (mean_pool, 0.0):
        [agents] = train(data.train, replace(LEARNS, mean_pool=limit), [0])
        asked.append(decide(agents, data.test).pools.sum(1).mean())
        right.append(accuracy(agents, data))
    assert 3 <= asked[0] <= mean_pool + 0.75
    assert asked[1] > asked[0] + 1
    assert data.test.correct.mean() + 0.05 < right[0] < right[1]


def test_a_short_training_keeps_the_mean_pool() -> None:
    """It ends before the multiplier has grown; on train questions, to the model."""
    data = equals()
    [agents] = train(data.train, replace(LEARNS, mean_pool=3.0, joint_episodes=1), [0])
    pools = decide(agents, data.train).pools
    assert pools.any(1).all()
    assert pools.sum(1).mean() <= 3.0


def halves(seed: int = 0, n_docs: int = 900) -> Dataset:
    """One model is right 92 times in a hundred; two know one half of the answer each, all of it together."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, n_docs)
    said = np.where(rng.random(n_docs) < 0.92, labels, (labels + rng.integers(1, 4, n_docs)) % 4)
    slots = np.arange(4)
    probs = np.stack(
        [
            np.where(slots == said[:, None], 0.91, 0.03),
            np.where(slots // 2 == labels[:, None] // 2, 0.49, 0.01),
            np.where(slots % 2 == labels[:, None] % 2, 0.49, 0.01),
        ],
        axis=1,
    )
    data = stream(probs.argmax(-1), labels, 4)
    return replace(data, probs=probs, logprobs=np.log(probs))


def test_within_a_budget_others_are_asked_than_without_one() -> None:
    data = halves()
    for agents in train(data.train, LEARNS, [0, 1]):
        assert accuracy(agents, data) > 0.95
        assert decide(agents, data.test).pools[:, 1:].all()
        held = agents.within(Budget(1))
        assert held is not None
        decided = decide(held, data.test)
        assert (decided.pools == [1, 0, 0]).all()
        assert (decided.predictions == data.test.labels).mean() > 0.85


def test_one_call_goes_to_whom_the_task_is_for() -> None:
    data = specialists(2)
    of_task = (data.test.tasks == "two").astype(int)
    for agents in train(data.train, LEARNS, [0, 1]):
        held = agents.within(Budget(1))
        assert held is not None
        assert (decide(held, data.test).pools == np.eye(4)[of_task]).all()


def test_budgets_are_used_and_kept() -> None:
    data = equals()
    [agents] = train(data.train, replace(LEARNS, mean_pool=5.5, joint_episodes=10), [0])
    right = []
    for most in (1, 2, 3, 4):
        held = agents.within(Budget(most))
        assert held is not None
        decided = decide(held, data.test)
        assert (decided.pools.sum(1) == most).all()
        right.append((decided.predictions == data.test.labels).mean())
    assert right[0] + 0.05 < right[2] < right[3] + 0.02


@pytest.mark.parametrize("mean_pool", [3.0, 5.5])
def test_no_pool_of_one_where_all_are_as_good(mean_pool: float) -> None:
    data = equals()
    best = data.test.correct.mean(axis=0).max()
    for agents in train(data.train, replace(LEARNS, mean_pool=mean_pool), [0]):
        assert decide(agents, data.test).pools.sum(1).min() > 1
        assert accuracy(agents, data) > best + 0.02

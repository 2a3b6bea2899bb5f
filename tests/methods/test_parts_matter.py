"""Constructed streams on which a part of RL-Focal has to matter, or it is not there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.results.streams import make_turning_stream
from rlfocal.data.dataset import Dataset
from rlfocal.methods.learning.networks import next_modal_pool
from rlfocal.methods.rl_focal.agents import RLFocalAgents
from rlfocal.methods.rl_focal.config import RLFocalConfig
from rlfocal.methods.rl_focal.environment import train_environment, train_stream
from rlfocal.methods.rl_focal.training import train

pytestmark = pytest.mark.slow
SHORT = RLFocalConfig(
    metrics=(), window=10, size_penalty=0, mean_pool=0, budgets=(), word_directions=0, fusion_episodes=0,
    joint_episodes=0, stretches=16, update_period=10, anneal=False, has_floor=False, call_penalty=0.0,
    start_logit=1.0, start_others=100.0,
)  # fmt: skip
"""The Decider's phase alone, in which the plurality of the pool answers; at first every model is likely."""
SEEDS = range(5)


def rarely_open(n_docs: int = 640) -> Dataset:
    """Of five questions, everyone is right on two and nobody on two more; the pool decides the fifth."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, n_docs)
    tasks = np.array([0, 2, 1, 0, 1])[np.arange(n_docs) % 5]
    skills = np.array([[1.0] * 6, [0.0] * 6, [0.9, 0.85, 0.3, 0.2, 0.2, 0.2]])[tasks]
    said = np.where(rng.random((n_docs, 6)) < skills, labels[:, None], (labels[:, None] + 1) % 4)
    return dataset(np.array(["easy", "hard", "open"])[tasks], said, labels)


def told_by_diversity(seed: int, n_blocks: int = 128) -> Dataset:
    """Blocks of six questions, in which only the failures X and Y have in common tell whom to ask last.

    X and Y alone are right on the first, and each fails on half of the next four: on the same ones or on
    complementary ones. Z and V never fail there, so that the plurality is right in both kinds of block. On
    the last one Z is right and V is wrong after common failures, else V is right and Z is wrong.
    """
    rng = np.random.default_rng(seed)
    labels, said = np.zeros((n_blocks, 6), dtype=int), np.zeros((n_blocks, 6, 4), dtype=int)
    x, y, z, v = range(4)
    said[:, 0, [z, v]] = 1
    half = rng.permuted(np.tile([False, False, True, True], (n_blocks, 1)), axis=1)
    in_common = rng.permutation(np.arange(n_blocks) % 2 == 0)[:, None]
    said[:, 1:5, x] = half
    said[:, 1:5, y] = 2 * np.where(in_common, half, ~half)
    labels[:, 5] = rng.integers(0, 2, n_blocks)
    said[:, 5, [x, y]] = 2, 3
    said[:, 5, z] = np.where(in_common[:, 0], labels[:, 5], 1 - labels[:, 5])
    said[:, 5, v] = 1 - said[:, 5, z]
    tasks = np.where(np.arange(6 * n_blocks) % 6 == 5, "last", "earlier")
    return dataset(tasks, said.reshape(-1, 4), labels.ravel())


def told_beforehand(seed: int, n_pairs: int = 400) -> Dataset:
    """Pairs of a question that tells whom to ask next, and a last one that only X or only Y gets right.

    The Decider can tell itself by the pool it asks first, for that is what it sees next. On 40 % of the first
    questions, the pool that would tell it is the one that is right. On the others a third model, Z, is always
    right, and X and Y fail together on a fifth: asking them costs at once what it is worth later.
    """
    rng = np.random.default_rng(seed)
    labels, first_right = rng.integers(0, 2, (n_pairs, 2)), rng.integers(0, 2, n_pairs)
    is_costly, fails = rng.random(n_pairs) >= 0.4, rng.random(n_pairs) < 0.2
    only_one = np.stack([first_right == 0, first_right == 1, np.zeros(n_pairs, dtype=bool)], 1)
    both = np.stack([~fails, ~fails, np.ones(n_pairs, dtype=bool)], 1)
    right = np.stack([np.where(is_costly[:, None], both, only_one), only_one], 1)
    said = np.where(right, labels[..., None], 1 - labels[..., None])
    kinds = np.array([["cheap X", "cheap Y"], ["costly X", "costly Y"]])[is_costly.astype(int), first_right]
    tasks = np.stack([kinds, np.full(n_pairs, "last")], 1)
    return dataset(tasks.ravel(), said.reshape(-1, 3), labels.ravel())


def dataset(tasks: NDArray[Any], said: NDArray[Any], labels: NDArray[Any]) -> Dataset:
    """Train documents with these answers of each model (T, N)."""
    n, n_models = said.shape
    probs = np.full((n, n_models, 4), 0.1 / 3)
    np.put_along_axis(probs, said[..., None], 0.9, axis=2)
    return replace(
        make_turning_stream(0, 0).rows(np.arange(1300) < n),
        models=tuple(f"model-{i}" for i in range(n_models)),
        prices=np.ones(n_models), tasks=tasks, questions=("what?",) * n, probs=probs,
        logprobs=np.log(probs), predictions=said, labels=labels, is_train=np.ones(n, dtype=bool),
    )  # fmt: skip


@torch.no_grad()
def right_at_last(agents: RLFocalAgents, data: Dataset, *, blind: bool = False) -> float:
    """Accuracy on a stream's last questions of blocks, of the frozen Decider's likeliest pools; `blind`: it
    sees every metric as 0."""
    assert isinstance(agents.config, RLFocalConfig)
    data = agents.reorder(data)
    environment = train_environment(train_stream(data, agents.config, agents.questions), agents.config)
    first = len(data.models)
    seen = torch.ones(agents.sizes.decider)
    seen[first : first + agents.sizes.metrics] = 0 if blind else 1
    rollout = environment.rollout(
        environment.length,
        lambda t, observed, pools: next_modal_pool(agents.networks.decider(observed * seen), pools),
        None,
    )
    return float(rollout.right[..., 0].numpy()[data.tasks[rollout.rows.numpy()] == "last"].mean())


@pytest.mark.slow
def test_without_the_critic_learning_is_slower_beyond_noise() -> None:
    """The critic knows which questions no pool changes; all seeds are paired."""
    data = rarely_open()
    config = replace(
        SHORT, decider_episodes=10, learning_rate=1e-4, question_rate=0.02, critic_rate=1e-2,
        branch_task_ridge=1e4,  # one pool for all tasks
    )  # fmt: skip
    late = [
        np.array([np.mean([e.accuracy for e in of_seed.history]) for of_seed in trained])
        for trained in (train(data, replace(config, has_critic=has), SEEDS) for has in (True, False))
    ]
    gained = late[0] - late[1]
    assert gained.mean() > 0.004
    assert gained.mean() > 3 * gained.std(ddof=1) / 5**0.5


@pytest.mark.slow
def test_focal_diversity_alone_teaches_which_models_to_ask() -> None:
    """Neither without metrics nor from the plurality's accuracy; all seeds are paired."""
    config = replace(
        SHORT, window=4, stretches=128, update_period=20, decider_episodes=60, learning_rate=3e-2,
        critic_rate=1e-2, entropy=0.01,
    )  # fmt: skip
    data, later = told_by_diversity(0), told_by_diversity(1)
    told, untold, by_accuracy = (
        train(data, replace(config, metrics=metrics), SEEDS)
        for metrics in (("focal_diversity",), (), ("plurality_accuracy",))
    )
    right = np.array([right_at_last(agents, later) for agents in told])
    for others in (untold, by_accuracy):
        gained = right - [right_at_last(agents, later) for agents in others]
        assert gained.mean() > 0.25
        assert gained.mean() > 3 * gained.std(ddof=1) / 5**0.5
    lost = right - [right_at_last(agents, later, blind=True) for agents in told]
    assert lost.mean() > 0.25


@pytest.mark.slow
def test_a_discount_of_0_misses_what_a_pool_is_worth_to_the_next_document() -> None:
    """Which it is by what it tells the Decider; all seeds are paired."""
    config = replace(
        SHORT, stretches=64, update_period=12, decider_episodes=50, learning_rate=2e-2, critic_rate=1e-2,
        entropy=0.01, branch_task_ridge=0,
    )  # fmt: skip
    data, later = told_beforehand(0), told_beforehand(1)
    farsighted, shortsighted = (
        np.array([right_at_last(agents, later) for agents in trained])
        for trained in (train(data, replace(config, decider_gamma=gamma), SEEDS) for gamma in (0.9, 0.0))
    )
    assert farsighted.mean() > 0.95
    gained = farsighted - shortsighted
    assert gained.mean() > 0.15
    assert gained.mean() > 3 * gained.std(ddof=1) / 5**0.5

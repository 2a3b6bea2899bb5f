"""Constructed streams on which a part of RL-Focal has to matter, or it is not there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.results.streams import turning
from rlfocal.agents.rl_focal.config import RLFocalConfig
from rlfocal.agents.rl_focal.training import train
from rlfocal.dataset import Dataset

SHORT = RLFocalConfig(
    metrics=(), window=10, size_penalty=0, mean_pool=0, budgets=(), word_directions=0, fusion_episodes=0,
    joint_episodes=0, stretches=16, update_period=10, anneal=False,
)  # fmt: skip
"""The Decider's phase alone, in which the plurality of the pool answers."""


def rarely_open(n_docs: int = 640) -> Dataset:
    """Of five questions, everyone is right on two and nobody on two more; the pool decides the fifth."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, n_docs)
    tasks = np.array([0, 2, 1, 0, 1])[np.arange(n_docs) % 5]
    skills = np.array([[1.0] * 6, [0.0] * 6, [0.9, 0.85, 0.3, 0.2, 0.2, 0.2]])[tasks]
    said = np.where(rng.random((n_docs, 6)) < skills, labels[:, None], (labels[:, None] + 1) % 4)
    probs = np.full((n_docs, 6, 4), 0.1 / 3)
    np.put_along_axis(probs, said[..., None], 0.9, axis=2)
    return replace(
        turning(0, 0).rows(np.arange(1300) < n_docs),
        tasks=np.array(["easy", "hard", "open"])[tasks], questions=("what?",) * n_docs, probs=probs,
        logprobs=np.log(probs), predictions=said, labels=labels, is_train=np.ones(n_docs, dtype=bool),
    )  # fmt: skip


def test_without_the_critic_learning_is_slower_beyond_noise() -> None:
    """The critic knows which questions no pool changes; all seeds are paired."""
    data = rarely_open()
    config = replace(
        SHORT, decider_episodes=10, learning_rate=1e-4, question_rate=0.02, critic_rate=1e-2,
        branch_task_ridge=1e4,  # one pool for all tasks
    )  # fmt: skip
    late = [
        np.array([np.mean([e.accuracy for e in of_seed.history]) for of_seed in trained])
        for trained in (train(data, replace(config, has_critic=has), range(5)) for has in (True, False))
    ]
    gained = late[0] - late[1]
    assert gained.mean() > 0.004
    assert gained.mean() > 3 * gained.std(ddof=1) / 5**0.5

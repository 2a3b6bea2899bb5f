"""Credit and leaks: an action earns what its own pool's document earns, scales are train's alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from test_agents_environment import random_dataset
from test_agents_training import JOINT, TINY, asked_about, stream

from rlfocal.agents.rl_focal.environment import Environment, train_stream
from rlfocal.agents.rl_focal.log_linear import LEAST
from rlfocal.agents.rl_focal.mappo import rollout_advantages
from rlfocal.agents.rl_focal.training import train
from rlfocal.policy import decide


def test_an_action_earns_what_its_pool_earns_about_its_own_document() -> None:
    """Of two models, the first is right on even documents, the second on odd ones."""
    labels = np.zeros(20, dtype=np.int64)
    data = stream(np.stack([np.arange(20) % 2, 1 - np.arange(20) % 2], 1), labels, 2)
    config = replace(TINY, size_penalty=0.6)
    environment = Environment(
        train_stream(data, config), config, 1, stretches=1, copies=1, first=3, length=12
    )
    actions = [(row % 3 == 0, row % 3 != 0) for row in range(4, 16)]  # for documents 4 to 15
    rollout = environment.rollout(12, lambda t, *_: torch.tensor([[actions[t]]]).float(), None)
    for t, row in enumerate(range(4, 16)):
        asked = 0 if row % 3 == 0 else 1
        right = row % 2 == asked
        assert rollout.rows[t + 1, 0] == row
        assert rollout.right[0, t, 0] == right
        assert rollout.rewards[0, t, 0].item() == pytest.approx(1 if right else -1 - 0.6 / 2)


def test_without_a_discount_the_advantage_is_the_reward_less_what_was_expected() -> None:
    draw = np.random.default_rng(0)
    rewards, values = draw.normal(size=(2, 5, 3)), draw.normal(size=(2, 6, 3))
    advantages, returns = rollout_advantages(torch.tensor(rewards), torch.tensor(values).flatten(1), 0.0, 0.7)
    for s in range(2):
        centred = rewards[s] - rewards[s].mean()
        np.testing.assert_allclose(advantages[s].view(5, 3), centred - values[s, :5], atol=1e-12)
        np.testing.assert_allclose(returns[s].view(5, 3), centred, atol=1e-12)


def test_scales_are_those_of_all_train_rows_and_of_no_test_row() -> None:
    data = asked_about(random_dataset(3, "choices", n_docs=150))
    data = replace(data, is_train=np.arange(150) < 100)
    config = replace(JOINT, fusion_hidden=(4,), joint_episodes=1)
    [agents] = train(data.train, config, [0])
    fusion, probs = agents.networks.fusion, data.train.probs
    np.testing.assert_allclose(fusion.standardiser.mean[0, 0], probs.mean(0), atol=1e-5)
    np.testing.assert_allclose(
        fusion.standardiser.scale[0, 0], 1 / (probs.std(0) + 1e-3), rtol=1e-4, atol=1e-5
    )
    exists = np.arange(5) < data.train.n_choices[:, None]
    logs = np.maximum(np.log(np.maximum(probs, 1e-37)), LEAST)
    mean = (logs * exists[:, None]).sum(-1) / exists.sum(-1)[:, None]
    centred = np.where(exists[:, None], logs - mean[..., None], 0)
    assert fusion.core is not None
    np.testing.assert_allclose(fusion.core.mean[0, 0], centred.mean(0), atol=1e-4)
    np.testing.assert_allclose(fusion.core.scale[0, 0], 1 / centred.std(0), rtol=1e-4)


@pytest.mark.parametrize("config", [TINY, JOINT], ids=["algorithm 1", "joint"])
def test_what_is_decided_with_a_document_does_not_matter(config: object) -> None:
    """Nothing is scaled by the rows that are decided on; only the pool before is remembered."""
    data = asked_about(random_dataset(3, "choices", n_docs=150))
    data = replace(data, is_train=np.arange(150) < 100)
    [agents] = train(data.train, replace(TINY if config is TINY else JOINT, fusion_hidden=(4,)), [0])
    test = data.test
    whole, first = decide(agents, test), decide(agents, test.rows(np.arange(50) < 7))
    np.testing.assert_array_equal(first.pools, whole.pools[:7])
    np.testing.assert_array_equal(first.predictions, whole.predictions[:7])
    scrambled = replace(test, probs=np.concatenate([test.probs[:7], test.probs[:6:-1] ** 3]))
    again = decide(agents, scrambled)
    np.testing.assert_array_equal(again.predictions[:7], whole.predictions[:7])

"""The released behaviour against a literal reading of it, and every artefact switched off."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from support.agents_data import killed_after, random_dataset, skilled
from torch import Tensor, nn

from benchmarks.speed.released_loop import Decider, Fusion, ReleasedLoop, Settings
from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Kind
from rlfocal.data.policy import Decisions, decide
from rlfocal.methods.agents.networks import Sizes
from rlfocal.methods.rl_focal.artefacts import ARTEFACTS, Artefacts, ReleasedConfig, released_config
from rlfocal.methods.rl_focal.environment import train_environment, train_stream
from rlfocal.methods.rl_focal.mappo import walk
from rlfocal.methods.rl_focal.networks import Networks
from rlfocal.methods.rl_focal.released import released_accuracy
from rlfocal.methods.rl_focal.released_agents import ReleasedAgents, ReleasedLearner
from rlfocal.methods.rl_focal.training import train_agents
from rlfocal.methods.trained.checkpoint import load_checkpoint, save_checkpoint
from rlfocal.methods.trained.method import RLFocal

train = partial(train_agents, ReleasedAgents)
SHORT = ReleasedConfig(window=9, update_period=7, decider_episodes=3, fusion_episodes=3)


def stacked_weights(agents: Networks) -> list[tuple[Tensor, Tensor]]:
    """(n_in, n_out) weights and (n_out,) biases of the one seed, layer by layer."""
    assert agents.decider.trunk is not None
    assert agents.fusion.network is not None
    tensors = [*agents.decider.trunk.parameters(), *agents.fusion.network.parameters()]
    return [(w[0].detach(), b[0, 0].detach()) for w, b in zip(tensors[::2], tensors[1::2], strict=True)]


def copy(layer: nn.Module, weight: Tensor, bias: Tensor) -> None:
    assert isinstance(layer, nn.Linear)
    layer.weight.copy_(weight.T)
    layer.bias.copy_(bias)


def literal(agents: Networks, n_models: int, n_choices: int) -> tuple[Decider, Fusion]:
    """The same weights in the reference's networks."""
    decider, fusion = Decider(n_models), Fusion(n_models, n_choices)
    first, second, *layers = stacked_weights(agents)
    with torch.no_grad():
        copy(decider.shared, *first)
        for at, head in enumerate(decider.heads):
            copy(head, *(part[..., 2 * at : 2 * at + 2] for part in second))
        for own, stacked in zip(fusion.layers, layers, strict=True):
            copy(own, *stacked)
    return decider, fusion


@pytest.mark.parametrize("n_models", [4, pytest.param(10, marks=pytest.mark.slow)])
def test_rewards_are_the_literal_loops(n_models: int) -> None:
    """Query by query, through updates, leftovers at the ends of episodes and the change of phase."""
    data = random_dataset(3, "choices", n_docs=70, n_models=n_models)
    data = replace(data, n_choices=np.full(70, 5), labels=np.random.default_rng(1).integers(0, 5, size=70))
    agents = Networks(Sizes(n_models, 5, 1, 0), SHORT, [torch.Generator().manual_seed(5)], "choices")
    decider, fusion = literal(agents, n_models, 5)
    drawn = torch.Generator().manual_seed(8)
    loop = ReleasedLoop(
        data.probs,
        data.labels,
        decider,
        fusion,
        Settings(window=9, update_period=7),
        lambda n: torch.rand(n, generator=drawn),
    )
    environment = train_environment(train_stream(data, SHORT), SHORT, 1)
    assert (
        range(environment.first, environment.first + environment.length) == loop.documents() == range(11, 61)
    )
    generator = torch.Generator().manual_seed(8)
    for phase in ("decider", "fusion"):
        loop.start()
        learner = ReleasedLearner(agents, SHORT, phase)
        for _ in range(3):
            environment.reset()
            rollouts = [rollout for rollout, _ in walk(environment, learner, [generator])]
            rewards = torch.cat([rollout.rewards[0, :, 0, 0] for rollout in rollouts])
            np.testing.assert_allclose(rewards, loop.episode(phase), atol=1e-6)
            assert rollouts[-1].pools[0, -1, 0].tolist() == loop.pool
    first, _, *layers = stacked_weights(agents)
    for own, (weight, bias) in zip([decider.shared, *fusion.layers], [first, *layers], strict=True):
        assert isinstance(own, nn.Linear)
        torch.testing.assert_close(own.weight.detach().T, weight, rtol=1e-2, atol=1e-4)
        torch.testing.assert_close(own.bias.detach(), bias, rtol=1e-2, atol=1e-4)


def test_the_released_networks_have_17276_weights() -> None:
    agents = Networks(Sizes(8, 4, 1, 0), ReleasedConfig(), [torch.Generator()], "choices")
    assert sum(p.numel() for p in agents.parameters()) == 17_276


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_each_artefact_can_be_switched_off_and_matters(kind: Kind) -> None:
    """Those that concern answers only change nothing for choices."""
    data = skilled([0.9, 1.0, 0.3, 0.6, 0.5], n_docs=150, kind=kind)
    labels = np.where(np.arange(150) % 7 == 3, -1, data.labels) if kind == "answers" else data.labels
    data = replace(data, labels=labels)
    config = replace(SHORT, window=15, learning_rate=1e-4)

    def trace(artefacts: Artefacts) -> list[float]:
        policy = train(data.train, replace(config, artefacts=artefacts), [0])[0]
        decided = decide(policy, data.test)
        learned = [p.sum().item() for p in policy.networks.parameters()]
        return [*learned, *decided.pools.sum(axis=1).tolist(), *decided.predictions.tolist()]

    whole = trace(Artefacts())
    assert whole == trace(Artefacts())
    of_answers = {"slots_of_all_models", "unanswerable_left_out"}
    for name in sorted(of_answers) if kind == "answers" else ARTEFACTS:
        matters = trace(Artefacts.without(name)) != whole
        assert matters == (kind == "answers" or name not in of_answers), name


def test_released_accuracy_flatters_and_accuracy_does_not() -> None:
    data = skilled([0.9, 0.5], n_docs=100, kind="answers")
    test = replace(data.test, labels=np.where(np.arange(20) < 5, -1, data.test.labels))
    right_from_8 = np.where(np.arange(20) < 8, 3 - test.labels % 2, test.labels)
    decisions = Decisions(np.ones((20, 2), dtype=np.bool_), right_from_8)
    # 15 have an answer, 13 of those are scored, 12 of these are right, and 12 is the last index.
    assert released_accuracy(decisions, test, ReleasedConfig()) == 1.0


@pytest.mark.slow
def test_fusion_learns_what_plurality_cannot() -> None:
    """All models are always wrong by one."""
    data = skilled([0.0, 0.0, 0.0, 0.0], n_docs=400)
    config = replace(released_config(320), decider_episodes=1, fusion_episodes=25, learning_rate=1e-2)
    for policy in train(data.train, config, [0, 1, 2]):
        assert policy.history[1].accuracy < 0.5
        assert policy.history[-1].accuracy > 0.7


def test_checkpoints_come_back_whole(tmp_path: Path) -> None:
    data = skilled([0.9, 0.5, 0.3], n_docs=150)
    policy = RLFocal("rl_focal_released", replace(SHORT, window=15)).fit(data.train, [3])[0]
    path = tmp_path / "seed-3.safetensors"
    save_checkpoint(policy, path)
    loaded = load_checkpoint(path, data.models)
    assert isinstance(loaded, ReleasedAgents)
    assert isinstance(policy, ReleasedAgents)
    assert (loaded.config, loaded.history, loaded.seed) == (policy.config, policy.history, 3)
    np.testing.assert_array_equal(decide(loaded, data.test).pools, decide(policy, data.test).pools)
    np.testing.assert_array_equal(
        decide(loaded, data.test).predictions, decide(policy, data.test).predictions
    )


@pytest.mark.parametrize(
    ("episodes", "carried"),
    [
        (5, True),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((6, False), (11, True), (11, False))),
    ],
)
def test_killed_training_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, episodes: int, carried: bool
) -> None:
    """In either phase, with steps that wait for the next episode's update and with weights to go back to."""
    data = skilled([0.9, 0.5, 0.3], n_docs=60)
    config = replace(
        SHORT,
        decider_episodes=6,
        fusion_episodes=6,
        artefacts=Artefacts(returns_across_episodes=carried, live_best_weights=not carried),
    )
    with pytest.raises(KeyboardInterrupt):
        train(data.train, config, [3], killed_after(episodes), tmp_path / "kept")
    told: list[float] = []
    resumed = train(data.train, config, [3], told.append, tmp_path / "kept")
    assert len(told) == 12 - episodes // 5 * 5
    assert list((tmp_path / "kept").iterdir()) == []
    for one, other in zip(train(data.train, config, [3]), resumed, strict=True):
        save_checkpoint(one, tmp_path / "one")
        save_checkpoint(other, tmp_path / "other")
        assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_decisions_follow_from_the_seed_and_not_from_labels() -> None:
    data = skilled([0.9, 0.5, 0.3], n_docs=150)
    policies = train(data.train, replace(SHORT, window=15), [0, 1])
    decided = [decide(policy, data.test) for policy in policies]
    assert (decided[0].pools != decided[1].pools).any()
    shuffled = replace(data.test, labels=np.random.default_rng(1).permutation(data.test.labels))
    again = decide(policies[0], shuffled)
    np.testing.assert_array_equal(decided[0].pools, again.pools)
    np.testing.assert_array_equal(decided[0].predictions, again.predictions)
    with pytest.raises(InputError, match="another"):
        decide(policies[0], replace(data.test, models=("model-0", "model-1", "another")))


@pytest.mark.parametrize("kind", ["choices", pytest.param("answers", marks=pytest.mark.slow)])
def test_online_each_answer_comes_before_its_label(kind: Kind) -> None:
    data = skilled([0.9, 0.5, 0.3, 0.6], n_docs=300, kind=kind)
    artefacts = Artefacts.without("minus_99_for_small_pools")  # else nobody is asked after a small pool
    policy = train(data.train, replace(SHORT, window=15, artefacts=artefacts), [0])[0]
    before = {name: value.clone() for name, value in policy.networks.state_dict().items()}
    decided = policy.decide_online(data.test)
    for at in (0, 6, 7, 59):
        labels = data.test.labels.copy()
        labels[at:] = (labels[at:] + 1) % 4
        other = policy.decide_online(replace(data.test, labels=labels))
        np.testing.assert_array_equal(other.pools[: at + 1], decided.pools[: at + 1])
        np.testing.assert_array_equal(other.predictions[: at + 1], decided.predictions[: at + 1])
        assert at > 10 or (other.pools != decided.pools).any()
    assert all(torch.equal(value, before[name]) for name, value in policy.networks.state_dict().items())


def test_settings_and_streams_that_cannot_work() -> None:
    data = skilled([0.9, 0.5], n_docs=100)
    with pytest.raises(InputError, match="window of 50 twice"):
        train(data.train, replace(SHORT, window=50), [0])
    with pytest.raises(InputError, match="at least 2"):
        train(skilled([0.9], n_docs=100).train, SHORT, [0])
    with pytest.raises(InputError, match="weights"):
        ReleasedConfig(weights=(1.0,))
    with pytest.raises(InputError, match="no_critic"):
        Artefacts.without("no_critics")
    with pytest.raises(InputError, match="window is 1; it should be greater than or equal to 2"):
        ReleasedConfig(window=1)
    assert [released_config(n).window for n in (90, 160, 1_199)] == [30, 50, 50]
    assert released_config(8_000) == ReleasedConfig()

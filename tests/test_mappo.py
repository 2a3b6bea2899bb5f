"""MAPPO's update against Eq (7) written out seed by seed and step by step, and what it logs about itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_agents_environment import random_dataset
from test_agents_training import TINY, skilled
from torch import Tensor

from rlfocal.agents.rl_focal.config import RLFocalConfig
from rlfocal.agents.rl_focal.environment import Rollout, State, network_sizes, train_environment, train_stream
from rlfocal.agents.rl_focal.mappo import Diagnostics, Learner, Phase, collect_rollout
from rlfocal.agents.rl_focal.networks import Networks
from rlfocal.agents.rl_focal.training import train
from rlfocal.agents.storage.event_files import write_event_files
from rlfocal.methods import CheckpointStore, RLFocal

CONFIG = replace(
    TINY, decider_hidden=(6,), fusion_hidden=(6,), critic_hidden=(5,), actor_gain=1.0, learning_rate=0.02,
    epochs=4, clip=0.1, entropy=0.3, max_grad_norm=0.05, decider_gamma=0.9, fusion_gamma=0.4, gae_lambda=0.7,
    past_rewards=2, answer_slots=3,
)  # fmt: skip
"""Every term counts, and every limit is met."""

Layers = list[Tensor]


def layers(network: torch.nn.Module, seed: int) -> Layers:
    """Weights and biases in turn, one seed's."""
    return [torch.nn.Parameter(p[seed].detach().clone()) for p in network.parameters()]


def forward(network: Layers, x: Tensor) -> Tensor:
    for at in range(0, len(network), 2):
        x = (torch.sigmoid(x) if at else x) @ network[at] + network[at + 1][0]
    return x


def mlp(networks: Networks, phase: Phase) -> torch.nn.Module:
    """The actor's layers."""
    network = networks.decider.trunk if phase == "decider" else networks.fusion.network
    assert network is not None
    return network


class LiteralUpdate:
    """Eq (7), GAE and the critic's squared error for one seed, in loops, with torch's Adam and clipping."""

    def __init__(self, networks: Networks, config: RLFocalConfig, phase: Phase, seed: int) -> None:
        self.config, self.phase, self.seed = config, phase, seed
        self.sizes, self.standard = networks.sizes, networks.fusion.standardiser
        self.actor = layers(mlp(networks, phase), seed)
        self.critic = layers(networks.critic, seed)

    def seen(self, rollout: Rollout, t: int, b: int) -> tuple[Tensor, Tensor]:
        """o^Fus with each asked model's outputs standardised, and the mean of those outputs."""
        raw, n, c = rollout.states.fusion[self.seed, t, b], self.sizes.models, self.sizes.slots
        outputs = raw[: n * c].view(n, c)
        rows = [
            (outputs[j] - self.standard.mean[self.seed, 0, j]) * self.standard.scale[self.seed, 0, j]
            if outputs[j].sum() > 0
            else torch.zeros(c, dtype=torch.float64)
            for j in range(n)
        ]
        n_asked = max(sum(bool(row.any()) for row in rows), 1)
        return torch.cat([*rows, raw[n * c :]]), torch.stack(rows).sum(0) / n_asked

    def log_probs(self, rollout: Rollout, t: int, b: int) -> tuple[Tensor, Tensor]:
        """Of the action taken, and the entropy: one per branch, or one."""
        if self.phase == "decider":
            p = torch.sigmoid(forward(self.actor, rollout.states.decider[self.seed, t, b]))
            asked = rollout.pools[self.seed, t + 1, b] > 0
            return torch.where(asked, p, 1 - p).log(), -(p * p.log() + (1 - p) * (1 - p).log())
        observation, vote = self.seen(rollout, t, b)
        is_open = rollout.states.open[self.seed, t, b].nonzero()[:, 0].tolist() or [0]
        p = torch.softmax((forward(self.actor, observation) + self.config.vote_weight * vote)[is_open], 0)
        slot = is_open.index(int(rollout.answers[self.seed, t, b]))
        return p[slot].log()[None], -(p * p.log()).sum()[None]

    def value(self, rollout: Rollout, t: int, b: int) -> Tensor:
        state = torch.cat([rollout.states.decider[self.seed, t, b], self.seen(rollout, t, b)[0]])
        return forward(self.critic, state)[0]

    def run(self, rollout: Rollout) -> Diagnostics:
        config, rewards = self.config, rollout.rewards[self.seed]
        length, parallel = rewards.shape
        gamma = config.decider_gamma if self.phase == "decider" else config.fusion_gamma
        steps = [(t, b) for t in range(length) for b in range(parallel)]
        advantages, returns = {}, {}
        for b in range(parallel):
            values = [self.value(rollout, t, b).item() for t in range(length + 1)]
            for t in range(length):
                td_errors = [
                    (gamma * config.gae_lambda) ** (k - t)
                    * ((rewards[k, b] - rewards.mean()).item() + gamma * values[k + 1] - values[k])
                    for k in range(t, length)
                ]
                advantages[t, b] = sum(td_errors)
                returns[t, b] = advantages[t, b] + values[t]
        raw, targets = (np.array([of[step] for step in steps]) for of in (advantages, returns))
        weights = torch.tensor((raw - raw.mean()) / (raw.std() + 1e-5))
        old = [self.log_probs(rollout, *step)[0].detach() for step in steps]
        adam = torch.optim.Adam([*self.actor, *self.critic], lr=config.learning_rate)
        for _ in range(config.epochs):
            surrogates: list[Tensor] = []
            entropies, errors, kls, clipped = [], [], [], []
            for step, weight, target, before in zip(steps, weights, targets, old, strict=True):
                log_prob, entropy = self.log_probs(rollout, *step)
                for ratio in (log_prob - before).exp():
                    limited = min(max(ratio, 1 - config.clip), 1 + config.clip)
                    surrogates.append(torch.as_tensor(min(ratio * weight, limited * weight)))
                    kls.append(ratio - 1 - ratio.log())
                    clipped.append(float(abs(ratio - 1) > config.clip))
                entropies.append(entropy)
                errors.append((self.value(rollout, *step) - target) ** 2)
            policy_loss, value_loss = -torch.stack(surrogates).mean(), torch.stack(errors).mean()
            bonus = torch.cat(entropies).mean()
            adam.zero_grad()
            (policy_loss + value_loss - config.entropy * bonus).backward()  # type: ignore[no-untyped-call]
            norms = [
                torch.nn.utils.clip_grad_norm_(part, config.max_grad_norm)
                for part in (self.actor, self.critic)
            ]
            adam.step()
        return Diagnostics(
            policy_loss, value_loss, bonus, torch.stack(kls).mean(), torch.tensor(np.mean(clipped)),
            torch.tensor(1 - raw.var() / targets.var()), *norms,
        )  # fmt: skip


@pytest.mark.parametrize("phase", ["decider", "fusion"])
def test_an_update_is_eq_7_written_out(phase: Phase) -> None:
    """Parameters and diagnostics of every seed after a whole update in which every limit is met."""
    data = random_dataset(1, "choices", n_docs=40, n_models=3, n_slots=4)
    stream = train_stream(data, CONFIG)
    generators = [torch.Generator().manual_seed(seed) for seed in (0, 1)]
    networks = Networks(network_sizes(data, CONFIG, None), CONFIG, generators, "choices")
    networks.fusion.standardiser.learn(stream.outputs().distributions[0])
    environment = train_environment(stream, CONFIG, 2)
    learner = Learner(networks, CONFIG, phase)
    rollout = in_double(collect_rollout(environment, learner, 5, generators))
    learner = Learner(networks.double(), CONFIG, phase)
    literal = [LiteralUpdate(networks, CONFIG, phase, seed) for seed in (0, 1)]
    expected = [of_seed.run(rollout) for of_seed in literal]
    other = networks.fusion if phase == "decider" else networks.decider
    untouched = [p.detach().clone() for p in other.parameters()]
    logged = learner.update(rollout)
    for seed in (0, 1):
        actor = mlp(networks, phase)
        for network, own in ((actor, literal[seed].actor), (networks.critic, literal[seed].critic)):
            for stacked, p in zip(network.parameters(), own, strict=True):
                np.testing.assert_allclose(stacked[seed].detach(), p.detach(), atol=2e-6)
        for name, value in expected[seed]._asdict().items():
            got = getattr(logged, name)[seed].item()
            assert got == pytest.approx(float(value.detach()), rel=1e-4, abs=1e-6), name
        assert expected[seed].clip_fraction > 0.1
        assert min(expected[seed].actor_grad_norm, expected[seed].critic_grad_norm) > CONFIG.max_grad_norm
    assert all(torch.equal(p, q) for p, q in zip(other.parameters(), untouched, strict=True))


def in_double(rollout: Rollout) -> Rollout:
    decider, fusion, is_open = rollout.states
    states = State(decider.double(), fusion.double(), is_open)
    return rollout._replace(states=states, pools=rollout.pools.double(), rewards=rollout.rewards.double())


def test_every_episode_logs_how_its_updates_went() -> None:
    data = skilled([0.9, 0.5, 0.3], n_docs=120)
    [agents] = train(data.train, replace(TINY, decider_episodes=3, fusion_episodes=3), [0])
    assert [episode.phase for episode in agents.history] == ["decider"] * 3 + ["fusion"] * 3
    for episode in agents.history:
        logged = [getattr(episode, name) for name in Diagnostics._fields]
        assert all(value is not None and np.isfinite(value) for value in logged)
        assert 0 <= episode.clip_fraction <= 1  # type: ignore[operator]
        assert episode.approx_kl >= 0  # type: ignore[operator]
        assert min(episode.actor_grad_norm, episode.critic_grad_norm) > 0  # type: ignore[type-var, operator]
    even = np.log(2)  # an untrained branch is asked half the time
    assert agents.history[0].entropy == pytest.approx(even, abs=0.05)


def test_tensorboard_reads_the_event_files(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    data = skilled([0.9, 0.5], n_docs=60)
    for name, config in (("rl_focal", TINY), ("rl_focal_sequential", None)):
        store = CheckpointStore(tmp_path / name, event_files=True)
        method = RLFocal(name, config, store)
        for _ in range(2):  # trained, then found trained: the same files
            [agents] = method.fit(data.train, [3])
            folder = method.checkpoint(data.train, 3).with_suffix("")
            assert len(list(folder.iterdir())) == 1
            events = EventAccumulator(str(folder)).Reload()
            for name in ("accuracy", "policy_loss", "approx_kl"):
                shown = {}
                for phase in ("decider", "fusion", "joint", "stage"):
                    if f"{phase}/{name}" in events.Tags()["scalars"]:
                        for scalar in events.Scalars(f"{phase}/{name}"):
                            shown[phase, scalar.step] = pytest.approx(scalar.value, rel=1e-5)
                history = {(e.phase, e.episode): getattr(e, name) for e in agents.history}
                assert {k: v for k, v in history.items() if v is not None} == shown


def test_without_tensorboard_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlfocal.agents.storage.event_files.find_spec", lambda name: None)
    with pytest.raises(Exception, match=r"pip install 'rlfocal\[tensorboard\]'"):
        write_event_files([], tmp_path / "seed-0")

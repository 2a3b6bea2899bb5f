"""MAPPO's update against Eq (7) and turn-based GAE written out in loops, and what its parts are for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.agents_data import TINY, asked_about, random_dataset, skilled
from torch import Tensor

from rlfocal.data.dataset import Kind
from rlfocal.methods import CheckpointStore, RLFocal
from rlfocal.methods.rl_focal.config import RLFocalConfig, rl_focal_config
from rlfocal.methods.rl_focal.environment import Rollout, network_sizes, train_environment, train_stream
from rlfocal.methods.rl_focal.mappo import Diagnostics, Learner, collect_rollout, turn_advantages
from rlfocal.methods.rl_focal.networks import Networks
from rlfocal.methods.rl_focal.questions import Multiplier, Questions, fit_questions
from rlfocal.methods.rl_focal.training import train

CONFIG = RLFocalConfig(
    decider_hidden=(6,), fusion_hidden=(5,), critic_hidden=(5,), past_rewards=2, word_directions=2,
    actor_gain=1.0, learning_rate=0.3, core_rate=0.3, question_rate=0.3, critic_rate=0.02, epochs=2,
    clip=0.02, entropy=0.3, max_grad_norm=50.0, size_penalty=0.4, mean_pool=1.2, answer_slots=3, stretches=3,
    samples=4, decider_gamma=0.9, fusion_gamma=0.4, gae_lambda=0.7, weight_ridge=7.0, budgets=(1,),
)  # fmt: skip
"""Every term counts; by the second epoch most ratios are beyond the clip."""
PHASES = ("decider", "fusion", "joint")


@pytest.mark.parametrize(("gamma", "lam"), [(0.9, 0.7), (0.9, 1.0), (0.9, 0.0), (0.0, 0.7), (1.0, 0.6)])
def test_advantages_by_turns_are_gae_on_the_interleaved_sequence(gamma: float, lam: float) -> None:
    """Decider, Fusion, Decider, ...: no reward and no discount after the Decider, both after Fusion."""
    draw = np.random.default_rng(0)
    length, walks, samples = 6, 4, 3
    rewards = draw.normal(size=(length, walks, samples))
    before, after = draw.normal(size=(length + 1, walks)), draw.normal(size=(length, walks))
    given = torch.tensor(rewards), torch.tensor(before), torch.tensor(after)
    found = turn_advantages(*given, gamma, lam)
    for b in range(walks):
        following = 0.0
        for t in reversed(range(length)):
            later = gamma * (before[t + 1, b] + lam * following) - after[t, b]
            own = [rewards[t, b, q] + later for q in range(samples)]
            np.testing.assert_allclose(found.fusion[t, b], own)
            assert found.returns[t, b].item() == pytest.approx(np.mean(own) + after[t, b])
            following = after[t, b] - before[t, b] + lam * np.mean(own)
            assert found.decider[t, b].item() == pytest.approx(following)
            assert found.returns_before[t, b].item() == pytest.approx(following + before[t, b])
    if gamma == 0:  # only the document's own rewards count
        np.testing.assert_allclose(found.fusion, rewards - after[..., None])
    if lam == 0:
        np.testing.assert_allclose(found.decider, after - before[:-1])
    if lam == 1:  # the discounted rewards, whatever was expected on the way
        whole = sum(gamma**t * rewards[t].mean(-1) for t in range(length)) + gamma**length * before[length]
        np.testing.assert_allclose(found.decider[0], whole - before[0])
        np.testing.assert_allclose(found.fusion[0].mean(-1), whole - after[0])


def acted(
    config: RLFocalConfig, phase: str, kind: Kind = "choices", seed: int = 0
) -> tuple[Networks, Questions | None, Rollout]:
    """Networks at random weights in double precision, and how they acted on a few documents."""
    data = asked_about(random_dataset(1, kind, n_docs=40, n_models=3, n_slots=4))
    questions = fit_questions(data, config)
    stream = train_stream(data, config, questions)
    generator = torch.Generator().manual_seed(seed)
    networks = Networks(network_sizes(data, config, questions), config, generator, kind)
    everyone = stream.outputs()
    networks.fusion.fit_scales(everyone.distributions, everyone.open, data, 2.0)
    draw = torch.Generator().manual_seed(9 + seed)
    for p in (*networks.fusion.parameters(), networks.decider.question):
        p.data += 0.3 * torch.randn(p.shape, generator=draw)
    n_budgets = len(questions.budgets) if questions is not None else 0
    environment = train_environment(stream, config, n_budgets)
    rollout = collect_rollout(environment, Learner(networks, config, phase, questions), 5, generator)
    doubled = [part.double() if part.is_floating_point() else part for part in rollout]
    return networks.double(), questions, Rollout(*doubled)


def learning(networks: Networks, config: RLFocalConfig, phase: str, questions: Questions | None) -> Learner:
    """A learner that charges for pools, in double precision."""
    learner = Learner(networks, config, phase, questions, 40)
    learner.multiplier.values = torch.rand(2, generator=torch.Generator().manual_seed(3)).double()
    return learner


class LiteralUpdate:
    """The loss of one epoch, a document at a time."""

    def __init__(self, networks: Networks, config: RLFocalConfig, phase: str, rollout: Rollout) -> None:
        self.networks, self.config, self.phase, self.rollout = networks, config, phase, rollout
        self.length, self.parallel = rollout.pools.shape[:2]
        self.steps = list(np.ndindex(self.length, self.parallel))

    def log_probs(self, t: int, b: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Of each acting agent: log-probabilities of its actions, and its entropy."""
        rollout, acting = self.rollout, {}
        if self.phase != "fusion":
            p = torch.sigmoid(self.networks.decider(rollout.decider[t, b][None])[0])
            asked = rollout.pools[t, b] > 0
            acting["decider"] = (
                torch.where(asked, p, 1 - p).log(),
                -(p * p.log() + (1 - p) * (1 - p).log()).sum(),
            )
        if self.phase != "decider":
            logits = self.networks.fusion(rollout.fusion[t, b][None], rollout.open[t, b][None])[0]
            p = torch.softmax(logits, 0)
            q = p[p > 0]
            acting["fusion"] = (
                torch.stack([p[c].log() for c in rollout.answers[t, b]]),
                -(q * q.log()).sum(),
            )
        return acting

    def values(self) -> tuple[Tensor, Tensor]:
        """(L+1, B) before and (L, B) after the Decider's actions."""
        critic, rollout = self.networks.critic, self.rollout
        assert critic is not None
        standard = self.networks.fusion.standardiser

        def value(state: Tensor) -> Tensor:
            judged: Tensor = critic(state[None])[0, 0]
            return judged

        before, after = [], []
        for t, b in np.ndindex(self.length + 1, self.parallel):
            seen = rollout.decider[t, b]
            before.append(value(torch.cat([seen, seen.new_zeros(rollout.fusion.shape[-1] + 1)])))
        for t, b in self.steps:
            told = standard(rollout.fusion[t, b][None])[0]
            after.append(value(torch.cat([rollout.decider[t + 1, b], told, told.new_ones(1)])))
        return (
            torch.stack(before).view(self.length + 1, -1),
            torch.stack(after).view(self.length, -1),
        )

    def remember(self, multiplier: Tensor, n_budgets: int) -> None:
        """What stays the same for all epochs: θ_old, advantages and returns. `multiplier` (K,)."""
        rollout, config = self.rollout, self.config
        self.old = {step: {k: v[0].detach() for k, v in self.log_probs(*step).items()} for step in self.steps}
        before, after = (v.detach() for v in self.values())
        rewards = rollout.rewards.clone()
        for t, b in self.steps:
            told = rollout.decider[t, b, rollout.decider.shape[-1] - n_budgets :].tolist()
            cost = multiplier[told.index(1.0) if 1.0 in told else -1]
            rewards[t, b] -= cost * rollout.pools[t, b].mean()
        of_decider, of_fusion = (
            turn_advantages(rewards, before, after, gamma, config.gae_lambda)
            for gamma in (config.decider_gamma, config.fusion_gamma)
        )
        raw = of_decider.decider
        self.weights = {"decider": ((raw - raw.mean()) / (raw.std(correction=0) + 1e-5))[..., None]}
        fused = of_fusion.fusion
        if config.success_weighting:
            weight = torch.zeros_like(fused)
            for t, b in self.steps:
                share = rollout.right[t, b].mean()
                if share > 0:
                    weight[t, b] = fused[t, b] / (2 * share)
        else:
            weight = (fused - fused.mean()) / (fused.std(correction=0) + 1e-5)
        self.weights["fusion"] = weight
        self.returns = of_decider.returns_before, of_decider.returns

    def loss(self, prior: Tensor) -> tuple[Tensor, float]:
        """With the share of ratios beyond the clip."""
        total, beyond, n = prior, [], len(self.steps)
        for step in self.steps:
            for agent, (log_probs, entropy) in self.log_probs(*step).items():
                parts = []
                for i, log_prob in enumerate(log_probs):
                    weight = self.weights[agent][step][i if agent == "fusion" else 0]
                    ratio = (log_prob - self.old[step][agent][i]).exp()
                    limited = min(max(ratio.item(), 1 - self.config.clip), 1 + self.config.clip)
                    parts.append(
                        ratio * weight
                        if (ratio * weight).item() <= limited * weight.item()
                        else limited * weight
                    )
                    beyond.append(limited != ratio.item())
                gained = torch.stack(parts).sum() if agent == "decider" else torch.stack(parts).mean()
                total = total - (gained + self.config.entropy * entropy) / n
        judged, returned = self.values(), self.returns
        errors = [(judged[0][:-1] - returned[0]) ** 2, (judged[1] - returned[1]) ** 2]
        return total + torch.cat(errors).mean(), float(np.mean(beyond))


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("weighting", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_an_update_is_eq_7_written_out(phase: str, weighting: bool, seed: int) -> None:
    """Every gradient step, the second with ratios beyond the clip."""
    config = replace(CONFIG, success_weighting=weighting)
    networks, questions, rollout = acted(config, phase, "answers" if weighting else "choices", seed)
    assert questions is not None
    learner = learning(networks, config, phase, questions)
    literal = LiteralUpdate(networks, config, phase, rollout)
    literal.remember(learner.multiplier.values, len(questions.budgets))
    found: list[float] = []

    def compare(loss: Tensor, share: float) -> list[Tensor]:
        """Instead of the optimiser's step, before it."""
        expected, beyond = literal.loss(learner._compute_prior())
        torch.testing.assert_close(loss, expected)
        wanted = [p for p in learner.optimiser.parameters if p.numel()]
        ours, theirs = (
            torch.autograd.grad(of, wanted, retain_graph=True, allow_unused=True) for of in (loss, expected)
        )
        for mine, other in zip(ours, theirs, strict=True):
            assert (mine is None) is (other is None)
            if mine is not None and other is not None:
                torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)
        found.append(beyond)
        return descend(loss, share)

    descend = learner.optimiser.descend
    learner.optimiser.descend = compare  # type: ignore[method-assign, assignment]
    logged = learner.update(rollout)
    assert logged is not None
    assert found[0] == 0
    assert found[1] > 0.3
    assert logged.clip_fraction.item() == pytest.approx(found[1], abs=0.05)


@pytest.mark.parametrize("phase", PHASES)
def test_frozen_networks_do_not_change_in_a_phase(phase: str) -> None:
    networks, questions, rollout = acted(CONFIG, phase)
    before = {name: p.detach().clone() for name, p in networks.named_parameters()}
    learning(networks, CONFIG, phase, questions).update(rollout)
    for name, p in networks.named_parameters():
        learns = name.startswith("critic") or phase in (name.split(".")[0], "joint")
        assert torch.equal(p, before[name]) is not learns, name


def weights_after(config: RLFocalConfig) -> Tensor:
    """Both actors' weights after one joint update."""
    networks, questions, rollout = acted(config, "joint")
    learning(networks, config, "joint", questions).update(rollout)
    actors = (*networks.decider.parameters(), *networks.fusion.parameters())
    return torch.cat([p.detach().flatten() for p in actors])


@pytest.mark.parametrize(
    "changes",
    [
        {"decider_gamma": 0.3}, {"fusion_gamma": 0.9}, {"gae_lambda": 0.2}, {"has_critic": False},
        {"clip": 0.5}, {"entropy": 0.0}, {"success_weighting": False},
    ],
)  # fmt: skip
def test_every_setting_of_the_update_counts(changes: dict[str, Any]) -> None:
    assert not torch.allclose(weights_after(CONFIG), weights_after(replace(CONFIG, **changes)), atol=1e-4)


def test_actions_are_drawn_by_the_policies() -> None:
    """As often as their probabilities say: pools by Eq (5), answers by Fusion's softmax."""
    config = replace(CONFIG, copies=40, samples=64)
    networks, _, rollout = acted(config, "joint")
    asked = torch.sigmoid(networks.decider(rollout.decider[:-1].flatten(0, 1)))
    assert asked.min() > 0.1
    share = (rollout.pools.flatten(0, 1) - asked).mean(0)
    assert share.abs().max() < 4 * 0.5 / (len(asked) ** 0.5)
    logits = networks.fusion(rollout.fusion.flatten(0, 1), rollout.open.flatten(0, 1))
    chances = torch.softmax(logits, -1)
    drawn = torch.nn.functional.one_hot(rollout.answers.flatten(0, 1), chances.shape[-1]).double().mean(-2)
    assert (drawn - chances).abs().max() < 0.35  # five standard errors of 64 draws
    assert (drawn - chances).mean(0).abs().max() < 0.02


def test_the_multiplier_rises_where_pools_are_too_large() -> None:
    """By (mean pool / target)^0.3 for each budget apart, never below its start; without a target it is 0."""
    limit = Multiplier((1, 2), 3.0)
    start = limit.values.clone()
    within = torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 1, 1]])
    limit.adapt(torch.tensor([4.0, 6, 6, 6]), within)
    torch.testing.assert_close(limit.values / start, torch.tensor([4**0.3, 1.0, 2**0.3]))
    limit.adapt(torch.tensor([0.0, 0, 0, 0]), within)
    torch.testing.assert_close(limit.values, start)
    free = Multiplier((), 0)
    free.adapt(torch.tensor([9.0]), torch.ones(1, 1))
    assert free.values.tolist() == [0.0]
    bounded = Multiplier((1,), 3.0, most=0.02)
    bounded.adapt(torch.tensor([9.0, 9.0]), torch.eye(2))
    torch.testing.assert_close(bounded.values, torch.tensor([0.01 * 9**0.3, 0.01 * 3**0.3]).clamp(max=0.02))


def test_budgets_that_stay_out_of_reach_do_not_drown_what_answers_earn() -> None:
    """With many models that all help, pools stay far above a budget of 1 for long, and its cost rises."""
    data = skilled(np.linspace(0.5, 0.7, 40).tolist(), n_docs=400)
    [agents] = train(data.train, replace(rl_focal_config(len(data.train)), has_floor=False), [0])
    losses = [episode.value_loss or 0.0 for episode in agents.history if episode.phase == "joint"]
    assert max(losses) < 10  # of returns, which a right answer raises by 2


def test_every_episode_logs_how_its_updates_went() -> None:
    data = skilled([0.9, 0.5, 0.3], n_docs=120)
    [agents] = train(data.train, replace(TINY, decider_episodes=3, fusion_episodes=3), [0])
    assert [episode.phase for episode in agents.history] == ["decider"] * 3 + ["fusion"] * 3
    for episode in agents.history:
        logged = [getattr(episode, name) for name in Diagnostics._fields]
        assert all(value is not None and np.isfinite(value) for value in logged)
        assert 0 <= (episode.clip_fraction or 0) <= 1
        assert (episode.approx_kl or 0) >= 0
        assert min(episode.actor_grad_norm or 0, episode.critic_grad_norm or 0) > 0
    even = len(data.models) * np.log(2)  # an untrained branch is asked half the time
    assert agents.history[0].entropy == pytest.approx(even, abs=0.15)


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

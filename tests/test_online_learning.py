"""Algorithm 2's own update: its loss in loops, what it moves, and the streams that it has to follow."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from test_agents_environment import random_dataset
from test_agents_training import asked_about, stream
from test_joint import CONFIG, ONE, LiteralAgents, compare
from test_mappo import Layers, in_double

from rlfocal.agents.rl_focal.agents import RLFocalAgents
from rlfocal.agents.rl_focal.config import RLFocalConfig, rl_focal_config
from rlfocal.agents.rl_focal.environment import Environment, Rollout, network_sizes, train_stream
from rlfocal.agents.rl_focal.networks import Networks
from rlfocal.agents.rl_focal.online import OnlineLearner
from rlfocal.agents.rl_focal.questions import fit_questions
from rlfocal.agents.rl_focal.training import train
from rlfocal.agents.shared.policies import logistic_noise, modal_answer, modal_pool
from rlfocal.dataset import Dataset, Kind
from rlfocal.policy import decide

ONLINE = replace(CONFIG, online_share=0.6, epochs=4)


def walked(kind: Kind, config: RLFocalConfig, length: int) -> tuple[Dataset, OnlineLearner, Rollout]:
    """One seed's networks at random weights, and how they answered `length` documents."""
    data = asked_about(random_dataset(1, kind, n_docs=40, n_models=3, n_slots=4))
    questions = fit_questions(data, config)
    of = train_stream(data, config, questions)
    draw = torch.Generator().manual_seed(0)
    networks = Networks(network_sizes(data, config, questions), config, [draw], kind)
    everyone = of.outputs()
    networks.fusion.standardiser.learn(everyone.distributions[0])
    assert networks.fusion.core is not None
    networks.fusion.core.learn(
        everyone.distributions[0], everyone.open[0], torch.tensor([0.3, 0.5, 0.6]), 2.0
    )
    for p in (*networks.fusion.core.parameters(), networks.decider.question):
        p.data += 0.5 * torch.randn(p.shape, generator=draw)
    environment = Environment(of, config, 1, stretches=1, copies=1, first=5, length=length)
    with torch.no_grad():
        rollout = environment.rollout(
            length,
            lambda t, seen, before: (torch.rand(before.shape, generator=draw) < 0.6).float(),
            lambda *given: lambda t, past: modal_answer(networks.fusion.by_step(*given)(t, past)),
        )
    return data, OnlineLearner(networks.double(), config), in_double(rollout)


class LiteralOnline(LiteralAgents):
    """`OnlineLearner.learn` in loops, with torch's Adam and clipping."""

    def run(self, rollout: Rollout, config: RLFocalConfig, explores: bool) -> float:
        """Returns the share of ratios beyond the clip."""
        length, n = rollout.gold.shape[1], self.sizes.models
        rate, fusion_rate = config.learning_rate, config.log_linear_rate * config.online_share
        parts: list[Layers] = [[self.question], self.trunk, [*self.core, *self.network], self.critic]
        rates = [config.question_rate / 2, rate, fusion_rate, rate]
        adam = torch.optim.Adam(
            [{"params": part, "lr": rate} for part, rate in zip(parts, rates, strict=True)]
        )
        rewards = []
        for t in range(length - 1):  # the pool chosen at t answers document t + 1
            asked = rollout.pools[0, t + 1, 0]
            right = rollout.gold[0, t + 1, 0] == rollout.answers[0, t + 1, 0] >= 0
            assert bool(right) is bool(rollout.right[0, t + 1, 0])
            rewards.append(1.0 if right else -1 - config.size_penalty * float(asked.sum()) / n)
        advantages = np.array([r - self.value(rollout, t, 0).item() for t, r in enumerate(rewards)])
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-5)
        known = [t for t in range(length) if rollout.gold[0, t, 0] >= 0]
        old = [self.chances(rollout, t, 0).detach() for t in range(length - 1)]
        before = {t: self.log_score(rollout, t, 0).detach() for t in known}
        beyond: list[bool] = []
        for _ in range(config.epochs):
            asks, answers, errors, beyond = [], [], [], []
            for t in range(length - 1):
                chances, pool = self.chances(rollout, t, 0), rollout.pools[0, t + 1, 0]
                for i in range(n):
                    ratio = chances[i] / old[t][i] if pool[i] else (1 - chances[i]) / (1 - old[t][i])
                    limited = torch.minimum(torch.maximum(ratio, ONE - config.clip), ONE + config.clip)
                    asks.append(torch.minimum(ratio * advantages[t], limited * advantages[t]))
                    beyond.append(abs(float(ratio.detach()) - 1) > config.clip)
                errors.append((self.value(rollout, t, 0) - rewards[t]) ** 2)
            for t in known:
                ratio = (self.log_score(rollout, t, 0) - before[t]).exp()
                answers.append(torch.minimum(ratio, ONE + config.clip))
            loss = torch.stack(errors).mean() - torch.stack(answers).mean()
            if explores:
                loss = loss - torch.stack(asks).mean()
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            for part in parts:
                torch.nn.utils.clip_grad_norm_(part, config.max_grad_norm)
            adam.step()
        return float(np.mean(beyond))


@pytest.mark.parametrize("explores", [True, False])
@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_an_online_update_is_its_loss_written_out(kind: Kind, explores: bool) -> None:
    data, learner, rollout = walked(kind, ONLINE, 8)
    learner.explores = explores
    known = torch.zeros(0)
    literal = LiteralOnline(learner.networks, data, known, 0)
    beyond = literal.run(rollout, ONLINE, explores)
    learner.learn(rollout)
    compare(learner.networks, literal)
    assert beyond > 0.1 if explores else beyond == 0


def test_the_decider_learns_from_pools_that_it_explored_with_alone() -> None:
    _, learner, rollout = walked("choices", ONLINE, 8)
    before = [p.detach().clone() for p in learner.networks.decider.parameters()]
    learner.explores = False
    learner.learn(rollout)
    assert all(map(torch.equal, learner.networks.decider.parameters(), before))
    learner.explores = True
    learner.learn(rollout)
    assert not any(map(torch.equal, learner.networks.decider.parameters(), before))


def test_a_steady_decider_asks_whom_it_would_and_one_that_explores_others_too() -> None:
    _, learner, rollout = walked("choices", ONLINE, 8)
    learner.networks.decider.question.data[0] = torch.tensor([2.0, -1.0, -3.0])
    observed = rollout.states.decider[:, 0].expand(-1, 4000, -1)
    likeliest = modal_pool(learner.networks.decider(observed))
    assert 0 < likeliest[0, 0].sum() < likeliest.shape[-1]
    noise = logistic_noise(torch.rand(likeliest.shape, generator=torch.Generator().manual_seed(1)))
    assert not learner.explores
    assert torch.equal(learner.pool(observed, noise), likeliest)
    learner.explores = True
    explored = learner.pool(observed, noise)
    assert (explored >= likeliest).all()
    share = explored[likeliest == 0].mean()
    assert float(share) == pytest.approx(1 / (1 + np.exp(-ONLINE.start_logit)), abs=0.02)
    to_the_letter = OnlineLearner(learner.networks, replace(ONLINE, literal=True))
    assert to_the_letter.explores
    chances = torch.sigmoid(learner.networks.decider(observed)).mean((0, 1))
    shares = to_the_letter.pool(observed, noise).mean((0, 1))
    assert shares.tolist() == pytest.approx(chances.tolist(), abs=0.03)


def test_who_falls_short_of_what_train_promised_explores() -> None:
    """Three standard errors, by the trained Fusion's chances; earlier labels fade by a fifth each time."""
    _, learner, _ = walked("choices", ONLINE, 8)
    chances = torch.tensor([[0.9, 0.1]] * 50)[None].log()
    short = promised = variance = 0.0
    explored = []
    for n_right in (45, 40, 43, 20, 20, 50, 50, 50, 50, 50, 50):
        learner._look_out((torch.arange(50) < n_right)[None].float(), chances)
        short, promised, variance = 0.8 * short + n_right, 0.8 * promised + 45, 0.8 * variance + 50 * 0.09
        explored.append(short < promised - 3 * variance**0.5)
        assert learner.explores is explored[-1]
    assert explored[:4] == [False, False, False, True]
    assert not explored[-1]
    fewer = OnlineLearner(learner.networks, ONLINE, found=0.5)
    fewer._look_out((torch.arange(50) < 20)[None].float(), chances)  # promised: 22.5
    assert not fewer.explores
    fewer._look_out((torch.arange(50) < 5)[None].float(), chances)
    assert fewer.explores


def test_all_of_both_agents_and_the_critic_move_by_one_optimiser() -> None:
    """What the optimiser steps is what the networks hold: no parameter was taken to another home."""
    _, learner, rollout = walked("choices", ONLINE, 8)
    learner.explores = True
    before = {name: p.detach().clone() for name, p in learner.networks.named_parameters()}
    learner.learn(rollout)
    for name, p in learner.networks.named_parameters():
        assert not torch.equal(p, before[name]), name
    held = torch.cat([p.detach().flatten(1) for p in learner.optimiser.parameters], 1)
    assert torch.equal(held, learner.optimiser.values)
    assert {id(p) for p in learner.optimiser.parameters} == {id(p) for p in learner.networks.parameters()}


@pytest.mark.parametrize("length", [1, 2])
def test_the_shortest_rollouts_can_be_learned_from(length: int) -> None:
    _, learner, rollout = walked("choices", ONLINE, length)
    learner.learn(rollout)
    assert all(torch.isfinite(p).all() for p in learner.networks.parameters())


BEFORE, AFTER = (0.9, 0.85, 0.4, 0.3, 0.35, 0.4), (0.3, 0.35, 0.4, 0.9, 0.85, 0.4)


def turning(seed: int, at: int) -> Dataset:
    """400 train documents and 900 test documents; from the `at`-th of these on others are right."""
    rng = np.random.default_rng(seed)
    n = 1300
    labels = rng.integers(0, 4, n)
    right = rng.random((n, 6)) < np.where((np.arange(n) < 400 + at)[:, None], BEFORE, AFTER)
    wrong = (labels[:, None] + rng.integers(1, 4, right.shape)) % 4
    said = stream(np.where(right, labels[:, None], wrong), labels, 4)
    return replace(said, is_train=np.arange(n) < 400)


def agents_of(data: Dataset, seed: int) -> RLFocalAgents:
    [agents] = train(data.train, replace(rl_focal_config(400), window=60), [seed])
    return agents


def best_constant(data: Dataset) -> float:
    """Accuracy of the pool whose plurality is best in hindsight; ties: the first of the pool."""
    shares = []
    for pool in product((False, True), repeat=len(data.models)):
        if any(pool):
            votes = np.zeros((len(data), 4))
            for said in data.predictions[:, list(pool)].T:
                votes[np.arange(len(data)), said] += 1 - 1e-3 * votes.any(1)
            shares.append((votes.argmax(1) == data.labels).mean())
    return float(max(shares))


def test_a_stream_that_turns_is_followed() -> None:
    """From 300 documents after the turn on, at least 90 % of the best constant pool's accuracy."""
    shares, late = [], np.arange(900) >= 600
    for seed in range(3):
        data = turning(seed, at=300)
        agents = agents_of(data, seed)
        online, frozen = agents.decide_online(data.test), decide(agents, data.test)
        right = (online.predictions == data.test.labels)[late].mean()
        assert right > (frozen.predictions == data.test.labels)[late].mean() + 0.2
        shares.append(right / best_constant(data.test.rows(late)))
    assert np.mean(shares) >= 0.9
    assert min(shares) >= 0.85


def test_a_stream_that_does_not_turn_costs_little() -> None:
    """Of 900 documents; the standard error of a stream's difference is some 0.3 points."""
    costs = []
    for seed in range(3):
        data = turning(seed, at=900)
        agents = agents_of(data, seed)
        online, frozen = agents.decide_online(data.test), decide(agents, data.test)
        costs.append((frozen.predictions == data.test.labels).mean())
        costs[-1] -= (online.predictions == data.test.labels).mean()
    assert max(costs) <= 0.008
    assert np.mean(costs) <= 0.003


@pytest.mark.parametrize("spoiled", ["learned", "trained"])
def test_who_foresees_labels_better_answers(spoiled: str) -> None:
    _, learner, rollout = walked("choices", ONLINE, 8)
    trained, learned = learner.fusion, learner.networks.fusion
    assert trained is not learned
    worse = learned.core if spoiled == "learned" else trained.core
    assert worse is not None
    worse.weight.data *= -20
    learner.learn(rollout)
    assert learner.fusion is (trained if spoiled == "learned" else learned)

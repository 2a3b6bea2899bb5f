"""The joint phase in loops: what a model more is worth, Eq (7) over both actions, and whole updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from test_agents_environment import random_dataset
from test_agents_training import JOINT, asked_about
from test_mappo import Layers, forward, in_double, layers
from torch import Tensor

from rlfocal.agents.rl_focal.config import RLFocalConfig
from rlfocal.agents.rl_focal.environment import Rollout, network_sizes, train_environment, train_stream
from rlfocal.agents.rl_focal.joint import (
    LEAST_MULTIPLIER,
    MULTIPLIER_POWER,
    WORST,
    Everyone,
    JointLearner,
    branch_surrogate,
    counterfactuals,
)
from rlfocal.agents.rl_focal.log_linear import LEAST
from rlfocal.agents.rl_focal.mappo import Diagnostics, collect_rollout
from rlfocal.agents.rl_focal.networks import Networks
from rlfocal.agents.rl_focal.questions import fit_questions
from rlfocal.dataset import Dataset, Kind

CONFIG = replace(
    JOINT, decider_hidden=(6,), fusion_hidden=(5,), critic_hidden=(5,), past_rewards=2, word_directions=2,
    actor_gain=1.0, learning_rate=0.02, log_linear_rate=0.05, question_rate=0.08, epochs=3, clip=0.02,
    max_grad_norm=0.05, size_penalty=0.4, mean_pool=1.2, answer_slots=4, stretches=3, weight_ridge=7.0,
    slots_ridge=11.0, task_ridge=5.0, words_ridge=13.0, budget_ridge=17.0, branch_task_ridge=3.0,
    branch_words_ridge=19.0,
)  # fmt: skip
"""Every term counts, and every limit is met."""
ONE = torch.ones((), dtype=torch.float64)
EPISODE = 1
"""In which the last of three stretches is held to a budget of one model."""


def score_of(logits: Tensor, opened: Sequence[int], gold: int, n_asked: int) -> Tensor:
    """log π(gold), as low as can be where it cannot be answered."""
    if not n_asked or gold not in opened:
        return WORST * ONE
    return torch.log_softmax(logits[opened], 0)[list(opened).index(gold)].clamp(min=WORST)


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_what_a_model_more_is_worth_by_brute_force(kind: Kind) -> None:
    """Every branch changed alone, the pool's logits built from scratch for both of its actions."""
    draw = torch.Generator().manual_seed(0)
    seeds, rows, n, c = 2, 40, 3, 4
    added = 3 * torch.randn((seeds, rows, n, c), generator=draw, dtype=torch.float64)
    pools = (torch.rand((seeds, rows, n), generator=draw) < 0.5).double()
    exists = torch.arange(c) < torch.randint(1, c + 1, (1, rows, 1), generator=draw)
    given = (torch.rand((rows, n, c), generator=draw) < 0.4) & exists[0, :, None]
    gold = torch.randint(-1, c, (rows,), generator=draw)
    biases = torch.randn((seeds, rows, c), generator=draw).double() if kind == "choices" else 0 * ONE
    price = torch.tensor([0.0, 0.7], dtype=torch.float64)[:, None, None]
    of_answers = given if kind == "answers" else None
    worth = counterfactuals(added, biases, pools, exists, of_answers, gold, 0.3, price)
    worst = 0
    for s, m in np.ndindex(seeds, rows):
        bias = biases[s, m] if kind == "choices" else torch.zeros(c)

        def earned(asked: list[int], s: int = s, m: int = m, bias: Tensor = bias) -> tuple[float, float]:
            """The Decider's reward, and Eq (6) in expectation."""
            logits = bias + sum((added[s, m, j] for j in asked), torch.zeros(c))
            is_open = exists[0, m] if kind == "choices" else given[m, asked].any(0)
            score = score_of(logits, is_open.nonzero()[:, 0].tolist(), int(gold[m]), len(asked)).item()
            p, share = np.exp(score), len(asked) / n
            return score - (0.3 * (1 - p) + float(price[s])) * share, p + (1 - p) * (-1 - 0.3 * share)

        asked = pools[s, m].nonzero()[:, 0].tolist()
        worst += earned(asked)[1] < -0.999
        assert worth.reward[s, m].item() == pytest.approx(earned(asked)[1], abs=1e-9)
        for i in range(n):
            others = [j for j in asked if j != i]
            gain = earned(sorted([*others, i]))[0] - earned(others)[0]
            assert worth.gain[s, m, i].item() == pytest.approx(gain, abs=1e-9)
    assert bool((gold < 0).any())
    assert bool((pools.sum(-1) == 0).any())
    assert 0 < worst < seeds * rows


def literal_branch(p: Tensor, old: Tensor, gain: Tensor, clip: float) -> Tensor:
    """One branch: the mean of Eq (7) over asking and not asking, as likely as they were."""
    total = 0 * ONE
    for asks in (True, False):
        chance, before = (p, old) if asks else (1 - p, 1 - old)
        advantage = (gain if asks else 0 * ONE) - old * gain  # what it earns, less what is to be expected
        ratio = chance / before
        limited = min(max(ratio, ONE - clip), ONE + clip)
        total = total + before * min(ratio * advantage, limited * advantage)
    return total


def test_the_surrogate_is_eq_7_over_both_actions() -> None:
    draw = torch.Generator().manual_seed(1)
    new, old = torch.rand((2, 1, 60, 3), generator=draw, dtype=torch.float64)
    gain = torch.randn((1, 60, 3), generator=draw, dtype=torch.float64)
    surrogate = branch_surrogate(new, old, gain, 0.2)
    for at in np.ndindex(*gain.shape):
        assert surrogate[at].item() == pytest.approx(literal_branch(new[at], old[at], gain[at], 0.2).item())


def test_at_the_old_policy_the_gradient_is_that_of_the_expected_gain() -> None:
    draw = torch.Generator().manual_seed(2)
    logits = torch.randn((1, 30, 3), generator=draw, dtype=torch.float64).requires_grad_()
    gain = torch.randn((1, 30, 3), generator=draw, dtype=torch.float64)
    p = torch.sigmoid(logits)
    [gradient] = torch.autograd.grad(branch_surrogate(p, p.detach(), gain, 0.2).sum(), logits)
    torch.testing.assert_close(gradient, (p * (1 - p) * gain).detach())


@pytest.mark.parametrize(
    ("old", "new", "gain", "moves"),
    [
        (0.5, 0.65, 2.0, False),  # asked more than enough already
        (0.5, 0.35, 2.0, True),  # still to be brought back
        (0.5, 0.35, -2.0, False),
        (0.5, 0.65, -2.0, True),
        (0.5, 0.59, 2.0, True),
    ],
)
def test_beyond_the_clip_nothing_is_gained(old: float, new: float, gain: float, moves: bool) -> None:
    p = torch.tensor([[[new]]], dtype=torch.float64, requires_grad=True)
    surrogate = branch_surrogate(p, torch.full_like(p, old).detach(), torch.full_like(p, gain), 0.2)
    [gradient] = torch.autograd.grad(surrogate.sum(), p)
    assert gradient.item() == pytest.approx(gain if moves else 0.0)


class LiteralAgents:
    """One seed's Decider, Fusion and critic in double precision, a document at a time."""

    def __init__(self, networks: Networks, data: Dataset, known: Tensor, seed: int) -> None:
        self.data, self.known, self.seed, self.sizes = data, known, seed, networks.sizes
        core = networks.fusion.core
        assert core is not None
        assert networks.fusion.network is not None
        self.scales = [part[seed, 0] for part in (core.deviation, core.mean, core.scale)]
        self.standard = networks.fusion.standardiser
        self.core: Layers = [torch.nn.Parameter(p[seed].detach().clone()) for p in core.parameters()]
        self.question = torch.nn.Parameter(networks.decider.question[seed].detach().clone())
        self.trunk, self.critic = layers(networks.decider.trunk, seed), layers(networks.critic, seed)
        self.network = layers(networks.fusion.network, seed)

    def chances(self, rollout: Rollout, t: int, b: int) -> Tensor:
        seen = rollout.states.decider[self.seed, t, b]
        n_pool = len(seen) - self.sizes.question
        return torch.sigmoid(forward(self.trunk, seen[:n_pool]) + seen[n_pool:] @ self.question)

    def core_logits(self, outputs: Tensor, is_open: Tensor, question: Tensor) -> list[Tensor]:
        """What each model adds, and the biases last. The parameters in order: weight, slots, bias."""
        weight, slots, bias = self.core
        n, c = outputs.shape
        added = []
        for i in range(n):
            if self.data.kind == "answers" or not outputs[i].any():
                added.append((question @ weight[:, i]) * outputs[i])
                continue
            logs = torch.tensor([max(np.log(max(float(p), 1e-37)), LEAST) for p in outputs[i]])
            centred = torch.where(is_open, logs - logs[is_open].mean(), 0).double()
            own = torch.where(is_open, (centred - self.scales[1][i]) * self.scales[2][i], 0)
            shared = (question @ weight[:, i]) * centred / self.scales[0][i, 0]
            added.append(shared + sum(own[k] * slots[i * c + k] for k in range(c)))
        biases = question @ bias if self.data.kind == "choices" else torch.zeros(c, dtype=torch.float64)
        return [*added, biases]

    def log_score(self, rollout: Rollout, t: int, b: int) -> Tensor:
        """log π(right slot) of Fusion about what the pool said."""
        raw, n, c = rollout.states.fusion[self.seed, t, b], self.sizes.models, self.sizes.slots
        outputs, is_open = raw[: n * c].view(n, c), rollout.states.open[self.seed, t, b]
        core = sum(self.core_logits(outputs, is_open, raw[-self.sizes.question :]))
        logits = core + forward(self.network, self.standardised(raw)[: -self.sizes.question])
        opened = is_open.nonzero()[:, 0].tolist() or [0]
        return torch.log_softmax(logits[opened], 0)[opened.index(int(rollout.gold[self.seed, t, b]))]

    def standardised(self, raw: Tensor) -> Tensor:
        n, c = self.sizes.models, self.sizes.slots
        outputs = raw[: n * c].view(n, c)
        rows = [
            (row - self.standard.mean[self.seed, 0, j])
            * self.standard.scale[self.seed, 0, j]
            * (row.sum() > 0)
            for j, row in enumerate(outputs)
        ]
        return torch.cat([*rows, raw[n * c :]])

    def value(self, rollout: Rollout, t: int, b: int) -> Tensor:
        fusion = self.standardised(rollout.states.fusion[self.seed, t, b])
        return forward(self.critic, torch.cat([rollout.states.decider[self.seed, t, b], fusion]))[0]

    def ridges(self, config: RLFocalConfig) -> Tensor:
        """Of the numbers known of a question: a one, the three tasks, two directions of words, a budget."""
        each = [config.weight_ridge, *[config.task_ridge] * 3, *[config.words_ridge] * 2, config.budget_ridge]
        weight, slots, bias = self.core
        total = config.slots_ridge * (slots**2).sum()
        for ridge, *rows in zip(
            each, weight, bias if self.data.kind == "choices" else weight * 0, strict=True
        ):
            total = total + ridge * sum((row**2).sum() for row in rows)
        total = total + config.branch_task_ridge * (self.question[1:4] ** 2).sum()
        return total + config.branch_words_ridge * (self.question[4:6] ** 2).sum()


class LiteralJoint(LiteralAgents):
    """The joint update in loops, with torch's Adam and clipping."""

    def start(self, config: RLFocalConfig, multipliers: Sequence[float]) -> None:
        """`multipliers` within a budget of one model, and without a budget."""
        self.config, self.multipliers = config, list(multipliers)
        self.parts: list[Layers] = [self.core, [self.question], self.trunk, self.critic, self.network]
        rates = [config.log_linear_rate, config.question_rate, *[config.learning_rate] * 3]
        self.adam = torch.optim.Adam(
            [{"params": part, "lr": rate} for part, rate in zip(self.parts, rates, strict=True)]
        )
        self.rates = rates

    def worth(self, row: int, is_free: bool, asked: list[int]) -> tuple[float, float]:
        """What this pool earns about this document by the core alone: with its price, and by Eq (6)."""
        data, n, c = self.data, self.sizes.models, self.sizes.slots
        outputs = torch.tensor(data.probs[row, :, :c], dtype=torch.float32).double()
        outputs = outputs * torch.tensor([[j in asked] for j in range(n)])
        is_open = torch.arange(c) < data.n_choices[row]
        if data.kind == "answers":
            is_open = outputs.any(0)
        known = self.known[row].clone()
        known[-1] = not is_free
        logits = sum(self.core_logits(outputs, is_open, known))
        opened = is_open.nonzero()[:, 0].tolist()
        score = score_of(torch.as_tensor(logits), opened, int(data.labels[row]), len(asked)).item()
        wrong, share = 1 - np.exp(score), len(asked) / n
        alpha = self.config.size_penalty
        return score - (alpha * wrong + self.multipliers[is_free]) * share, 1 - wrong * (2 + alpha * share)

    def run(self, rollout: Rollout, share: float) -> Diagnostics:
        config, n = self.config, self.sizes.models
        for group, rate in zip(self.adam.param_groups, self.rates, strict=True):
            group["lr"] = rate * share
        steps = list(np.ndindex(*rollout.gold.shape[1:]))
        gains, rewards = [], []
        free = [(b + EPISODE) % 3 > 0 for _, b in steps]
        for (t, b), is_free in zip(steps, free, strict=True):
            worth = partial(self.worth, int(rollout.rows[t + 1, b]), is_free)
            assert rollout.states.decider[self.seed, t, b, -1] == (not is_free)
            assert rollout.states.decider[self.seed, t, b, -self.sizes.question] == is_free
            pool = rollout.pools[self.seed, t + 1, b]
            asked = pool.nonzero()[:, 0].tolist()
            rewards.append(worth(asked)[1])
            others = [[j for j in asked if j != i] for i in range(n)]
            gains.append([worth([*o, i])[0] - worth(o)[0] for i, o in enumerate(others)])
        old = [self.chances(rollout, *step).detach() for step in steps]
        for is_free, largest in ((False, 1), (True, config.mean_pool)):
            sizes = [float(p.sum()) for p, f in zip(old, free, strict=True) if f == is_free]
            self.multipliers[is_free] *= float(np.mean(sizes) / largest) ** MULTIPLIER_POWER
            self.multipliers[is_free] = max(self.multipliers[is_free], LEAST_MULTIPLIER)
        known = [int(rollout.gold[self.seed, t, b]) >= 0 for t, b in steps]
        before = [
            self.log_score(rollout, *s).detach() if k else ONE for s, k in zip(steps, known, strict=True)
        ]
        values = np.array([self.value(rollout, *step).item() for step in steps])
        for _ in range(config.epochs):
            asks, answers, errors, entropies, kls, clipped = [], [], [], [], [], 0
            for at, step in enumerate(steps):
                chances = self.chances(rollout, *step)
                for i in range(n):
                    gain = torch.tensor(gains[at][i], dtype=torch.float64)
                    asks.append(literal_branch(chances[i], old[at][i], gain, config.clip))
                entropies += [-(p * p.log() + (1 - p) * (1 - p).log()) for p in chances.detach()]
                errors.append((self.value(rollout, *step) - rewards[at]) ** 2)
                if known[at]:
                    ratio = (self.log_score(rollout, *step) - before[at]).exp()
                    answers.append(torch.minimum(ratio, ONE + config.clip))
                    kls.append(ratio.detach() - 1 - ratio.detach().log())
                    clipped += bool(ratio > 1 + config.clip)
            policy_loss = -(torch.stack(asks).sum() + torch.stack(answers).sum()) / len(steps)
            value_loss = torch.stack(errors).mean()
            self.adam.zero_grad()
            (policy_loss + value_loss + self.ridges(config) / len(self.data)).backward()  # type: ignore[no-untyped-call]
            norms = [torch.nn.utils.clip_grad_norm_(part, config.max_grad_norm) for part in self.parts]
            self.adam.step()
        unforeseen = np.var(np.array(rewards) - values) / np.var(rewards)
        return Diagnostics(
            policy_loss, value_loss, torch.stack(entropies).mean(), torch.stack(kls).sum() / len(steps),
            torch.tensor(clipped / len(steps)), torch.tensor(1 - unforeseen),
            (norms[0] ** 2 + norms[1] ** 2).sqrt(), norms[3],
        )  # fmt: skip


def acting(kind: Kind, config: RLFocalConfig, length: int) -> tuple[Dataset, JointLearner, Rollout]:
    """Two seeds' networks at random weights, and what they did, in double precision."""
    data = asked_about(random_dataset(1, kind, n_docs=40, n_models=3, n_slots=4))
    questions = fit_questions(data, config)
    stream = train_stream(data, config, questions)
    generators = [torch.Generator().manual_seed(seed) for seed in (0, 1)]
    networks = Networks(network_sizes(data, config, questions), config, generators, kind)
    everyone = stream.outputs()
    networks.fusion.standardiser.learn(everyone.distributions[0])
    core = networks.fusion.core
    assert core is not None
    core.learn(everyone.distributions[0], everyone.open[0], torch.tensor([0.3, 0.5, 0.6]), 2.0)
    for p in (*core.parameters(), networks.decider.question):
        p.data += 0.5 * torch.randn(p.shape, generator=generators[0])
    assert questions is not None
    assert questions.budgets == (1,)
    learner = JointLearner(networks, config, stream, questions)
    environment = train_environment(stream, config, 2, 1)
    environment.reset(EPISODE)
    rollout = in_double(collect_rollout(environment, learner, length, generators))
    stream.questions = stream.questions.double()
    learner = JointLearner(networks.double(), config, stream, questions)
    learner.everyone = Everyone(learner.everyone.outputs.double(), *learner.everyone[1:])
    return data, learner, rollout


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_a_joint_update_is_its_loss_written_out(kind: Kind) -> None:
    """Parameters, price and diagnostics of every seed after two updates in which every limit is met."""
    data, learner, rollout = acting(kind, CONFIG, 4)
    networks = learner.networks
    literal = [LiteralJoint(networks, data, learner.stream.questions, seed) for seed in (0, 1)]
    for of_seed in literal:
        of_seed.start(CONFIG, [0.4, 0.3])
    learner.restore({"multiplier": torch.tensor([[0.4, 0.3]] * 2, dtype=torch.float64)})
    for done in (0.0, 0.4):
        learner.begin(done)
        logged = learner.update(rollout)
        expected = [of_seed.run(rollout, 1 - done) for of_seed in literal]
        for seed in (0, 1):
            assert learner.rest()["multiplier"][seed].tolist() == pytest.approx(
                literal[seed].multipliers, rel=1e-6
            )
            for name, value in expected[seed]._asdict().items():
                got = getattr(logged, name)[seed].item()
                assert got == pytest.approx(float(value.detach()), rel=1e-4, abs=1e-6), name
    for seed in (0, 1):
        assert literal[seed].multipliers[0] > 0.4
        assert literal[seed].multipliers[1] > 0.3
        assert expected[seed].clip_fraction > 0.02
        assert min(expected[seed].actor_grad_norm, expected[seed].critic_grad_norm) > CONFIG.max_grad_norm
        compare(networks, literal[seed])


def compare(networks: Networks, literal: LiteralAgents) -> None:
    """One seed's parameters."""
    assert networks.fusion.core is not None
    assert networks.fusion.network is not None
    pairs: list[tuple[torch.nn.Module, Layers]] = [
        (networks.fusion.core, literal.core),
        (networks.decider.trunk, literal.trunk),
        (networks.critic, literal.critic),
        (networks.fusion.network, literal.network),
    ]
    for network, own in pairs:
        for stacked, p in zip(network.parameters(), own, strict=True):
            np.testing.assert_allclose(stacked[literal.seed].detach(), p.detach(), atol=2e-6)
    np.testing.assert_allclose(
        networks.decider.question[literal.seed].detach(), literal.question.detach(), atol=2e-6
    )

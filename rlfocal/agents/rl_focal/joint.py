"""The joint phase: both agents learn from train labels at once, by exact expectations of Eq (7).

Labels are known, so the value of an action needs no sampling. Both agents share one reward: the
log-probability that Fusion answers right, minus what the pool costs. Fusion's action is the right slot; for
the Decider, each branch is compared with its own opposite action, all else equal (the counterfactual baseline
of COMA, Foerster et al., 2018). The central critic learns the reward of Eq (6), for the online phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from rlfocal.agents.rl_focal.config import RLFocalConfig
from rlfocal.agents.rl_focal.environment import Rollout
from rlfocal.agents.rl_focal.log_linear import LogLinear
from rlfocal.agents.rl_focal.mappo import Diagnostics, Phase, clipped_surrogate
from rlfocal.agents.rl_focal.networks import Networks
from rlfocal.agents.rl_focal.questions import Questions
from rlfocal.agents.shared.optimiser import StackedAdam
from rlfocal.agents.shared.policies import branch_entropy, mask_closed
from rlfocal.agents.shared.stream import Stream

WORST = -8.0
"""Lowest log score, also for a right slot that no model of the pool gave."""
_SMALLEST = 1e-6
LEAST_MULTIPLIER, MULTIPLIER_POWER = 1e-2, 0.3
"""The multiplier on the pool's size starts at the first, its minimum. Every update multiplies it by (mean
pool / target) to the power of the second: a factor, not a sum, because gains differ by data."""


class Everyone(NamedTuple):
    """What all models say about each of T train documents, and which slot is right."""

    outputs: Tensor
    """(T, N, C)"""
    exists: Tensor
    """(T, C)"""
    gold: Tensor
    """(T,) -1 where no slot is right"""

    @classmethod
    def on(cls, stream: Stream) -> Everyone:
        slots = stream.outputs()
        is_right = (slots.at[0] == stream.labels[:, None]) & slots.open[0]
        gold = torch.where(is_right.any(-1), is_right.float().argmax(-1), -1)
        return cls(slots.distributions[0], slots.open[0], gold)


class JointLearner:
    """Updates both agents and the critic on every rollout."""

    phase: Phase = "joint"

    def __init__(
        self, networks: Networks, config: RLFocalConfig, stream: Stream, questions: Questions
    ) -> None:
        assert networks.fusion.core is not None
        self.networks, self.config, self.stream, self.columns = networks, config, stream, questions.columns
        self.core: LogLinear = networks.fusion.core
        self.everyone = Everyone.on(stream)
        self.sizes = torch.tensor([*questions.budgets, config.mean_pool or torch.inf])
        """(K,) target for the mean pool size: within each budget, and without one"""
        self.multiplier = torch.full((len(self.core.weight), len(self.sizes)), LEAST_MULTIPLIER)
        """(S, K) cost of the pool's size m/N beyond Eq (6), which holds mean pools to these targets"""
        self.share = 1.0
        """Factor on the learning rates."""
        layers = [networks.decider.trunk, networks.critic]
        layers += [networks.fusion.network] if networks.fusion.network is not None else []
        by_question = torch.nn.ParameterList([networks.decider.question])
        self.optimiser = StackedAdam(
            [self.core, by_question, *layers],
            [config.log_linear_rate, config.question_rate, *[config.learning_rate] * len(layers)],
            config.max_grad_norm,
        )

    def begin(self, done: float) -> None:
        """Learning rates fall linearly to 0 over the phase."""
        self.share = 1 - done

    @property
    def is_limited(self) -> list[bool]:
        """(S,) whether pools would be larger without `mean_pool`."""
        return (self.multiplier[:, -1] > 2 * LEAST_MULTIPLIER).tolist()

    def rest(self) -> dict[str, Tensor]:
        return {"multiplier": self.multiplier}

    def restore(self, rest: Mapping[str, Tensor]) -> None:
        self.multiplier = rest["multiplier"]

    def update(self, rollout: Rollout) -> Diagnostics:
        """`epochs` gradient steps on one rollout."""
        config, networks = self.config, self.networks
        decider, fusion, is_open = (part[:, :-1].flatten(1, 2) for part in rollout.states)
        gold, pools = rollout.gold.flatten(1, 2), rollout.pools[:, 1:].flatten(1, 2)
        known = gold >= 0
        at = gold.clamp(min=0)[..., None]
        states, perceived = networks.critic_input(decider, fusion), networks.fusion.perceive(fusion, is_open)
        rows, told = rollout.rows[1:].flatten(), decider[0, :, decider.shape[-1] - self.columns.budgets :]
        within = torch.cat([told, 1 - told.sum(-1, keepdim=True)], -1).T
        question = torch.cat([self.stream.questions[rows, : -self.columns.budgets or None], told], -1)
        worth = self._worth(rows, question[None], pools, self.multiplier @ within)
        self._adapt_multiplier(networks.decider(decider).detach(), within)
        for epoch in range(config.epochs):
            chances = torch.sigmoid(networks.decider(decider))
            log_score = torch.log_softmax(networks.fusion.logits(perceived), -1).gather(-1, at)[..., 0]
            values = networks.critic(states)[..., 0]
            if epoch == 0:
                old_chances, old_score, old_values = chances.detach(), log_score.detach(), values.detach()
            asks = branch_surrogate(chances, old_chances, worth.gain, config.clip)
            # The action is the right slot, its advantage 1: at ratio 1 this is the log score's gradient.
            ratio = (log_score - old_score).exp()
            answers = torch.where(known, clipped_surrogate(ratio, torch.ones_like(ratio), config.clip), 0)
            policy_loss = -(asks.sum(-1).mean(1) + answers.mean(1))
            value_loss = (values - worth.reward).square().mean(1)
            prior = self.core.penalty(config, self.columns) + networks.decider.penalty(config, self.columns)
            loss = policy_loss + value_loss + prior / self.stream.n_documents
            norms = self.optimiser.descend(loss.sum(), self.share)
        with torch.no_grad():
            spread = worth.reward.var(1, correction=0).clamp_min(1e-12)
            return Diagnostics(
                policy_loss=policy_loss.detach(),
                value_loss=value_loss.detach(),
                entropy=branch_entropy(torch.logit(chances, eps=1e-6)).flatten(1).mean(1),
                approx_kl=torch.where(known, ratio - 1 - ratio.log(), 0).mean(1),
                clip_fraction=((ratio - 1 > config.clip) & known).float().mean(1),
                explained_variance=1 - (worth.reward - old_values).var(1, correction=0) / spread,
                actor_grad_norm=(norms[0].square() + norms[1].square()).sqrt(),
                critic_grad_norm=norms[3],
            )

    @torch.no_grad()
    def _worth(self, rows: Tensor, question: Tensor, pools: Tensor, multiplier: Tensor) -> Worth:
        """Worth of the pools (S, M, N) asked about the documents `rows` (M,), with multipliers (S, M);
        `question` (1, M, G) holds the question features."""
        everyone = self.everyone
        exists = everyone.exists[rows][None]
        seen = self.core.evidence(everyone.outputs[rows][None], exists)
        added = self.core.contributions(seen, question)
        given = everyone.outputs[rows] > 0 if self.stream.kind == "answers" else None
        return counterfactuals(
            added, self.core.biases(question), pools, exists, given, everyone.gold[rows],
            self.config.size_penalty, multiplier[..., None],
        )  # fmt: skip

    def _adapt_multiplier(self, logits: Tensor, within: Tensor) -> None:
        """By the mean pool size of the documents answered within each budget, if any."""
        n = within.sum(1)
        mean = torch.sigmoid(logits).sum(-1) @ within.T / n.clamp(min=1)
        factor = torch.where(n > 0, mean / self.sizes, 1) ** MULTIPLIER_POWER
        self.multiplier = (self.multiplier * factor).clamp(min=LEAST_MULTIPLIER)


class Worth(NamedTuple):
    """What pools are worth."""

    gain: Tensor
    """(S, M, N) log score minus costs with the model, less the same without it, all else equal"""
    reward: Tensor
    """(S, M) the expectation of Eq (6) over Fusion's answers"""


def counterfactuals(
    added: Tensor, biases: Tensor, pools: Tensor, exists: Tensor, given: Tensor | None, gold: Tensor,
    size_penalty: float, multiplier: Tensor,
) -> Worth:  # fmt: skip
    """From what each model has `added` to Fusion's logits (S, M, N, C); `biases` (S, M, C) or (); `pools` (S,
    M, N); which slots `exists` (1, M, C) marks; for free answers, the slots `given` by each model (M, N, C);
    and the right slot `gold` (M,), -1 for none.

    r = log π(gold) - (α (1 - π(gold)) + multiplier) m/N. Without any model nothing is answered, which scores
    `WORST`.
    """
    n_models = pools.shape[-1]
    logits = (added * pools[..., None]).sum(2) + biases
    others = pools[..., None] * added
    without = logits[:, :, None] - others  # (S, M, N, C)
    reward = []
    sizes = pools.sum(-1, keepdim=True) - pools
    at = gold.clamp(min=0)[None, :, None, None].expand(*pools.shape, 1)
    is_open = exists[:, :, None].expand_as(without)
    for asked in (0, 1):
        here = without + added if asked else without
        if given is not None:
            count = (given * pools[..., None]).sum(2)[:, :, None] - given * pools[..., None]
            is_open = (count + asked * given) > 0
        log_score = torch.log_softmax(mask_closed(here, is_open), -1).gather(-1, at)[..., 0]
        nobody = (sizes + asked == 0) | (gold < 0)[:, None] | ~is_open.gather(-1, at)[..., 0]
        log_score = torch.where(nobody, WORST, log_score.clamp(min=WORST))
        wrong = 1 - log_score.exp()
        cost = (size_penalty * wrong + multiplier) * (sizes + asked) / n_models
        reward.append((log_score - cost, 1 - wrong * (2 + size_penalty * (sizes + asked) / n_models)))
    (r_without, _), (r_with, eq_6) = reward
    asked_reward = torch.where(pools > 0, eq_6, reward[0][1])[..., 0]
    return Worth(r_with - r_without, asked_reward)


def branch_surrogate(chances: Tensor, old: Tensor, gain: Tensor, clip: float) -> Tensor:
    """(S, M, N) Eq (7) in expectation over both actions of each branch: with a baseline that knows all other
    branches, asking has the advantage (1 - p) gain and not asking -p gain."""
    chances, old = (p.clamp(_SMALLEST, 1 - _SMALLEST) for p in (chances, old))
    asks = clipped_surrogate(chances / old, (1 - old) * gain, clip)
    leaves = clipped_surrogate((1 - chances) / (1 - old), -old * gain, clip)
    return old * asks + (1 - old) * leaves

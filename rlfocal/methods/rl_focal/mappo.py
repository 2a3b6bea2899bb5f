"""MAPPO as RL-Focal uses it, from the rollout to the optimiser's step (paper, Algorithm 1 and Eq (7)).

An episode rolls the policies out on parallel environments, T_u steps at a time. On every rollout it updates
the agents of the phase and the central critic. Tensors are (L, B, ...) for L steps of B parallel
environments, or (M, ...) with M = L·B.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rlfocal.data.policy import Episode
from rlfocal.methods.learning.networks import (
    Adam,
    branch_entropy,
    branch_log_probs,
    choice_entropy,
    gumbel_noise,
    logistic_noise,
    move,
    moves,
    sample_pool,
    sample_slot,
)
from rlfocal.methods.rl_focal.config import RLFocalConfig
from rlfocal.methods.rl_focal.environment import Environment, Rollout
from rlfocal.methods.rl_focal.networks import Networks
from rlfocal.methods.rl_focal.questions import FeatureColumns, Multiplier, Questions


def run_episode(
    environment: Environment, learner: Learner, episode: int, generator: torch.Generator
) -> Episode:
    """Passes the parallel environments over their stretches of train once: lines 3 to 25 of Algorithm 1.

    Returns the episode's figures. Rewards are means over steps and environments without a budget, and
    diagnostics are means over updates.
    """
    environment.reset(episode)
    rollouts, diagnostics = [], []
    for length in learner.split_episode(environment.length):
        rollouts.append(collect_rollout(environment, learner, length, generator))
        diagnostics.append(learner.update(rollouts[-1]))
    earned = [
        torch.cat(parts)[:, environment.is_free].flatten().mean()
        for parts in zip(*[(r.rewards, r.right, r.sizes) for r in rollouts], strict=True)
    ]
    learned = [torch.stack(parts).mean() for parts in zip(*diagnostics, strict=True)]
    return Episode(learner.phase, episode, *torch.stack([*earned, *learned]).tolist())


@torch.no_grad()
def collect_rollout(
    environment: Environment, learner: Learner, length: int, generator: torch.Generator
) -> Rollout:
    """Plays `length` steps with pools sampled by Eq (5), and answers sampled by Fusion's softmax.

    In the Decider's phase, the pools' plurality answers.
    """
    networks, branching = learner.networks, learner.config.branching
    n_models, n_slots = environment.stream.n_models, environment.stream.n_slots
    n_actions = n_models if branching else n_models + 1
    draws = torch.rand((length, environment.n_parallel, n_actions), generator=generator)
    noise = logistic_noise(draws) if branching else gumbel_noise(draws)

    def choose(t: int, observations: Tensor, pools: Tensor) -> Tensor:
        logits = networks.decider(observations)
        return sample_pool(logits, noise[t]) if branching else move(pools, sample_slot(logits, noise[t]))

    if learner.phase == "decider":  # the pools' plurality answers
        return environment.rollout(length, choose, None)
    n_samples = learner.config.samples
    shape = (length, environment.n_parallel, n_samples, n_slots)
    slot_noise = gumbel_noise(torch.rand(shape, generator=generator))

    def fuse(outputs: Tensor, is_open: Tensor, question: Tensor) -> Callable[[int, Tensor], Tensor]:
        logits = networks.fusion.make_step_function(outputs, is_open, question)
        return lambda t, past_rewards: sample_slot(logits(t, past_rewards)[..., None, :], slot_noise[t])

    return environment.rollout(length, choose, fuse)


def gae(rewards: Tensor, values: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimates and the critic's targets (paper, section 1.6).

    Â_t = δ_t + γλ Â_{t+1} with δ_t = r_t + γ V(s_{t+1}) - V(s_t). The targets are the returns R̂_t = Â_t +
    V(s_t). `rewards` are (L, ...), and `values` (L+1, ...), of which the last is of the state after the
    rollout.
    """
    deltas = rewards + gamma * values[1:] - values[:-1]
    advantages = torch.empty_like(deltas)
    following = torch.zeros_like(deltas[0])
    for t in range(len(deltas) - 1, -1, -1):
        following = deltas[t] + gamma * lam * following
        advantages[t] = following
    return advantages, advantages + values[:-1]


class Advantages(NamedTuple):
    """The advantages of one rollout, with the critic's targets."""

    decider: Tensor
    """(L, ...) the advantage of each pool that was chosen"""
    fusion: Tensor
    """(L, ..., Q) the advantage of each sampled answer"""
    returns_before: Tensor
    """(L, ...) returns of the states in which pools were chosen, before the Decider's action"""
    returns: Tensor
    """(L, ...) returns of the states s_t, in which documents were answered"""


def turn_advantages(
    rewards: Tensor, decider_values: Tensor, fusion_values: Tensor, gamma: float, lam: float
) -> Advantages:
    """Advantages where the agents act in turn on each document: first the Decider, then Fusion.

    `decider_values` (L+1, ...) and `fusion_values` (L, ...) are the values of the states in which each acts.
    `rewards` (L, ..., Q) are of Q sampled answers. γ discounts from one document to the next. The Decider's
    baseline is the value before its action, because V(s_t) depends on the chosen pool.
    """
    of_decider, of_fusion = torch.empty_like(fusion_values), torch.empty_like(rewards)
    following = torch.zeros_like(fusion_values[0])
    for t in range(len(rewards) - 1, -1, -1):
        later = gamma * (decider_values[t + 1] + lam * following) - fusion_values[t]
        of_fusion[t] = rewards[t] + later[..., None]
        of_decider[t] = following = fusion_values[t] - decider_values[t] + lam * of_fusion[t].mean(-1)
    return Advantages(
        of_decider, of_fusion, of_decider + decider_values[:-1], of_fusion.mean(-1) + fusion_values
    )


def _normalise(advantages: Tensor) -> Tensor:
    """The advantages, standardised to mean 0 and standard deviation 1, as in MAPPO."""
    return (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-5)


def clipped_surrogate(ratio: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """Eq (7) of each element, to be maximised: min(ρ Â, clip(ρ, 1-ε, 1+ε) Â). The arguments broadcast."""
    return torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


class Diagnostics(NamedTuple):
    """Diagnostics of one update; of its last gradient step unless a field says otherwise."""

    policy_loss: Tensor
    """The negative mean of Eq (7), summed over the agents that learn."""
    value_loss: Tensor
    """The mean squared error of the critic."""
    entropy: Tensor
    """The policies' entropy in nats per pool or answer, as a mean over the agents that learn."""
    approx_kl: Tensor
    """The mean of ρ - 1 - log ρ, an estimate of the KL divergence from the policies that acted."""
    clip_fraction: Tensor
    """The share of ratios ρ outside 1 ± ε."""
    explained_variance: Tensor
    """1 - Var(R̂ - V) / Var(R̂) before the first step: 1 for a critic that predicts every return."""
    actor_grad_norm: Tensor
    """The norm of the agents' gradient before it is clipped to `max_grad_norm`."""
    critic_grad_norm: Tensor


class Learner:
    """Updates the agents that learn in one phase and the central critic, with one optimiser for all."""

    def __init__(
        self, networks: Networks, config: RLFocalConfig, phase: str,
        questions: Questions | None = None, n_documents: float = inf,
    ) -> None:  # fmt: skip
        """Makes the learner of a phase.

        `n_documents`: the number of documents by which ridge penalties are divided; online it is infinite.
        """
        self.networks, self.config, self.phase, self.n_documents = networks, config, phase, n_documents
        self.columns = FeatureColumns(0, 0, 0) if questions is None else questions.columns
        budgets = () if questions is None else questions.budgets
        n_models = networks.sizes.models
        # A right answer earns 1, and 2 more than a wrong one. If a model could cost more than it earns, costs
        # would drown what answers earn, in the advantages and in the critic.
        self.multiplier = Multiplier(
            budgets, config.mean_pool, least=2 * config.call_penalty * n_models, most=n_models
        )
        self.share = 1.0
        """The factor on the learning rates and the entropy bonus."""
        parts: list[tuple[nn.Module, float]] = []
        assert networks.decider.trunk is not None
        assert networks.critic is not None
        self.critic = networks.critic
        if phase != "fusion":
            parts += [(networks.decider.trunk, config.learning_rate)]
            parts += [(nn.ParameterList([networks.decider.question]), config.question_rate)]
        if phase != "decider":
            core, network = networks.fusion.core, networks.fusion.network
            if core is not None:
                parts += [(core, config.core_rate)]
            parts += [(network, config.learning_rate)] if network is not None else []
        modules, rates = zip(*parts, (self.critic, config.critic_rate), strict=True)
        self.optimiser = Adam(modules, rates, config.max_grad_norm)

    def begin(self, finished_share: float) -> None:
        """Sets the factor on learning rates and entropy for an episode, from the phase's finished share."""
        self.share = 1 - finished_share if self.config.anneal else 1.0

    def split_episode(self, length: int) -> list[int]:
        """The number of steps of each rollout of an episode of this length, as equal as possible."""
        n_parts = -(-length // self.config.update_period)
        return [length // n_parts + (i < length % n_parts) for i in range(n_parts)]

    def update(self, rollout: Rollout) -> Diagnostics:
        """Takes `epochs` gradient steps on one rollout.

        The loss has Eq (7) for the agents that learn, the critic's squared error, an entropy bonus and ridge
        penalties.
        """
        config, acting = self.config, self._list_learning_agents(rollout)
        before, after = self._read_states(rollout)
        for epoch in range(config.epochs):
            evaluated = [self.evaluate(agent) for agent in acting]
            values_before, values = self._value_states(before), self._value_states(after)
            if epoch == 0:  # θ_old: the policies that acted, and their expected returns
                old = [log_probs.detach() for log_probs, _ in evaluated]
                advantages = self._compute_advantages(rollout, values_before.detach(), values.detach())
                weights = self._weigh_actions(advantages, rollout.right.flatten(0, 1))
                returns = torch.cat([advantages.returns_before, advantages.returns]).flatten()
                expected = _join(values_before, values).detach()
                spread = returns.var(correction=0).clamp_min(1e-12)
                explained_variance = 1 - (returns - expected).var(correction=0) / spread
            policy_loss, entropy, kl, clipped = (torch.zeros(()) for _ in range(4))
            for (log_probs, of_agent), before_update, weight in zip(evaluated, old, weights, strict=True):
                log_ratio = log_probs - before_update
                ratio = log_ratio.exp()  # ρ_t of Eq (7)
                surrogate = clipped_surrogate(ratio, weight, config.clip)
                of_branches = weight.shape[-1] < surrogate.shape[-1]
                gain = surrogate.sum(-1) if of_branches else surrogate.mean(-1)
                policy_loss = policy_loss - gain.mean()
                entropy = entropy + of_agent.mean()
                kl = kl + (ratio - 1 - log_ratio).detach().mean() / len(acting)
                outside = ((ratio - 1).abs() > config.clip).float()
                clipped = clipped + outside.mean() / len(acting)
            value_loss = (_join(values_before, values) - returns).square().mean()
            loss = policy_loss + value_loss - config.entropy * self.share * entropy + self._compute_prior()
            *actor_norms, critic_norm = self.optimiser.descend(loss, self.share)
        return Diagnostics(
            policy_loss.detach(), value_loss.detach(), entropy.detach() / len(acting), kl, clipped,
            explained_variance, torch.stack(actor_norms).square().sum().sqrt(), critic_norm,
        )  # fmt: skip

    def evaluate(self, agent: AgentActions) -> tuple[Tensor, Tensor]:
        """(M, N or Q) log-probabilities of the actions by the current weights, and (M,) the entropy."""
        logits = agent.logits()
        if agent.are_branches:
            return branch_log_probs(logits, agent.actions), branch_entropy(logits).sum(-1)
        log_probs = torch.log_softmax(logits, -1).gather(-1, agent.actions)
        return log_probs, choice_entropy(logits)

    def _value_states(self, states: Tensor) -> Tensor:
        """(M,) the critic's values of states."""
        values: Tensor = self.critic(states)[:, 0]
        return values

    @torch.no_grad()
    def _compute_advantages(
        self, rollout: Rollout, decider_values: Tensor, fusion_values: Tensor
    ) -> Advantages:
        """The advantages, from the values of the Decider's ((L+1)·B,) and Fusion's (L·B,) states."""
        config, gammas = self.config, (self.config.decider_gamma, self.config.fusion_gamma)
        if not config.has_critic:
            decider_values, fusion_values = torch.zeros_like(decider_values), torch.zeros_like(fusion_values)
        rewards = self._charge(rollout)
        length = len(rewards)
        values = fusion_values.view(length, -1)
        if config.common_advantage:
            gamma = gammas[self.phase == "fusion"]
            # What follows the rollout is valued as its last state.
            common, returns = gae(
                rewards.mean(-1), torch.cat([values, values[-1:]]), gamma, config.gae_lambda
            )
            return Advantages(common, common[..., None], returns, returns)
        values_before = decider_values.view(length + 1, -1)
        of_decider, of_fusion = (
            turn_advantages(rewards, values_before, values, gamma, config.gae_lambda) for gamma in gammas
        )
        return of_decider._replace(fusion=of_fusion.fusion)

    def _charge(self, rollout: Rollout) -> Tensor:
        """(L, B, Q) rewards less the multipliers' cost of the pools; then adapts the multipliers."""
        told = rollout.decider[:-1, :, rollout.decider.shape[-1] - self.columns.budgets :]
        within = torch.cat([told, 1 - told.sum(-1, keepdim=True)], -1).flatten(0, 1).T  # (K, M)
        share = rollout.pools.mean(-1)
        cost = (self.multiplier.values @ within).view_as(share) * share
        if self.phase != "fusion":
            self.multiplier.adapt(rollout.sizes.flatten(), within)
        return rollout.rewards - cost[..., None]

    @torch.no_grad()
    def _read_states(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """((L+1)·B, ...) the states in which pools are chosen, and (L·B, ...) in which Fusion answers.

        Fusion answers in the global states s_t = [o^Dec_{t+1}; o^Fus_t], which the critic reads.
        """
        read, decider = self.networks.critic_input, rollout.decider
        after = read(decider[1:].flatten(0, 1), rollout.fusion.flatten(0, 1))
        return read(decider.flatten(0, 1), None), after

    def _list_learning_agents(self, rollout: Rollout) -> list[AgentActions]:
        """The agents that learn in this phase, with their actions in the rollout."""
        acting = []
        decider, pools = rollout.decider[:-1].flatten(0, 1), rollout.pools.flatten(0, 1)
        if self.phase != "fusion":
            last = decider[:, : pools.shape[-1]]
            branching = self.config.branching
            actions = pools if branching else moves(last, pools)[..., None]
            acting.append(AgentActions(lambda: self.networks.decider(decider), actions, branching))
        if self.phase != "decider":
            fusion = self.networks.fusion
            seen = fusion.preprocess(rollout.fusion.flatten(0, 1), rollout.open.flatten(0, 1))
            acting.append(AgentActions(lambda: fusion.logits(seen), rollout.answers.flatten(0, 1), False))
        return acting

    def _weigh_actions(self, rollout_advantages: Advantages, right: Tensor) -> list[Tensor]:
        """For each agent that learns, (M, 1 or Q) the weight of each action in Eq (7); `right` is (M, Q)."""
        weights = []
        if self.phase != "fusion":
            weights.append(_normalise(rollout_advantages.decider.flatten())[:, None])
        if self.phase != "decider":
            advantages = rollout_advantages.fusion.flatten(0, 1)
            if self.config.success_weighting:
                share = right.mean(-1, keepdim=True)
                weights.append(torch.where(share > 0, advantages / 2 / share.clamp(min=1e-6), 0))
            else:
                weights.append(_normalise(advantages))
        return weights

    def _compute_prior(self) -> Tensor:
        """The ridge penalties of the agents that learn, divided by the number of documents."""
        networks, total = self.networks, torch.zeros(())
        if self.phase != "fusion":
            total = total + networks.decider.penalty(self.config, self.columns)
        if self.phase != "decider" and networks.fusion.core is not None:
            total = total + networks.fusion.core.penalty(self.config, self.columns)
        return total / self.n_documents


class AgentActions(NamedTuple):
    """The actions in one rollout of an agent that learns, and their logits."""

    logits: Callable[[], Tensor]
    """A function that computes the policy's logits by the current weights."""
    actions: Tensor
    """(M, N) actions of branches, or (M, Q) of a categorical policy"""
    are_branches: bool


def _join(decider_values: Tensor, fusion_values: Tensor) -> Tensor:
    """(2·L·B,) the values of both kinds of states, without the Decider's last B, which belong to no step."""
    return torch.cat([decider_values[: len(fusion_values)], fusion_values])

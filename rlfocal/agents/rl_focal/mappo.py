"""MAPPO as RL-Focal uses it, from the rollout to the optimiser's step (paper, Algorithm 1 and Eq (7)).

Read it from top to bottom: an episode rolls the policies out on parallel environments, T_u steps at a time,
and updates the agent of the phase and the central critic on every rollout. S seeds train side by side:
tensors are (S, L, B, ...) for L steps of B parallel environments, or (S, M, ...) with M = L·B. The joint
phase, in which both agents learn by exact expectations, is `joint.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from rlfocal.agents.rl_focal.config import RLFocalConfig
from rlfocal.agents.rl_focal.environment import Environment, Rollout
from rlfocal.agents.rl_focal.networks import Networks
from rlfocal.agents.shared.optimiser import StackedAdam
from rlfocal.agents.shared.policies import (
    branch_entropy,
    branch_log_probs,
    choice_entropy,
    choice_log_probs,
    gumbel_noise,
    logistic_noise,
    move,
    moves,
    sample_pool,
    sample_slot,
)
from rlfocal.policy import Episode

Phase = Literal["decider", "fusion", "joint"]
"""Which agent learns, or both; the Decider samples its pools in all (Algorithm 1)."""


class Learns(Protocol):
    """Updates the networks after every rollout."""

    networks: Networks
    config: RLFocalConfig
    phase: Phase
    optimiser: StackedAdam

    def begin(self, done: float) -> None:
        """Called before an episode, with the finished share of the phase."""
        ...

    def update(self, rollout: Rollout) -> Diagnostics:
        """Gradient steps on one rollout."""
        ...

    def rest(self) -> dict[str, Tensor]:
        """State that later updates need besides networks and optimiser."""
        ...

    def restore(self, rest: Mapping[str, Tensor]) -> None:
        """The inverse of `rest`."""
        ...


def run_episode(
    environment: Environment, learner: Learns, episode: int, generators: Sequence[torch.Generator]
) -> list[Episode]:
    """One pass of the parallel environments over their stretches of train: lines 3 to 25 of Algorithm 1.

    Returns a history row per seed: means over steps and environments without a budget, and over updates for
    the diagnostics.
    """
    environment.reset(episode)
    rollouts, diagnostics = [], []
    for length in _even_parts(environment.length, learner.config.update_period):
        rollouts.append(collect_rollout(environment, learner, length, generators))
        diagnostics.append(learner.update(rollouts[-1]))
    earned = [
        torch.cat(parts, 1)[..., environment.is_free].mean((1, 2))
        for parts in zip(*[(r.rewards, r.right, r.sizes) for r in rollouts], strict=True)
    ]
    learned = [torch.stack(parts).mean(0) for parts in zip(*diagnostics, strict=True)]
    rows = torch.stack([*earned, *learned], 1).tolist()
    return [Episode(learner.phase, episode, *row) for row in rows]


@torch.no_grad()
def collect_rollout(
    environment: Environment, learner: Learns, length: int, generators: Sequence[torch.Generator]
) -> Rollout:
    """`length` steps of sampled actions: pools by Eq (5) and, except in the Decider's phase, answers by
    Fusion's softmax."""
    networks, branching = learner.networks, learner.config.branching
    n_models, n_slots = environment.stream.n_models, environment.stream.n_slots
    n_actions = n_models if branching else n_models + 1
    draws = _draws((length, environment.n_parallel, n_actions), generators)
    noise = logistic_noise(draws) if branching else gumbel_noise(draws)

    def choose(t: int, observed: Tensor, pools: Tensor) -> Tensor:
        logits = networks.decider(observed)
        return (
            sample_pool(logits, noise[:, t]) if branching else move(pools, sample_slot(logits, noise[:, t]))
        )

    if learner.phase == "decider":  # the pools' plurality answers
        return environment.rollout(length, choose, None)
    slot_noise = gumbel_noise(_draws((length, environment.n_parallel, n_slots), generators))

    def fuse(outputs: Tensor, is_open: Tensor, question: Tensor) -> Callable[[int, Tensor], Tensor]:
        logits = networks.fusion.by_step(outputs, is_open, question)
        return lambda t, past_rewards: sample_slot(logits(t, past_rewards), slot_noise[:, t])

    return environment.rollout(length, choose, fuse)


def gae(rewards: Tensor, values: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Advantages Â_t = δ_t + γλ Â_{t+1} with δ_t = r_t + γ V(s_{t+1}) - V(s_t), and the critic's targets, the
    returns R̂_t = Â_t + V(s_t) (paper, section 1.6).

    `rewards` is (L, ...), `values` (L+1, ...): the last one stands for everything after the rollout.
    """
    deltas = rewards + gamma * values[1:] - values[:-1]
    advantages = torch.empty_like(deltas)
    following = torch.zeros_like(deltas[0])
    for t in range(len(deltas) - 1, -1, -1):
        following = deltas[t] + gamma * lam * following
        advantages[t] = following
    return advantages, advantages + values[:-1]


def rollout_advantages(rewards: Tensor, values: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """(S, M) advantages, common to both agents, and returns, from rewards (S, L, B) and the values of all L+1
    states (S, (L+1)·B).

    The Decider's action in s_t is the pool of the *next* document, so V(s_t) does not know it: a baseline
    that did would cancel what there is to learn from the action. Its reward is that document's.
    """
    # Centred, because at γ = 0.99 the mean reward alone would add 100 times itself to every return.
    centred = rewards - rewards.mean((1, 2), keepdim=True)
    by_step = values.view(len(values), -1, rewards.shape[2]).movedim(1, 0)
    advantages, returns = gae(centred.movedim(1, 0), by_step, gamma, lam)
    return advantages.movedim(0, 1).flatten(1), returns.movedim(0, 1).flatten(1)


def normalised(advantages: Tensor) -> Tensor:
    """(S, M) standardised to mean 0 and deviation 1 for each seed, as in MAPPO."""
    mean = advantages.mean(1, keepdim=True)
    return (advantages - mean) / (advantages.std(1, correction=0, keepdim=True) + 1e-5)


def clipped_surrogate(ratio: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """Eq (7), elementwise and to be maximised: min(ρ Â, clip(ρ, 1-ε, 1+ε) Â). The arguments broadcast."""
    return torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


class Diagnostics(NamedTuple):
    """Diagnostics of one update, (S,) each; of its last gradient step unless stated otherwise."""

    policy_loss: Tensor
    """Mean of Eq (7), negated."""
    value_loss: Tensor
    """Mean squared error of the critic."""
    entropy: Tensor
    """Of the acting policy, in nats per branch or answer."""
    approx_kl: Tensor
    """Mean of ρ - 1 - log ρ, an estimate of the KL divergence from the policy that acted."""
    clip_fraction: Tensor
    """Share of ratios outside 1 ± ε."""
    explained_variance: Tensor
    """1 - Var(R̂ - V) / Var(R̂) before the first step: 1 for a critic that predicts every return."""
    actor_grad_norm: Tensor
    """Before clipping to `max_grad_norm`, as is the critic's."""
    critic_grad_norm: Tensor


class Learner:
    """The agent that learns in one phase and the central critic, with the optimiser of both."""

    def __init__(self, networks: Networks, config: RLFocalConfig, phase: Phase) -> None:
        self.networks, self.config, self.phase = networks, config, phase
        self.actor: nn.Module = networks.decider if phase == "decider" else networks.fusion
        self.gamma = config.decider_gamma if phase == "decider" else config.fusion_gamma
        self.optimiser = StackedAdam(
            [self.actor, networks.critic], config.learning_rate, config.max_grad_norm
        )

    def begin(self, done: float) -> None:
        pass

    def rest(self) -> dict[str, Tensor]:
        return {}

    def restore(self, rest: Mapping[str, Tensor]) -> None:
        pass

    def update(self, rollout: Rollout) -> Diagnostics:
        """`epochs` gradient steps on one rollout: Eq (7), the critic's squared error and an entropy bonus."""
        config = self.config
        states, acting = self._states(rollout), self._acting(rollout)
        n_steps = rollout.rewards[0].numel()
        for epoch in range(config.epochs):
            log_probs, entropy = acting.evaluate()
            values = self.networks.critic(states)[..., 0]
            if epoch == 0:  # θ_old: the policy that acted, and its expected returns
                old_log_probs, old_values = log_probs.detach(), values.detach()
                advantages, returns = rollout_advantages(
                    rollout.rewards, old_values, self.gamma, config.gae_lambda
                )
                spread = returns.var(1, correction=0).clamp_min(1e-12)
                explained_variance = 1 - advantages.var(1, correction=0) / spread
                # One advantage for all branches of an action.
                weights = normalised(advantages).view(*advantages.shape, *[1] * (log_probs.dim() - 2))
                states = states[:, :n_steps]  # without the last, which belongs to no step
            log_ratio = log_probs - old_log_probs
            ratio = log_ratio.exp()  # ρ_t of Eq (7)
            surrogate = clipped_surrogate(ratio, weights, config.clip)
            # Means per seed, summed over seeds: no seed's gradient depends on another seed.
            policy_loss = -surrogate.flatten(1).mean(1)
            value_loss = (values[:, :n_steps] - returns).square().mean(1)
            entropy_loss = -(config.entropy * entropy).flatten(1).mean(1)
            loss = policy_loss + value_loss + entropy_loss
            grad_norms = self.optimiser.descend(loss.sum())
        with torch.no_grad():
            return Diagnostics(
                policy_loss=policy_loss.detach(),
                value_loss=value_loss.detach(),
                entropy=entropy.flatten(1).mean(1),
                approx_kl=(ratio - 1 - log_ratio).flatten(1).mean(1),
                clip_fraction=((ratio - 1).abs() > config.clip).flatten(1).float().mean(1),
                explained_variance=explained_variance,
                actor_grad_norm=grad_norms[0],
                critic_grad_norm=grad_norms[1],
            )

    @torch.no_grad()
    def _states(self, rollout: Rollout) -> Tensor:
        """(S, (L+1)·B, ...) the global states s_t = [o^Dec_{t+1}; o^Fus_t], as the critic reads them."""
        return self.networks.critic_input(*(part.flatten(1, 2) for part in rollout.states[:2]))

    def _acting(self, rollout: Rollout) -> _Acting:
        decider, fusion, is_open = (part[:, :-1].flatten(1, 2) for part in rollout.states)
        if self.phase == "fusion":
            return _Acting(self.actor, fusion, is_open, rollout.answers.flatten(1, 2))
        before, after = (pools.flatten(1, 2) for pools in (rollout.pools[:, :-1], rollout.pools[:, 1:]))
        actions = after if self.config.branching else moves(before, after)
        return _Acting(self.actor, decider, None, actions)


class _Acting(NamedTuple):
    """What the acting agent saw and did in a rollout."""

    actor: nn.Module
    observations: Tensor
    is_open: Tensor | None
    """(S, M, C) the slots that Fusion may answer"""
    actions: Tensor
    """(S, M, N) of branches, (S, M) of a categorical policy"""

    def evaluate(self) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy by the current weights: per branch (S, M, N), or per action (S, M)."""
        if self.is_open is not None:
            logits = self.actor(self.observations, self.is_open)
        else:
            logits = self.actor(self.observations)
        if self.actions.dim() == 3:
            return branch_log_probs(logits, self.actions), branch_entropy(logits)
        return choice_log_probs(logits, self.actions), choice_entropy(logits)


def _draws(shape: tuple[int, ...], generators: Sequence[torch.Generator]) -> Tensor:
    """(S, ...) uniform draws, each seed's from its own generator."""
    return torch.stack([torch.rand(shape, generator=generator) for generator in generators])


def _even_parts(total: int, most: int) -> list[int]:
    """Splits `total` into the fewest parts of at most `most`, as evenly as possible."""
    parts = -(-total // most)
    return [total // parts + (i < total % parts) for i in range(parts)]

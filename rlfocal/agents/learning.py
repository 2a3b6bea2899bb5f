"""One update: advantages from the critic, then several gradient steps of the acting agent and the critic."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from rlfocal.agents.config import RLFocalConfig
from rlfocal.agents.environment import State
from rlfocal.agents.gae import advantages
from rlfocal.agents.losses import mappo
from rlfocal.agents.networks import Agents

Phase = Literal["decider", "fusion"]


class Buffer(NamedTuple):
    """L joint actions of S seeds × B walks; states has one more, the last."""

    states: State
    """each (L+1, S, B, ...)"""
    pools: Tensor
    """(L, S, B, N) the Decider's actions, 0 or 1"""
    answers: Tensor
    """(L, S, B) Fusion's actions; empty in the first phase"""
    rewards: Tensor
    """(L, S, B)"""
    right: Tensor
    """(L, S, B) 0 or 1"""
    sizes: Tensor
    """(L, S, B)"""


class Learner:
    """The acting agent of one phase and the critic, with the optimiser of both."""

    def __init__(self, agents: Agents, config: RLFocalConfig, phase: Phase) -> None:
        self.agents, self.config, self.phase = agents, config, phase
        self.actor: nn.Module = agents.decider if phase == "decider" else agents.fusion
        self.gamma = config.decider_gamma if phase == "decider" else config.fusion_gamma
        learned = [*self.actor.parameters(), *agents.critic.parameters()]
        self.optimiser = torch.optim.Adam(learned, lr=config.learning_rate)

    def update(self, buffer: Buffer) -> None:
        """Several gradient steps of Eq (7) and of the critic's squared error on one buffer."""
        with torch.no_grad():
            targets, estimate = judge(self.agents, buffer, gamma=self.gamma, lam=self.config.gae_lambda)
            scaled = mappo.normalised(estimate, (1,))
            acted = State(*(by_seed(part[:-1]) for part in buffer.states))
            actions = by_seed(buffer.pools if self.phase == "decider" else buffer.answers)
            old = self.log_probs(acted, actions)[0]
        for _ in range(self.config.epochs):
            log_probs, entropy = self.log_probs(acted, actions)
            weights = scaled[..., None] if self.phase == "decider" else scaled
            gain = mappo.clipped_surrogate(log_probs, old, weights, self.config.clip)
            error = (self.agents.value(acted.decider, acted.fusion) - targets).square()
            # Means per seed, summed over seeds: no seed's gradient knows of another seed.
            per_seed: Tensor = error.mean(1) - (gain + self.config.entropy * entropy).flatten(1).mean(1)
            self.optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(per_seed.sum())
            for network in (self.actor, self.agents.critic):
                clip_per_seed(network, self.config.max_grad_norm)
            self.optimiser.step()

    def log_probs(self, state: State, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy of the acting agent: per branch (S, M, N), or per answer (S, M)."""
        if self.phase == "decider":
            logits = self.agents.pool_logits(state.decider)
            return mappo.branch_log_probs(logits, actions), mappo.branch_entropy(logits)
        logits = self.agents.slot_logits(state.fusion, state.open)
        return mappo.choice_log_probs(logits, actions), mappo.choice_entropy(logits)


class Judgement(NamedTuple):
    """What the critic makes of a buffer's M = L·B joint actions."""

    targets: Tensor
    """(S, M) Â_t + V(s_t), what the critic learns"""
    advantages: Tensor
    """(S, M) Â_t, common to both agents"""


def judge(agents: Agents, buffer: Buffer, *, gamma: float, lam: float) -> Judgement:
    """Values of all states, then advantages and critic targets (paper, section 1.6).

    The Decider's action in s_t is the pool of the *next* document, so that V(s_t) does not know it: a
    baseline that knew the action would take away what there is to learn from it.
    """
    values = agents.value(by_seed(buffer.states.decider), by_seed(buffer.states.fusion))
    values = values.view(len(values), len(buffer.states.decider), -1).movedim(1, 0)
    # Only the return above the mean is learned: at γ = 0.99 the mean itself is worth 100 rewards.
    centred = buffer.rewards - buffer.rewards.mean((0, 2), keepdim=True)
    estimate = advantages(centred, values, gamma, lam)
    return Judgement(by_seed(estimate + values[:-1]), by_seed(estimate))


def by_seed(steps: Tensor) -> Tensor:
    """(L, S, B, ...) -> (S, L·B, ...)."""
    return steps.movedim(1, 0).flatten(1, 2)


def clip_per_seed(network: nn.Module, max_norm: float) -> None:
    """Scale each seed's gradient down to `max_norm`, apart from the other seeds'."""
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    norms = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0).sqrt()
    scale = (max_norm / (norms + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scale[:, None, None])

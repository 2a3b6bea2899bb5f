"""One update: advantages from the critic, then several gradient steps of the acting agent and the critic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from rlfocal.agents.config import RLFocalConfig
from rlfocal.agents.environment import Buffer
from rlfocal.agents.gae import advantages
from rlfocal.agents.losses import mappo
from rlfocal.agents.networks import Agents
from rlfocal.agents.optimiser import StackedAdam
from rlfocal.agents.policies import moves
from rlfocal.errors import InputError

Phase = Literal["decider", "fusion"]


class Scalars(NamedTuple):
    """Settings in which seeds that train side by side may differ, (S,) each."""

    size_penalty: Tensor
    learning_rate: Tensor
    clip: Tensor
    decider_gamma: Tensor
    fusion_gamma: Tensor
    gae_lambda: Tensor
    entropy: Tensor
    max_grad_norm: Tensor

    @classmethod
    def of(cls, configs: Sequence[RLFocalConfig], device: torch.device | str = "cpu") -> Scalars:
        """One value per seed. Raises InputError where the configurations differ in anything else."""
        alike = {name: getattr(configs[0], name) for name in cls._fields}
        for config in configs[1:]:
            if replace(config, **alike) != configs[0]:
                names = [f.name for f in fields(config) if f.name not in cls._fields]
                differs = [n for n in names if getattr(config, n) != getattr(configs[0], n)]
                raise InputError(
                    f"settings trained side by side differ in {', '.join(differs)}; only "
                    f"{', '.join(cls._fields)} may differ. Train them one after the other"
                )
        return cls(*(torch.tensor([getattr(c, n) for c in configs], device=device) for n in cls._fields))


class Learner:
    """The acting agent of one phase and the critic, with the optimiser of both."""

    def __init__(self, agents: Agents, config: RLFocalConfig, scalars: Scalars, phase: Phase) -> None:
        self.agents, self.config, self.scalars, self.phase = agents, config, scalars, phase
        self.actor: nn.Module = agents.decider if phase == "decider" else agents.fusion
        self.gamma = (scalars.decider_gamma if phase == "decider" else scalars.fusion_gamma)[:, None]
        self.optimiser = StackedAdam(
            [self.actor, agents.critic], scalars.learning_rate, scalars.max_grad_norm
        )

    def update(self, buffer: Buffer) -> None:
        """Several gradient steps of Eq (7) and of the critic's squared error on one buffer."""
        seen, acting = self._seen(buffer), self._acting(buffer)
        n = buffer.rewards[0].numel()
        for epoch in range(self.config.epochs):
            log_probs, entropy = acting.log_probs()
            values = self.agents.critic(seen)[..., 0]
            if epoch == 0:  # what acted and judged before the first step
                old = log_probs.detach()
                lam = self.scalars.gae_lambda[:, None]
                targets, estimate = judge(buffer.rewards, values.detach(), self.gamma, lam)
                weights = mappo.normalised(estimate, (1,)).view(*estimate.shape, *[1] * (old.dim() - 2))
                clip, entropy_weight = (
                    per_seed.view(-1, *[1] * (old.dim() - 1))
                    for per_seed in (self.scalars.clip, self.scalars.entropy)
                )
                seen = seen[:, :n]
            gain = mappo.clipped_surrogate(log_probs, old, weights, clip)
            error = (values[:, :n] - targets).square()
            # Means per seed, summed over seeds: no seed's gradient knows of another seed.
            loss: Tensor = error.mean(1) - (gain + entropy_weight * entropy).flatten(1).mean(1)
            self.optimiser.descend(loss.sum())

    @torch.no_grad()
    def _seen(self, buffer: Buffer) -> Tensor:
        """(S, (L+1)·B, ...) what the critic judges."""
        return self.agents.critic_input(*(part.flatten(1, 2) for part in buffer.states[:2]))

    def _acting(self, buffer: Buffer) -> _Acting:
        decider, fusion, is_open = (part[:, :-1].flatten(1, 2) for part in buffer.states)
        if self.phase == "fusion":
            standard = self.agents.standardiser(fusion)
            start = self.agents.head_start(standard, is_open)
            return _Acting(self.actor, standard, start, buffer.answers.flatten(1, 2))
        before, after = (pools.flatten(1, 2) for pools in (buffer.pools[:, :-1], buffer.pools[:, 1:]))
        action = after if self.config.branching else moves(before, after)
        return _Acting(self.actor, decider, None, action)


class _Acting(NamedTuple):
    """The acting agent's inputs and actions of a buffer, M = L·B of each."""

    network: nn.Module
    inputs: Tensor
    head_start: Tensor | None
    actions: Tensor
    """(S, M, N) of branches, (S, M) of a categorical policy"""

    def log_probs(self) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy: per branch (S, M, N), or per action (S, M)."""
        logits = self.network(self.inputs)
        if self.actions.dim() == 3:
            return mappo.branch_log_probs(logits, self.actions), mappo.branch_entropy(logits)
        logits = logits if self.head_start is None else logits + self.head_start
        return mappo.choice_log_probs(logits, self.actions), mappo.choice_entropy(logits)


class Judgement(NamedTuple):
    """What the critic makes of a buffer's M = L·B joint actions."""

    targets: Tensor
    """(S, M) Â_t + V(s_t), what the critic learns"""
    advantages: Tensor
    """(S, M) Â_t, common to both agents"""


def judge(rewards: Tensor, values: Tensor, gamma: Tensor, lam: Tensor) -> Judgement:
    """Advantages and critic targets (paper, section 1.6) from `rewards` (S, L, B), the critic's values of all
    L+1 states (S, (L+1)·B), and γ and λ (S, 1).

    The Decider's action in s_t is the pool of the *next* document, so that V(s_t) does not know it: a
    baseline that knew the action would take away what there is to learn from it.
    """
    # Only the return above the mean is learned: at γ = 0.99 the mean itself is worth 100 rewards.
    centred = rewards - rewards.mean((1, 2), keepdim=True)
    values = values.view(len(values), -1, rewards.shape[2])
    estimate = advantages(centred.movedim(1, 0), values.movedim(1, 0), gamma, lam).movedim(0, 1)
    return Judgement(*((part.flatten(1)) for part in (estimate + values[:, :-1], estimate)))

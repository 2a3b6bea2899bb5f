"""How the released agents act and learn: REINFORCE, without a critic unless it is switched on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rlfocal.agents.rl_focal.mappo import clipped_surrogate, gae
from rlfocal.agents.rl_focal_released.config import ReleasedConfig
from rlfocal.agents.rl_focal_released.environment import Environment, Steps
from rlfocal.agents.rl_focal_released.networks import ReleasedNetworks
from rlfocal.agents.shared.optimiser import StackedAdam
from rlfocal.agents.shared.policies import choice_log_probs, gumbel_noise, sample_slot

STEPS_PER_BUFFER = 4
"""Gradient steps where `one_step_per_buffer` is off."""


class Learner:
    """The learning agent of one phase, and its steps since the last update."""

    def __init__(self, networks: ReleasedNetworks, config: ReleasedConfig, phase: str) -> None:
        self.networks, self.config, self.phase = networks, config, phase
        actor = networks.decider if phase == "decider" else networks.fusion
        self.critic = None if config.artefacts.no_critic else networks.critics[phase]
        trained = [actor] if self.critic is None else [actor, self.critic]
        self.optimiser = StackedAdam(trained, config.learning_rate)
        self.waiting: list[Steps] = []

    def update(self) -> None:
        """One gradient step (or four) on the waiting steps."""
        steps = Steps(*(torch.cat(parts, 1) for parts in zip(*self.waiting, strict=True)))
        self.waiting = []
        seen = steps.decider if self.phase == "decider" else steps.fusion
        gamma = self.config.decider_gamma if self.phase == "decider" else self.config.fusion_gamma
        with torch.no_grad():
            expected = torch.zeros_like(steps.rewards) if self.critic is None else self.critic(seen)[..., 0]
            values = torch.nn.functional.pad(expected, (0, 1)).T
            advantages, returns = (part.T for part in gae(steps.rewards.T, values, gamma, 1.0))
            mean, deviation = advantages.mean(1, keepdim=True), advantages.std(1, keepdim=True)
            weights = (advantages - mean) / (deviation + 1e-9)
            old_log_probs = self.log_probs(steps)
        for _ in range(1 if self.config.artefacts.one_step_per_buffer else STEPS_PER_BUFFER):
            ratio = (self.log_probs(steps) - old_log_probs).exp()
            of_heads = ratio.dim() == 3
            surrogate = clipped_surrogate(
                ratio, weights[..., None] if of_heads else weights, self.config.clip
            )
            # The Decider's loss is a mean over steps and heads, Fusion's a sum over steps.
            loss = -(surrogate.mean((1, 2)) if of_heads else surrogate.sum(1))
            if self.critic is not None:
                loss = loss + (self.critic(seen)[..., 0] - returns).square().mean(1)
            self.optimiser.descend(loss.sum())

    def waiting_state(self) -> dict[str, Tensor]:
        """The steps that no update has seen yet, by name."""
        if not self.waiting:
            return {}
        return {
            name: torch.cat(parts, 1)
            for name, parts in zip(Steps._fields, zip(*self.waiting, strict=True), strict=True)
        }

    def restore_waiting(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of `waiting_state`."""
        self.waiting = [Steps(**state)] if state else []

    def log_probs(self, steps: Steps) -> Tensor:
        """(S, M, N) of the Decider's heads, or (S, M) of Fusion's answers: probabilities instead with
        `probability_as_log_prob`."""
        if self.phase == "decider":
            heads = self.networks.pool_log_probs(steps.decider)
            return heads.gather(-1, steps.pools.long()[..., None])[..., 0]
        log_probs = choice_log_probs(self.networks.slot_logits(steps.fusion), steps.answers)
        return log_probs.exp() if self.config.artefacts.probability_as_log_prob else log_probs


class Best:
    """The learning agent's weights at the start of the episode with the highest reward, seed by seed."""

    def __init__(self, learner: Learner) -> None:
        self._live = learner.optimiser.values
        self._kept, self._now = self._live.clone(), self._live.clone()
        self._reward = torch.full((len(self._live),), -torch.inf)

    def note(self, rewards: Tensor) -> None:
        """After an episode that earned (S,)."""
        better = rewards > self._reward
        self._kept[better], self._reward[better] = self._now[better], rewards[better]
        self._now.copy_(self._live)

    def restore(self) -> None:
        self._live.copy_(self._kept)

    def state(self) -> dict[str, Tensor]:
        """What a later `restore` depends on besides the live weights."""
        return {"kept": self._kept, "now": self._now, "reward": self._reward}

    def restore_state(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of `state`."""
        for name, value in self.state().items():
            value.copy_(state[name])


def run_episode(environment: Environment, learner: Learner, generators: Sequence[torch.Generator]) -> Steps:
    """One pass over the train stream, with an update after every T_u steps of it."""
    environment.reset()
    parts = []
    period = learner.config.update_period
    while environment.at < environment.last:
        parts.append(act(environment, learner, min(period, environment.last - environment.at), generators))
        learner.waiting.append(parts[-1])
        if parts[-1].rewards.shape[1] == period:
            learner.update()
    if not learner.config.artefacts.returns_across_episodes:
        learner.waiting = []
    return Steps(*(torch.cat(part, 1) for part in zip(*parts, strict=True)))


@torch.no_grad()
def act(
    environment: Environment, learner: Learner, length: int, generators: Sequence[torch.Generator]
) -> Steps:
    """`length` steps: the Decider samples in both phases, Fusion answers in the second."""
    networks, config = learner.networks, learner.config
    draws = _draws((length, environment.stream.n_models), generators)

    def choose(t: int, observed: Tensor) -> Tensor:
        asked = networks.pool_log_probs(observed[:, None])[:, 0, :, 1].exp()
        return (draws[:, t] < asked).to(asked.dtype)

    if learner.phase == "decider":
        return environment.rollout(length, choose, None)
    greedy = config.artefacts.fusion_acts_greedily
    noise = None if greedy else gumbel_noise(_draws((length, networks.sizes.slots), generators))

    def fuse(steps: slice, observed: Tensor) -> Tensor:
        logits = networks.slot_logits(observed)
        return logits.argmax(-1) if noise is None else sample_slot(logits, noise[:, steps])

    return environment.rollout(length, choose, fuse)


def _draws(shape: tuple[int, ...], generators: Sequence[torch.Generator]) -> Tensor:
    return torch.stack([torch.rand(shape, generator=generator) for generator in generators])

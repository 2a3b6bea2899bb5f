"""Where the released code learns otherwise than the paper: REINFORCE on standardised returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rlfocal.methods.agents.tensorfiles import under
from rlfocal.methods.rl_focal.artefacts import ReleasedConfig
from rlfocal.methods.rl_focal.environment import Rollout
from rlfocal.methods.rl_focal.mappo import Acting, Diagnostics, Learner, normalised


class ReleasedLearner(Learner):
    """Updates after every T_u steps, not fewer: those left over at an episode's end wait for the next one."""

    config: ReleasedConfig

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._waiting: Rollout | None = None
        live = self.optimiser.values
        self._best = {
            "kept": live.clone(), "now": live.clone(), "reward": torch.full((len(live),), -torch.inf),
        }  # fmt: skip
        """Weights at the start of the best episode and of the running one, and what the best one earned"""
        self._earned: list[Tensor] = []

    def parts(self, length: int) -> list[int]:
        period = self.config.update_period
        return [period] * (length // period) + [length % period] * (length % period > 0)

    def slot_noise(self, shape: tuple[int, ...], generators: Sequence[torch.Generator]) -> Tensor:
        if self.config.artefacts.fusion_acts_greedily:
            return torch.zeros((len(generators), *shape))
        return super().slot_noise(shape, generators)

    def update(self, rollout: Rollout) -> Diagnostics | None:
        self._earned.append(rollout.rewards.flatten(1))
        steps = rollout if self._waiting is None else _one_after_the_other(self._waiting, rollout)
        self._waiting = None
        if rollout.pools.shape[1] == self.config.update_period:
            return super().update(steps)
        if self.config.artefacts.returns_across_episodes:
            self._waiting = steps
        return None

    def evaluate(self, agent: Acting) -> tuple[Tensor, Tensor]:
        log_probs, entropy = super().evaluate(agent)
        if self.config.artefacts.probability_as_log_prob and not agent.of_branches:
            log_probs = log_probs.exp()
        return log_probs, entropy

    def gain(self, surrogate: Tensor, *, of_branches: bool) -> Tensor:
        """A mean over steps and branches for the Decider, a sum over steps for Fusion."""
        return surrogate.mean((1, 2)) if of_branches else surrogate.sum((1, 2))

    def standardise(self, advantages: Tensor) -> Tensor:
        return normalised(advantages, correction=1, least=1e-9)

    def begin(self, done: float) -> None:
        super().begin(done)
        self._note_episode()

    def end(self) -> None:
        self._note_episode()
        if not self.config.artefacts.live_best_weights:
            self.optimiser.values.copy_(self._best["kept"])

    def rest(self) -> dict[str, Tensor]:
        self._note_episode()
        waiting = {} if self._waiting is None else self._waiting._asdict()
        of_both = {"best": self._best, "waiting": waiting}
        return super().rest() | {
            f"{of}.{n}": value for of, some in of_both.items() for n, value in some.items()
        }

    def restore(self, rest: Mapping[str, Tensor]) -> None:
        super().restore(rest)
        self._best = under("best.", rest)
        waiting = under("waiting.", rest)
        self._waiting = Rollout(**waiting) if waiting else None

    def _note_episode(self) -> None:
        """Keeps the weights with which the last episode began if it earned more than every one before."""
        if self._earned:
            reward = torch.cat(self._earned, 1).mean(1)
            better = reward > self._best["reward"]
            self._best["kept"][better], self._best["reward"][better] = (
                self._best["now"][better],
                reward[better],
            )
            self._earned = []
        self._best["now"] = self.optimiser.values.clone()


def _one_after_the_other(first: Rollout, then: Rollout) -> Rollout:
    steps = {name: torch.cat([getattr(first, name), getattr(then, name)], 1) for name in first._fields[1:-1]}
    decider = torch.cat([first.decider[:, :-1], then.decider], 1)
    return Rollout(decider=decider, rows=torch.cat([first.rows, then.rows]), **steps)

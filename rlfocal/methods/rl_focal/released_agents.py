"""Agents that are trained and act as in the released code: REINFORCE on standardised returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from rlfocal.base.arrays import Singles
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Decisions
from rlfocal.methods.agents.policies import logistic_noise
from rlfocal.methods.agents.tensorfiles import under
from rlfocal.methods.agents.threads import one_thread
from rlfocal.methods.agents.variant import SeeingAgents
from rlfocal.methods.rl_focal.agents import NetworkAgents, first_answers
from rlfocal.methods.rl_focal.artefacts import ReleasedConfig
from rlfocal.methods.rl_focal.environment import Environment, Rollout, measure
from rlfocal.methods.rl_focal.mappo import Acting, Diagnostics, Learner, normalise, walk
from rlfocal.methods.rl_focal.released import ReleasedStream


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
        return normalise(advantages, correction=1, least=1e-9)

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


WEIGHTS_AT_TEST = {"focal_diversity": 0.5, "plurality_accuracy": 0.5}
"""The metric weights of the released code at test, whatever it was trained with."""


@dataclass(frozen=True, kw_only=True)
class ReleasedAgents(NetworkAgents, SeeingAgents):
    """One seed's Decider and Fusion."""

    method: ClassVar[str] = "rl_focal_released"
    config: ReleasedConfig

    def decide_seeing_all(self, documents: Dataset) -> Decisions:
        """Frozen: Fusion's likeliest answers, from pools that are sampled at test, too.

        It sees all outputs: the released code orders free answers also by models that it does not ask.
        """
        self.check(documents)
        noise = torch.zeros(len(documents), len(self.models))
        if self.config.artefacts.decider_samples_at_test:
            noise = logistic_noise(
                torch.rand(noise.shape, generator=torch.Generator().manual_seed(self.seed))
            )
        of_document = iter(noise.numpy())

        def choose(logits: Singles, pool: Singles) -> Singles:
            return np.asarray(logits > next(of_document), dtype=np.float32)

        known = self.known(documents)
        pools = self.pools(known, choose)
        return Decisions(pools > 0, self.fuse(self.heard(documents, pools), known).said.slots)

    def decide_online(self, documents: Dataset) -> Decisions:
        """Learns as the released code does: both agents learn from each answer's reward, every T_u questions.

        The window is the whole test history, there is no size penalty, and the first pool has all models.
        """
        self.check(documents)
        config, n = self.config, len(documents)
        if config.artefacts.metrics_as_one_scalar:
            config = replace(config, metrics=tuple(WEIGHTS_AT_TEST), weights=tuple(WEIGHTS_AT_TEST.values()))
        stream = ReleasedStream(
            documents, partial(measure, config=config), n_slots=self.sizes.slots, window=n, config=config
        )
        environment = Environment(stream, config, 1, stretches=1, copies=1, first=0, length=n)
        learner = ReleasedLearner(deepcopy(self.networks), config, "joint")
        with one_thread():
            rollouts = [
                one for one, _ in walk(environment, learner, [torch.Generator().manual_seed(self.seed)])
            ]
        answers = torch.cat([first_answers(stream, one) for one in rollouts])
        pools = torch.cat([one.pools[0, :, 0] for one in rollouts])
        return Decisions(pools.numpy() > 0, answers.numpy().astype(np.int64))

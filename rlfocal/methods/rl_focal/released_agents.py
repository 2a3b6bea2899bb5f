"""Agents trained as in the released code: how they act frozen, and how they go on learning at test."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch

from rlfocal.base.arrays import Singles
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Decisions
from rlfocal.methods.agents.policies import logistic_noise
from rlfocal.methods.agents.threads import one_thread
from rlfocal.methods.agents.variant import SeeingAgents
from rlfocal.methods.rl_focal.agents import NetworkAgents, answered
from rlfocal.methods.rl_focal.artefacts import ReleasedConfig
from rlfocal.methods.rl_focal.environment import Environment, measure
from rlfocal.methods.rl_focal.mappo import walk
from rlfocal.methods.rl_focal.released import ReleasedStream
from rlfocal.methods.rl_focal.released_learning import ReleasedLearner

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
        """As the released code does: both agents learn from each answer's reward, every T_u questions.

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
        answers = torch.cat([answered(stream, one) for one in rollouts])
        pools = torch.cat([one.pools[0, :, 0] for one in rollouts])
        return Decisions(pools.numpy() > 0, answers.numpy().astype(np.int64))

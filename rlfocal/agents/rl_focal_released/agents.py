"""Agents trained as in the released code: how they act frozen, and how they go on learning at test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from rlfocal.agents.rl_focal_released.config import ReleasedConfig
from rlfocal.agents.rl_focal_released.environment import (
    Environment,
    Steps,
    decider_observation,
    measure,
    observed_outputs,
)
from rlfocal.agents.rl_focal_released.learning import Learner, act
from rlfocal.agents.rl_focal_released.networks import ReleasedNetworks
from rlfocal.agents.shared.networks import Sizes, weights_of_seed
from rlfocal.agents.shared.slots import slot_inputs
from rlfocal.agents.shared.stream import Memory
from rlfocal.agents.shared.threads import one_thread
from rlfocal.agents.shared.variant import SeeingAgents
from rlfocal.dataset import Dataset
from rlfocal.policy import Decisions, Episode
from rlfocal.statistics.outcomes import Outcomes

WEIGHTS_AT_TEST = {"focal_diversity": 0.5, "plurality_accuracy": 0.5}
"""The metric weights of the released code at test, whatever it was trained with."""


@dataclass(frozen=True, kw_only=True)
class ReleasedAgents(SeeingAgents):
    """One seed's Decider and Fusion, with what they remember of the end of train."""

    method: ClassVar[str] = "rl_focal_released"

    networks: ReleasedNetworks
    """Stacked networks of one seed (leading dimension 1)."""
    memory: Memory
    sizes: Sizes
    config: ReleasedConfig

    @classmethod
    def of(
        cls,
        stacked: ReleasedNetworks,
        at: int,
        memory: Memory,
        train: Dataset,
        config: ReleasedConfig,
        seed: int,
        history: Sequence[Episode],
    ) -> ReleasedAgents:
        """The `at`-th of the stacked agents."""
        one = ReleasedNetworks(stacked.sizes, config, [torch.Generator()])
        one.load_state_dict(weights_of_seed(stacked, at))
        return cls(
            networks=one,
            memory=Memory(*(part.clone() for part in memory)),
            sizes=stacked.sizes,
            config=config,
            benchmark=train.benchmark,
            kind=train.kind,
            models=train.models,
            seed=seed,
            snapshot=train.snapshot,
            history=tuple(history),
        )

    @torch.no_grad()
    def decide_seeing_all(self, documents: Dataset) -> Decisions:
        """Frozen: Fusion's likeliest answers, from pools that are sampled at test, too.

        It sees all outputs: the released code orders free answers also by models that it does not ask.
        """
        self.check(documents)
        pools = self._pools(len(documents))
        probs, n_choices = slot_inputs(documents, self.sizes.slots)
        seen, at = observed_outputs(probs, n_choices, pools[None], self.kind, self.config)
        past = self.memory.past_rewards.expand(1, len(documents), -1)
        answer = self.networks.slot_logits(torch.cat([seen, past], -1)).argmax(-1)
        predictions = at.gather(2, answer[..., None])[0, :, 0]
        return Decisions(pools.numpy() > 0, predictions.numpy().astype(np.int64))

    def decide_online(self, documents: Dataset) -> Decisions:
        """As the released code does: both agents learn from each answer's reward, every T_u questions.

        The window is the whole test history, there is no size penalty, and the first pool has all models.
        """
        self.check(documents)
        config = self.config
        if config.artefacts.metrics_as_one_scalar:
            config = replace(config, metrics=tuple(WEIGHTS_AT_TEST), weights=tuple(WEIGHTS_AT_TEST.values()))
        networks = ReleasedNetworks(self.sizes, config, [torch.Generator()])
        networks.load_state_dict(self.networks.state_dict())
        n = len(documents)
        environment = Environment(documents, config, 1, window=n, first=0, last=n, n_slots=self.sizes.slots)
        generators = [torch.Generator().manual_seed(self.seed)]
        decider, fusion = Learner(networks, config, "decider"), Learner(networks, config, "fusion")
        parts = []
        with one_thread():
            while environment.at < environment.last:
                length = min(config.update_period, n - environment.at)
                parts.append(act(environment, fusion, length, generators))
                for learner in (decider, fusion):
                    learner.waiting.append(parts[-1])
                    if length == config.update_period:
                        learner.update()
        steps = Steps(*(torch.cat(part, 1)[0] for part in zip(*parts, strict=True)))
        return Decisions(steps.pools.numpy() > 0, steps.predictions.numpy().astype(np.int64))

    def _pools(self, n: int) -> Tensor:
        """(n, N) the Decider's pools, each from the one before; in the released code sampled at test, too."""
        predictions, labels = self.memory.predictions, self.memory.labels
        outcomes = Outcomes(predictions, labels, int(predictions.max()) + 1, self.kind, 0)
        draws = torch.full((n, len(self.models)), 0.5)
        if self.config.artefacts.decider_samples_at_test:
            draws = torch.rand(draws.shape, generator=torch.Generator().manual_seed(self.seed))
        asked: dict[bytes, Tensor] = {}
        pools, pool = [], self.memory.pool
        for t in range(n):
            key = pool.numpy().tobytes()
            if key not in asked:
                looked_back = outcomes.window(pool[None, None], len(labels), len(labels), 1)
                observed = decider_observation(pool[None, None], measure(looked_back, self.config))
                asked[key] = self.networks.pool_log_probs(observed)[0, 0, :, 1].exp()
            pool = (draws[t] < asked[key]).to(pool.dtype)
            pools.append(pool)
        return torch.stack(pools) if pools else self.memory.pool.new_zeros((0, len(self.models)))

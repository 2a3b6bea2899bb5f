"""Agents trained as released, and how they act with everything frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rlfocal.agents.environment import Memory
from rlfocal.agents.networks import Sizes
from rlfocal.agents.outcomes import Outcomes
from rlfocal.agents.released.config import ReleasedConfig
from rlfocal.agents.released.networks import ReleasedAgents
from rlfocal.agents.released.stream import decider_observation, measure, observed_outputs
from rlfocal.agents.slots import slot_inputs
from rlfocal.dataset import Dataset, Kind
from rlfocal.errors import InputError
from rlfocal.methods.base import Decisions, Episode


@dataclass(frozen=True)
class ReleasedPolicy:
    """One seed's Decider and Fusion, with what they remember of the end of train."""

    agents: ReleasedAgents
    """Stacked networks of one seed (leading dimension 1)."""
    memory: Memory
    sizes: Sizes
    config: ReleasedConfig
    benchmark: str
    kind: Kind
    models: tuple[str, ...]
    seed: int
    snapshot: int
    """The warehouse snapshot that train rows were read from."""
    history: tuple[Episode, ...]

    @classmethod
    def of(
        cls,
        stacked: ReleasedAgents,
        at: int,
        memory: Memory,
        train: Dataset,
        config: ReleasedConfig,
        seed: int,
        history: Sequence[Episode],
    ) -> ReleasedPolicy:
        """The `at`-th of some stacked agents."""
        one = ReleasedAgents(stacked.sizes, config, [torch.Generator()])
        own = {name: value[at : at + 1].clone() for name, value in stacked.state_dict().items()}
        one.load_state_dict(own)
        return cls(
            agents=one,
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
    def decide(self, documents: Dataset) -> Decisions:
        """Act on T documents in order, frozen: parameters, diversity window and past rewards as after train.

        No label enters. Raises InputError if the documents come from another pool.
        """
        self._check(documents)
        pools = self._pools(len(documents))
        probs, n_choices = slot_inputs(documents, self.sizes.slots)
        seen, at = observed_outputs(probs, n_choices, pools[None], self.kind, self.config)
        past = self.memory.past_rewards.expand(1, len(documents), -1)
        answer = self.agents.slot_logits(torch.cat([seen, past], -1)).argmax(-1)
        predictions = at.gather(2, answer[..., None])[0, :, 0]
        return Decisions(pools.numpy() > 0, predictions.numpy().astype(np.int64))

    def decide_online(self, documents: Dataset) -> Decisions:
        """Act on T documents in order, and learn from each after its answer, as the released code does."""
        from rlfocal.agents.released.online import decide_online  # it builds on this class

        self._check(documents)
        return decide_online(self, documents)

    def _check(self, documents: Dataset) -> None:
        if documents.models != self.models or documents.kind != self.kind:
            raise InputError(
                f"these agents were trained on {self.kind} of {', '.join(self.models)}; the documents of "
                f"{documents.benchmark!r} hold {documents.kind} of {', '.join(documents.models)}. "
                "Train on this pool"
            )

    def _pools(self, n: int) -> Tensor:
        """(n, N) the Decider's pools, each from the one before; drawn, by the released code, at test too."""
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
                asked[key] = self.agents.pool_log_probs(observed)[0, 0, :, 1].exp()
            pool = (draws[t] < asked[key]).to(pool.dtype)
            pools.append(pool)
        return torch.stack(pools) if pools else self.memory.pool.new_zeros((0, len(self.models)))

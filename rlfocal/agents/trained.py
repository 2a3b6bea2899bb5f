"""Trained agents, and how they act with everything frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlfocal.agents.config import RLFocalConfig
from rlfocal.agents.environment import Memory
from rlfocal.agents.networks import Agents, Sizes
from rlfocal.agents.outcomes import Outcomes
from rlfocal.agents.policies import likeliest_pool, modal_answer, next_modal_pool
from rlfocal.agents.slots import build_slots, slot_inputs
from rlfocal.agents.stream import decider_observation
from rlfocal.dataset import Dataset, Kind
from rlfocal.errors import InputError
from rlfocal.methods.base import Decisions, Episode


@dataclass(frozen=True)
class TrainedAgents:
    """One seed's Decider, Fusion and critic, with what they remember of the end of train."""

    agents: Agents
    """Stacked networks of one seed (leading dimension 1)."""
    memory: Memory
    sizes: Sizes
    config: RLFocalConfig
    benchmark: str
    kind: Kind
    models: tuple[str, ...]
    seed: int
    snapshot: int
    """The warehouse snapshot that train rows were read from."""
    history: tuple[Episode, ...]

    @torch.no_grad()
    def decide(self, documents: Dataset, size: int | None = None) -> Decisions:
        """Act on T documents in order, frozen: modes of the policies; diversity window and past rewards as
        after train. With a `size`, the so many models whose branches are likeliest are asked instead.

        No label enters. Choices beyond those that train had are never answered. Raises InputError if the
        documents come from another pool.
        """
        self._check(documents)
        pools = self._pools(len(documents), size)
        probs, n_choices = slot_inputs(documents, self.sizes.slots)
        slots = build_slots(probs, n_choices, pools[None], self.kind, self.sizes.slots)
        past = self.memory.past_rewards.expand(1, len(documents), -1)
        given = torch.cat([slots.distributions.flatten(2), past], -1)
        answer = modal_answer(self.agents.slot_logits(given, slots.open))
        predictions = slots.at.gather(2, answer[..., None])[0, :, 0]
        return Decisions(_bools(pools), predictions.numpy().astype(np.int64))

    def decide_online(self, documents: Dataset) -> Decisions:
        """Act on T documents in order, learning each label after its answer (Algorithm 2)."""
        from rlfocal.agents.online import decide_online

        self._check(documents)
        return decide_online(self, documents)

    def _pools(self, n: int, size: int | None) -> Tensor:
        """(n, N) the Decider's pools. Frozen, each follows from the last one alone, so is worked out once."""
        follows: dict[bytes, Tensor] = {}
        pools, pool = [], self.memory.pool
        for _ in range(n):
            key = pool.numpy().tobytes()
            if key not in follows:
                follows[key] = self.pool_after(pool, size)
            pool = follows[key]
            pools.append(pool)
        return torch.stack(pools) if pools else self.memory.pool.new_zeros((0, len(self.models)))

    @torch.no_grad()
    def pool_after(self, pool: Tensor, size: int | None = None) -> Tensor:
        """(N,) the pool that the frozen Decider asks after `pool` (N,), by the window at the end of train."""
        predictions, labels = self.memory.predictions, self.memory.labels
        outcomes = Outcomes(predictions, labels, int(predictions.max()) + 1, self.kind, 0)
        looked_back = outcomes.window(pool[None, None], len(labels), len(labels), 1)
        logits = self.agents.pool_logits(decider_observation(looked_back, self.config))[0, 0]
        return next_modal_pool(logits, pool) if size is None else likeliest_pool(logits, size)

    def _check(self, documents: Dataset) -> None:
        if documents.models != self.models or documents.kind != self.kind:
            raise InputError(
                f"these agents were trained on {self.kind} of {', '.join(self.models)}; the documents of "
                f"{documents.benchmark!r} hold {documents.kind} of {', '.join(documents.models)}. "
                "Train on this pool"
            )


def _bools(pools: Tensor) -> NDArray[np.bool_]:
    return pools.numpy() > 0


def remember(
    agents: Agents, memories: Sequence[Memory], history: Sequence[Sequence[Episode]], train_rows: Dataset,
    sizes: Sizes, configs: Sequence[RLFocalConfig], seeds: Sequence[int],
) -> list[TrainedAgents]:  # fmt: skip
    """Part the stacked networks into one TrainedAgents per seed, on the CPU."""
    result = []
    for at, (seed, config, memory, rows) in enumerate(zip(seeds, configs, memories, history, strict=True)):
        one = Agents(sizes, config, [torch.Generator()])
        one.load_state_dict(
            {name: value[at : at + 1].cpu().clone() for name, value in agents.state_dict().items()}
        )
        result.append(
            TrainedAgents(
                agents=one,
                memory=memory,
                sizes=sizes,
                config=config,
                benchmark=train_rows.benchmark,
                kind=train_rows.kind,
                models=train_rows.models,
                seed=seed,
                snapshot=train_rows.snapshot,
                history=tuple(rows),
            )
        )
    return result

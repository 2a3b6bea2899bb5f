"""Trained agents of the variant `sequential`, and how they act."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlfocal.agents.sequential.config import SequentialConfig
from rlfocal.agents.sequential.decider import stop_stages, view
from rlfocal.agents.sequential.observations import Scales, best_slots, outputs, real_slots, stage_rows
from rlfocal.agents.sequential.queries import QueryFeatures
from rlfocal.agents.sequential.softmax_regression import Rows, Weights
from rlfocal.agents.slots import refuse_broken
from rlfocal.dataset import Dataset, Kind
from rlfocal.errors import InputError
from rlfocal.methods.base import Decisions, Episode

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Fusion:
    """A mixture of softmax regressions over what the asked models said."""

    weights: Weights
    """R regressions"""
    shares: Floats
    """(R,)"""

    def probabilities(self, rows: Rows) -> Floats:
        """(T, C) distributions over the open slots."""
        return np.asarray(np.einsum("r,rtc->tc", self.shares, self.weights.probabilities(rows).numpy()))


@dataclass(frozen=True)
class SequentialAgents:
    """One seed's Decider and Fusion."""

    config: SequentialConfig
    benchmark: str
    kind: Kind
    models: tuple[str, ...]
    seed: int
    snapshot: int
    n_slots: int
    tasks: tuple[str, ...]
    """Tasks that Fusion knows; none where train had but one."""
    order: tuple[int, ...]
    """Positions of the models, in the order in which they are asked."""
    sizes: tuple[int, ...]
    """Models that have answered at each of the K stages."""
    scales: Scales
    queries: QueryFeatures
    fusions: tuple[Fusion, ...]
    decider: Floats
    """(K-1, 5)"""
    train_accuracy: tuple[float, ...]
    """Each model's, in the order of `models`."""
    penalty: float
    """What asking one model costs, where being right earns 1."""
    history: tuple[Episode, ...]

    def decide(self, documents: Dataset) -> Decisions:
        """Act on T documents, frozen; each on its own.

        Raises InputError if they come from another pool, or hold a probability that is not a finite number.
        """
        self._check(documents)
        seen = outputs(documents, self.scales, self.queries, self.tasks, self.order, self.n_slots)
        votes = documents.predictions[:, list(self.order)]
        said, features = [], []
        for fusion, size in zip(self.fusions, self.sizes, strict=True):
            distributions = real_slots(fusion.probabilities(stage_rows(seen, size, self.kind)), self.kind)
            said.append(best_slots(distributions, seen, size, documents.slots))
            features.append(view(distributions, said[-1], votes[:, :size], self.n_slots))
        stage = stop_stages(self.decider, features)
        predictions = np.stack(said)[stage, np.arange(len(documents))]
        place = np.argsort(self.order)
        pools = place < np.array(self.sizes)[stage][:, None]
        return Decisions(pools, predictions)

    def decide_online(self, documents: Dataset) -> Decisions:
        """Act on T documents in order, learning each label after its answer."""
        from rlfocal.agents.sequential.online import decide_online

        return decide_online(self, documents)

    def _check(self, documents: Dataset) -> None:
        if documents.models != self.models or documents.kind != self.kind:
            raise InputError(
                f"these agents were trained on {self.kind} of {', '.join(self.models)}; the documents of "
                f"{documents.benchmark!r} hold {documents.kind} of {', '.join(documents.models)}. "
                "Train on this pool"
            )
        refuse_broken(documents)

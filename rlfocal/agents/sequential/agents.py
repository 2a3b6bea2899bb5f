"""Trained agents of the variant `sequential`, and how they act."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlfocal.agents.sequential.config import SequentialConfig
from rlfocal.agents.sequential.decider import stop_stages, view
from rlfocal.agents.sequential.observations import Scales, outputs, stage_rows
from rlfocal.agents.sequential.queries import QueryFeatures
from rlfocal.agents.sequential.softmax_regression import Rows, Weights
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
    penalty: float
    """What asking one model costs, where being right earns 1."""
    history: tuple[Episode, ...]

    def decide(self, documents: Dataset) -> Decisions:
        """Act on T documents, frozen; each on its own. Raises InputError if they come from another pool."""
        self._check(documents)
        seen = outputs(documents, self.scales, self.queries, self.tasks, self.order, self.n_slots)
        distributions = [
            fusion.probabilities(stage_rows(seen, size, self.kind))
            for fusion, size in zip(self.fusions, self.sizes, strict=True)
        ]
        votes = documents.predictions[:, list(self.order)]
        features = [view(p, votes[:, :size]) for p, size in zip(distributions, self.sizes, strict=True)]
        stage = stop_stages(self.decider, features)
        answered = np.stack(distributions)[stage, np.arange(len(documents))]
        predictions = np.where(answered.any(axis=1), answered.argmax(axis=1), -1)
        place = np.argsort(self.order)
        pools = place < np.array(self.sizes)[stage][:, None]
        return Decisions(pools, predictions.astype(np.int64))

    def _check(self, documents: Dataset) -> None:
        if documents.models != self.models or documents.kind != self.kind:
            raise InputError(
                f"these agents were trained on {self.kind} of {', '.join(self.models)}; the documents of "
                f"{documents.benchmark!r} hold {documents.kind} of {', '.join(documents.models)}. "
                "Train on this pool"
            )

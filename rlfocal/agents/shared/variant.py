"""What the three variants of RL-Focal have in common: how they are trained, stored, and asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rlfocal.agents.shared.tracking import Tracker
from rlfocal.calls import Answered, Calls
from rlfocal.dataset import Dataset, Kind
from rlfocal.errors import InputError
from rlfocal.policy import Budget, Decisions, Episode
from rlfocal.routing.outputs import Fused, Given

if TYPE_CHECKING:
    from rlfocal.agents.storage.header import Header

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Progress = Callable[[float], None]
"""Called with the finished share of a training, 0 to 1."""
Parts = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors by name, and what JSON can hold."""


class Account(NamedTuple):
    """What Fusion answered to T documents, and what it made of each slot and model."""

    slots: NDArray[np.int64]
    """(T,) as `Calls` numbers them; -1 for no answer"""
    distribution: NDArray[np.float64]
    """(T, C) how likely it held each slot to be right; all 0 without an answer"""
    pulls: NDArray[np.float64] | None
    """(T, N) what each model's outputs add to the logit of the answer, less what they add to the other slots
    on average, in nats; 0 for models that were not asked. None where logits are no sum over models."""


@dataclass(frozen=True, kw_only=True)
class TrainedAgents(ABC):
    """One seed's agents."""

    method: ClassVar[str]
    """What `evaluations.method` calls them."""

    benchmark: str
    kind: Kind
    models: tuple[str, ...]
    seed: int
    snapshot: int
    """The warehouse snapshot that train rows were read from."""
    history: tuple[Episode, ...]
    config: Any
    prices: tuple[float, ...] = ()
    """(N,) cents per 1,000 queries of today, NaN where unknown; a checkpoint holds none."""

    @abstractmethod
    def decide_online(self, documents: Dataset) -> Decisions:
        """Act on T documents in order, learning each label after its answer; the agents stay as they are.

        Raises InputError for documents of another pool, and for a probability that is not a finite number.
        """

    def check(self, documents: Dataset | Calls) -> None:
        """Raises InputError for documents of another pool."""
        if documents.models != self.models or documents.kind != self.kind:
            raise InputError(
                f"these agents were trained on {self.kind} of {', '.join(self.models)}; the documents of "
                f"{documents.benchmark!r} hold {documents.kind} of {', '.join(documents.models)}. "
                "Train on this pool"
            )


class CallingAgents(TrainedAgents):
    """Agents that know no more than what they called."""

    @abstractmethod
    def decide(self, calls: Calls, most: float = np.inf, costs: Floats | None = None) -> Answered:
        """Act on T documents in order, frozen: everything is as it was at the end of train, no label enters.

        `most`: a document calls no more models, or where calls have `costs` (N,), none that sum up to more.
        Raises InputError as `decide_online` does.
        """

    @abstractmethod
    def account(self, calls: Calls, down: Mask | None = None) -> Account:
        """Act as `decide` does, and tell how the answers came about.

        `down` (N,): models that say nothing though their turn comes; others stand in, as they do for a Router
        whose models are down. Raises InputError as `decide_online` does.
        """

    def within(self, budget: Budget) -> AtMost | None:
        """The same agents, held to a number of calls or to cents; None for less than they can do with."""
        unknown = (np.nan,) * len(self.models)
        costs = None if budget.unit == "models" else budget.costs(np.array(self.prices or unknown))
        most = (
            budget.amount if costs is None else float(np.nan_to_num(budget.amount))
        )  # none pays infinite costs
        return AtMost(self, most, costs) if self.least_cost(costs) <= most else None

    @abstractmethod
    def least_cost(self, costs: Floats | None) -> float:
        """What a document costs at least where calls have `costs` (N,), or 1 each; infinite for agents that
        cannot be held to a limit."""


@dataclass(frozen=True)
class AtMost:
    """Frozen agents that spend no more than so much on a document."""

    agents: CallingAgents
    most: float
    costs: Floats | None
    """(N,) of calls; None: of each model 1"""

    def decide(self, calls: Calls) -> Answered:
        return self.agents.decide(calls, self.most, self.costs)


class SeeingAgents(TrainedAgents):
    """Agents that read outputs of models that they do not ask."""

    @abstractmethod
    def decide_seeing_all(self, documents: Dataset) -> Decisions:
        """Act on T documents in order, frozen. Raises InputError as `decide_online` does."""


SomeAgents = CallingAgents | SeeingAgents


class Driver(Protocol):
    """One seed's agents, asked one query at a time."""

    def tracker(self) -> Tracker:
        """Where learning from labels starts."""
        ...

    def begin(self, question: str, task: str) -> None:
        """The next query."""
        ...

    def forget(self) -> None:
        """What was said about this query has changed."""
        ...

    def wanted(self, given: Given) -> Mask:
        """(N,) the models that should have been asked by now."""
        ...

    def fuse(self, given: Given) -> Fused:
        """The slot, and how likely it is right."""
        ...


@dataclass(frozen=True)
class Variant:
    """One way to be RL-Focal."""

    method: str
    """Its name in `evaluations.method`."""
    header: type[Header]
    """What its checkpoints say beside their tensors."""
    train: Callable[[Dataset, Any, Sequence[int], Progress | None, Path | None], Sequence[SomeAgents]]
    """Train rows, settings, seeds, progress, and a folder that holds what a killed training goes on from.
    One pair of agents per seed. Raises InputError for data that cannot be learned from."""
    to_parts: Callable[[Any], Parts]
    """What a checkpoint of its agents holds."""
    from_parts: Callable[[Any, Mapping[str, Tensor]], SomeAgents]
    """The inverse, from header and tensors. Raises UnusableError for parts that do not fit."""
    driver: Callable[[Any], Driver]
    """Its agents for a Router. Raises InputError where they know whole streams only."""


def check_train(train: Dataset) -> None:
    """Raises InputError for a pool of one model, or too few documents to learn from."""
    if len(train.models) < 2:
        raise InputError(f"benchmark {train.benchmark!r} has one model; RL-Focal needs at least 2")
    if len(train) < 2:
        raise InputError(
            f"benchmark {train.benchmark!r} has {len(train)} train documents; RL-Focal needs at least 2"
        )

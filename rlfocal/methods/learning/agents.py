"""What trained agents have in common: how they are asked, within a budget or by a Router."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset, Kind
from rlfocal.data.outputs import Fused, Given, nothing_given
from rlfocal.data.policy import Budget, Decisions, Episode
from rlfocal.methods.learning.tracking import Tracker

Progress = Callable[[float], None]
"""Called with the finished share of a training, 0 to 1."""


class Account(NamedTuple):
    """Fusion's answers to T documents, and its view of each slot and model."""

    slots: Ints
    """(T,) as `Calls` numbers them; -1 for no answer"""
    distribution: Floats
    """(T, C) its probability that each slot is right; all 0 without an answer"""
    pulls: Floats | None
    """(T, N) what each model's outputs add to the logit of the answer, less what they add to the other slots
    on average, in nats; 0 for models that were not asked. None where logits are not a sum over models."""


@dataclass(frozen=True, kw_only=True)
class TrainedAgents(ABC):
    """One seed's agents; they see only the answers of the models they call."""

    method: str
    """Their name in `evaluations.method`."""
    benchmark: str
    kind: Kind
    models: tuple[str, ...]
    seed: int
    snapshot: int
    """The warehouse snapshot that train rows were read from."""
    history: tuple[Episode, ...]
    config: Any
    prices: tuple[float, ...] = ()
    """(N,) today's cents per 1,000 queries, NaN where unknown; a checkpoint holds none."""

    @abstractmethod
    def decide_online(self, documents: Dataset) -> Decisions:
        """Act on T documents in order, learning each label after its answer; the agents stay as they are.

        Raises InputError for documents of another pool, and for a probability that is not a finite number.
        """

    def document(self, question: str, task: str, given: Given | None = None) -> Dataset:
        """A query to a Router, with what was given so far or nothing, as `decide` sees documents."""
        given = nothing_given(len(self.models)) if given is None else given
        n, width = given.probs.shape
        return Dataset(
            benchmark=self.benchmark, kind=self.kind, models=self.models, prices=np.zeros(n),
            tasks=np.array([task]), doc_ids=np.zeros(1, dtype=np.int64), probs=given.probs[None],
            logprobs=given.logprobs[None], n_choices=np.array([width]), predictions=given.slots[None],
            labels=np.array([-1]), is_train=np.zeros(1, dtype=np.bool_),
            slots=(tuple(given.answers),) * bool(given.answers),
            snapshot=self.snapshot, questions=(question,),
        )  # fmt: skip

    def check(self, documents: Dataset | Calls) -> None:
        """Raises InputError for documents of another pool."""
        if documents.models != self.models or documents.kind != self.kind:
            raise InputError(
                f"these agents were trained on {self.kind} of {', '.join(self.models)}; the documents of "
                f"{documents.benchmark!r} hold {documents.kind} of {', '.join(documents.models)}. "
                "Train on this pool"
            )

    @abstractmethod
    def decide(self, calls: Calls, most: float = np.inf, costs: Floats | None = None) -> Answered:
        """Act on T documents in order, frozen: everything is as it was at the end of train, no label enters.

        `most`: the most models called per document or, where calls have `costs` (N,), their highest sum. For
        models that are down others stand in, as for a Router, whatever a budget in cents says.
        Raises InputError as `decide_online` does.
        """

    @abstractmethod
    def account(self, calls: Calls) -> Account:
        """Act as `decide` does, and tell how the answers came about. Raises InputError as `decide_online`
        does.
        """

    def within(self, budget: Budget) -> AtMost | None:
        """The same agents within a budget of calls or cents; None for a budget below their least cost."""
        unknown = (np.nan,) * len(self.models)
        costs = None if budget.unit == "models" else budget.costs(np.array(self.prices or unknown))
        most = (
            budget.amount if costs is None else float(np.nan_to_num(budget.amount))
        )  # none pays infinite costs
        return AtMost(self, most, costs) if self.least_cost(costs) <= most else None

    @abstractmethod
    def least_cost(self, costs: Floats | None) -> float:
        """The least that a document costs where calls have `costs` (N,), or 1 each; infinite for agents that
        cannot keep to a limit."""


@dataclass(frozen=True)
class AtMost:
    """Frozen agents that spend at most `most` on a document."""

    agents: TrainedAgents
    most: float
    costs: Floats | None
    """(N,) of calls; None: 1 for each model"""

    def decide(self, calls: Calls) -> Answered:
        return self.agents.decide(calls, self.most, self.costs)


class Driver(Protocol):
    """One seed's agents, asked one query at a time."""

    def tracker(self) -> Tracker:
        """Where learning from labels starts."""
        ...

    def begin(self, question: str, task: str) -> None:
        """Starts the next query."""
        ...

    def forget(self) -> None:
        """Answers to this query have changed; whatever was derived from them is dropped."""
        ...

    def wanted(self, given: Given) -> Bools:
        """(N,) the models that should have been asked by now."""
        ...

    def fuse(self, given: Given) -> Fused:
        """The slot, and how likely it is right."""
        ...


def check_train(train: Dataset) -> None:
    """Raises InputError for a pool of one model, or too few documents to learn from."""
    if len(train.models) < 2:
        raise InputError(f"benchmark {train.benchmark!r} has one model; RL-Focal needs at least 2")
    if len(train) < 2:
        raise InputError(
            f"benchmark {train.benchmark!r} has {len(train)} train documents; RL-Focal needs at least 2"
        )


def refuse_broken(documents: Dataset) -> None:
    """Raises InputError for a probability that is not a finite number."""
    broken = np.argwhere(~np.isfinite(documents.probs).all(-1))
    if len(broken):
        row, model = broken[0]
        raise InputError(
            f"{documents.models[model]!r} has NaN or infinite probabilities on document "
            f"{documents.doc_ids[row]} of task {str(documents.tasks[row])!r} of {documents.benchmark!r}; "
            "import or extract it again, or leave the model out"
        )

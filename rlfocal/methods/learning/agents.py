"""The common base of trained agents, their drivers for a Router, and decisions within a budget; and the
register of trained methods. The module does not import torch.

`Tracker` votes by the models that are good now, for comparison with agents as labels come in.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset, Kind
from rlfocal.data.outputs import FusedAnswer, QueryOutputs, make_empty_outputs
from rlfocal.data.policy import Budget, Decisions, Episode
from rlfocal.methods.checking import Space
from rlfocal.methods.learning.store import Header
from rlfocal.methods.registry import load_trained_methods

if TYPE_CHECKING:
    from torch import Tensor


Progress = Callable[[float], None]
"""A function that is called with the finished share of a training, 0 to 1."""


class FusionAttribution(NamedTuple):
    """Fusion's answers to T documents, with its probability of each slot and each model's contribution."""

    slots: Ints
    """(T,) the answered slots, numbered as `Calls` does; -1 for no answer."""
    distribution: Floats
    """(T, C) Fusion's probability that each slot is right; all 0 without an answer"""
    pulls: Floats | None
    """(T, N) how much a model's outputs add to the answer's logit, less their mean over the other slots.

    Pulls are in nats, and 0 for models that were not asked. None where logits are not a sum over models.
    """


@dataclass(frozen=True, kw_only=True)
class TrainedAgents(ABC):
    """The trained agents of one seed, which see only the outputs of models that they call."""

    method: str
    """The method's name in `evaluations.method`."""
    benchmark: str
    kind: Kind
    models: tuple[str, ...]
    seed: int
    snapshot: int
    """The warehouse snapshot that train rows were read from."""
    history: tuple[Episode, ...]
    config: Any
    prices: tuple[float, ...] = ()
    """(N,) present prices in cents per 1,000 queries, NaN where unknown. A checkpoint holds no prices."""

    @property
    @abstractmethod
    def most_choices(self) -> float:
        """The most choices that a question may have; infinite if any number of answers can be told apart."""

    @abstractmethod
    def decide_online(self, documents: Dataset) -> Decisions:
        """Decides on T documents in order, learning each label after its answer; the agents stay as they are.

        Raises InputError for documents of another pool, and for a probability that is not a finite number.
        """

    def document(self, question: str, task: str, outputs: QueryOutputs | None = None) -> Dataset:
        """A Router's query as a dataset of one document, with the outputs so far, if any.

        Raises InputError for outputs of more choices than the agents can answer.
        """
        outputs = make_empty_outputs(len(self.models)) if outputs is None else outputs
        n, width = outputs.probs.shape
        if self.kind == "choices" and width > self.most_choices:
            raise InputError(
                f"the outputs are log-probs of {width} choices, but these agents can answer at most "
                f"{self.most_choices:g}, as their questions in train had; train on questions with {width}"
            )
        return Dataset(
            benchmark=self.benchmark, kind=self.kind, models=self.models, prices=np.zeros(n),
            tasks=np.array([task]), doc_ids=np.zeros(1, dtype=np.int64), probs=outputs.probs[None],
            logprobs=outputs.logprobs[None], n_choices=np.array([width]), predictions=outputs.slots[None],
            labels=np.array([-1]), is_train=np.zeros(1, dtype=np.bool_),
            slots=(tuple(outputs.answers),) * bool(outputs.answers),
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
    def decide(self, calls: Calls, most: float = np.inf, costs: Floats | None = None) -> Answers:
        """Decides on T documents in order without labels, from the state at the end of train.

        `most`: the most models called per document or, where calls have `costs` (N,), the highest sum of
        their costs. Other models stand in for those that are down, even beyond a budget in cents. Raises
        InputError for documents of another pool, and for a probability that is not a finite number.
        """

    @abstractmethod
    def account(self, calls: Calls) -> FusionAttribution:
        """Decides on T documents without labels, and attributes each answer to models.

        Raises InputError for documents of another pool, and for a probability that is not a finite number.
        """

    def hold_to_budget(self, budget: Budget) -> BudgetedAgents | None:
        """The same agents held to a budget of calls or cents; None for a budget below their least cost."""
        unknown = (np.nan,) * len(self.models)
        costs = None if budget.unit == "models" else budget.costs(np.array(self.prices or unknown))
        most = (
            budget.amount if costs is None else float(np.nan_to_num(budget.amount))
        )  # none pays infinite costs
        return BudgetedAgents(self, most, costs) if self.least_cost(costs) <= most else None

    @abstractmethod
    def least_cost(self, costs: Floats | None) -> float:
        """The least cost of a document, where calls cost `costs` (N,), or 1 each.

        Infinite for agents that cannot keep to a limit.
        """


@dataclass(frozen=True)
class BudgetedAgents:
    """Frozen agents that spend at most `most` on a document."""

    agents: TrainedAgents
    most: float
    costs: Floats | None
    """(N,) the cost of a call of each model, in the unit of `most`; None: 1 each."""

    def decide(self, calls: Calls) -> Answers:
        return self.agents.decide(calls, self.most, self.costs)


class Driver(Protocol):
    """Runs the agents of one seed, one query at a time."""

    def tracker(self) -> Tracker:
        """A new tracker for these agents, before any label."""
        ...

    def begin(self, question: str, task: str) -> None:
        """Starts the next query."""
        ...

    def forget(self) -> None:
        """Drops everything computed from this query's outputs, because they have changed."""
        ...

    def choose_models(self, outputs: QueryOutputs) -> Bools:
        """(N,) which models should be asked by now, given the outputs so far; asked models included."""
        ...

    def fuse(self, outputs: QueryOutputs) -> FusedAnswer:
        """The agents' answer to the query, with the probability that it is right."""
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


# ---- as labels come in


LABEL_MEMORY = 100.0
"""The number of labels after which an observation counts 1/e."""
COMPARISON_MEMORY = 20.0
"""The number of comparisons of agents and team after which a comparison counts 1/e."""
LEAD_STANDARD_ERRORS = 1.5
"""The number of standard errors by which the team has to be ahead of the agents.

On 16 constructed streams, 0 lost 0.2 points to noise where accuracies do not change. With 2, answers just
after a change were 3 points worse.
"""
PROBE_SHARE = 0.1
"""The share of queries that both the agents and the team answer, to compare the two."""
ALARM_PROBE_SHARE = 0.5
"""The share of queries that both answer while accuracy is clearly below that of train."""
_EXPLORATION_BONUS = 0.5
_PRIOR_LABELS = 20.0


class Tracker:
    """Tracks models' accuracies as labels come in, and votes by a team of the models that are best now.

    After a change of the stream the vote can be better than trained agents, with which it is compared. The
    team has `size` of N models, whose accuracies start at `train_accuracy` (N,). `expected_accuracy` is that
    of the agents on train.
    """

    def __init__(self, train_accuracy: Floats, expected_accuracy: float, size: int, seed: int) -> None:
        self._weights = np.full(len(train_accuracy), _PRIOR_LABELS)
        self._hits = _PRIOR_LABELS * train_accuracy
        self._expected_accuracy, self._size = expected_accuracy, size
        self._recent_accuracy = expected_accuracy
        self._gain = self._spread = 0.0
        self._draw = np.random.default_rng(seed)

    @property
    def accuracy(self) -> Floats:
        """(N,) each model's accuracy so far, in which old labels count less."""
        accuracy: Floats = self._hits / self._weights
        return accuracy

    @property
    def leads(self) -> bool:
        """Whether the team's vote has lately been right clearly more often than the trained agents."""
        return self._gain > LEAD_STANDARD_ERRORS * math.sqrt(self._spread)

    def team(self, down: Sequence[int] = ()) -> Bools:
        """(N,) the models with the highest upper confidence bounds, without the positions in `down`."""
        bound = self.accuracy + _EXPLORATION_BONUS / np.sqrt(self._weights)
        bound[list(down)] = -np.inf
        chosen = np.argsort(-bound, kind="stable")[: self._size]
        team = np.zeros(len(bound), dtype=np.bool_)
        team[chosen[np.isfinite(bound[chosen])]] = True
        return team

    def probes(self) -> bool:
        """Draws whether both agents and team answer the next query; more often while accuracy is low."""
        alarmed = self._recent_accuracy < self._expected_accuracy - 0.1
        return bool(self._draw.random() < (ALARM_PROBE_SHARE if alarmed else PROBE_SHARE))

    def vote(self, probs: Floats, team: Bools) -> int:
        """The slot with the most votes of the team (N,), weighted by log-odds of being right; -1 for none.

        `probs` (N, C) has rows of zeros for models without an answer. Probabilities break ties.
        """
        members = team & probs.any(axis=1)
        if not members.any():
            return -1
        n_slots = max(probs.shape[1], 2)
        right = np.clip(self.accuracy[members], 0.02, 0.98)
        weight = np.maximum(np.log(right * (n_slots - 1) / (1 - right)), 1e-3)
        votes = np.bincount(probs[members].argmax(axis=1), weights=weight, minlength=probs.shape[1])
        return int((votes + 1e-6 * probs[members].mean(axis=0)).argmax())

    def learn(
        self, is_asked: Bools, is_right: Bools, is_answer_right: bool, comparison: tuple[bool, bool] | None
    ) -> None:
        """Learns from one label: which models were asked and right (N,), and whether the answer was right.

        `comparison`: whether the agents and whether the team were right; None if not both answered.
        """
        keep = np.exp(-1 / LABEL_MEMORY)
        self._weights = self._weights * keep + is_asked
        self._hits = self._hits * keep + (is_asked & is_right)
        # A model not asked for long is as uncertain as one with two answers, not more.
        scale = np.maximum(2.0 / np.maximum(self._weights, 1e-9), 1.0)
        self._weights, self._hits = self._weights * scale, self._hits * scale
        self._recent_accuracy += (float(is_answer_right) - self._recent_accuracy) / 50
        if comparison is not None:
            fade = np.exp(-1 / COMPARISON_MEMORY)
            self._gain = self._gain * fade + float(comparison[1]) - float(comparison[0])
            self._spread = self._spread * fade + float(comparison[1] != comparison[0])


@dataclass(frozen=True)
class Variant:
    """The functions that train, save, load and run one kind of agents."""

    header: type[Header]
    """The class of the header that these agents' checkpoints hold besides tensors."""
    train: Callable[[Dataset, Any, Sequence[int], Progress | None, Path | None], Sequence[TrainedAgents]]
    """A function that trains agents for each seed.

    It takes train rows, settings, seeds, progress and the folder from which a killed training resumes. Raises
    InputError for data that cannot be learned from.
    """
    to_parts: Callable[[Any], dict[str, Tensor]]
    """A function that returns the tensors of agents."""
    from_parts: Callable[[Any, Mapping[str, Tensor]], TrainedAgents]
    """A function that returns the agents of a header and tensors.

    Raises UnusableError if they do not fit each other.
    """
    driver: Callable[[Any], Driver]
    """The class that runs such agents one query at a time."""


@dataclass(frozen=True)
class TrainedMethod:
    """What the entry of a method with checkpoints does not say."""

    configure: Callable[[int], Any]
    """The function that returns the method's settings for a number of train rows."""
    variant: str
    """The place of the method's `Variant`, as `module:name`; it is imported late because it needs torch."""
    routes_graded: bool = True
    """Whether RoutedAgents, which ask one model, are trained where answers are only graded."""
    space: Mapping[str, Space] = field(default_factory=dict)
    """The settings that `--tune` searches, with their ranges."""


METHODS_BY_NAME: dict[str, TrainedMethod] = {}
"""The trained methods by name, from the modules `config` of their folders."""


def find_trained_method(method: str) -> TrainedMethod:
    """The trained method of that name. Raises InputError if no trained method has it."""
    load_trained_methods()
    if method not in METHODS_BY_NAME:
        raise unknown_name("method", method, METHODS_BY_NAME, "RL-Focal")
    return METHODS_BY_NAME[method]

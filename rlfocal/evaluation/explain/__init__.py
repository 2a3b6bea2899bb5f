"""Explains what trained agents learned: which models they ask, believe and could drop, on test rows.

What an explanation says is plain values for a terminal, a page and a file. Shares are fractions.
No torch: the report reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rlfocal.base.atomic import write_file
from rlfocal.base.names import TRAINED
from rlfocal.statistics.intervals import Interval
from warehouse import Warehouse

EXPLAINED = TRAINED
"""The methods with agents to explain."""

MARGIN = 0.01
"""A model can be dropped at no loss if the lower ends of both intervals, for accuracy and for the log score
in nats, are above minus this."""


@dataclass(frozen=True)
class Belief:
    """How much Fusion believes one model, on documents where the models asked disagree."""

    documents: int
    """Documents where the model answered, and another model asked gave a different answer."""
    followed: float
    """How often Fusion gives the model's answer."""
    votes: float
    """The mean share of the models asked that give its answer: how often a random vote would."""
    pull: float | None
    """How much its outputs raise the logit of Fusion's answer above the other slots', in nats, the mean over
    all documents where it was asked; None if logits are not a sum over models."""

    @property
    def surplus(self) -> float:
        """How many more of Fusion's answers are the model's than its votes explain."""
        return self.documents * (self.followed - self.votes)


@dataclass(frozen=True)
class Loss:
    """What the same frozen agents gain (+) or lose (−) if one model is unavailable."""

    accuracy: Interval
    """Accuracy without it minus accuracy with it, with the 95 % interval over documents."""
    log_score: Interval
    """The same for ln(probability of the right answer)."""

    @property
    def is_none(self) -> bool:
        """Whether both intervals lie above minus `MARGIN`."""
        return min(self.accuracy.low, self.log_score.low) > -MARGIN


@dataclass(frozen=True)
class OfModel:
    """How the agents use one model of the pool."""

    model: str
    train_accuracy: float
    accuracy: float
    """The accuracy of the model alone, on the test documents."""
    asked: float
    """Share of documents on which it is asked."""
    by_round: tuple[float, ...]
    """Share of documents on which it is asked in each round of calls; their sum is `asked`."""
    alone_right: float | None
    """Of the documents where it and others are asked: how often only it is right. None if there are no such
    documents."""
    twin: str
    """The other model whose errors are most like its own."""
    twin_share: float
    """Of the documents where either of the two is wrong: how often both give the same answer."""
    twin_errors: int
    """The number of these documents."""
    belief: Belief | None
    """None if it is never asked."""
    loss: Loss


@dataclass(frozen=True)
class Stop:
    """The documents on which the same number of models was asked."""

    size: int
    documents: int
    accuracy: float


@dataclass(frozen=True)
class Pools:
    """Which sets of models were asked."""

    distinct: int
    commonest: tuple[str, ...]
    share: float
    """The share of documents answered by the commonest set."""


@dataclass(frozen=True)
class OfTask:
    """How the agents treat one task."""

    task: str
    documents: int
    accuracy: float
    mean_pool_size: float
    beliefs: tuple[tuple[str, Belief], ...]
    """(model, belief) of those asked there, the most believed first: by the sum of pulls over documents if
    there are pulls, else by `surplus`."""


@dataclass(frozen=True)
class Said:
    """One answer to a document, and who gave it."""

    answer: str
    is_right: bool
    asked: tuple[str, ...]
    others: tuple[str, ...]
    """Models that would have given it, but were not asked."""


@dataclass(frozen=True)
class Example:
    """A document on which the agents are right and most models are wrong."""

    task: str
    doc_id: int
    question: str
    """Shortened; empty where the warehouse has no text, or a confidential one."""
    right: str
    probability: float
    """Fusion's probability of its answer."""
    said: tuple[Said, ...]
    """The right answer first, then by how many gave it; empty for models without an answer."""


@dataclass(frozen=True)
class Explanation:
    """What one seed's frozen agents do on the test rows of a split."""

    benchmark: str
    method: str
    per: str
    split: str
    seed: int
    data: str
    """The fingerprint of the rows."""
    n: int
    """Test documents."""
    n_train: int
    accuracy: float
    mean_pool_size: float
    best_single: str
    """The model with the best train accuracy."""
    models: tuple[OfModel, ...]
    """The models asked most often first; ties by earlier rounds."""
    stops: tuple[Stop, ...]
    """By increasing size."""
    pools: Pools
    own: int
    """Documents to which Fusion gives an answer that no model asked gave: from the question, or from what
    the models say about other choices."""
    own_accuracy: float
    """Accuracy on these documents; 0 without any."""
    tasks: tuple[OfTask, ...]
    """By name."""
    against: int
    """Documents on which the agents are right and most models are wrong."""
    despite: int
    """Documents on which the agents are wrong and most models are right."""
    examples: tuple[Example, ...]
    """Some of the former."""

    @property
    def asked(self) -> tuple[OfModel, ...]:
        """The models that are asked at all."""
        return tuple(one for one in self.models if one.asked > 0)

    @property
    def never_asked(self) -> tuple[str, ...]:
        return tuple(one.model for one in self.models if one.asked == 0)


def explanation_file(warehouse: Warehouse, run_id: str) -> Path:
    """The file of the explanation of a run: its id changes with everything that the agents' decisions depend
    on."""
    return warehouse.location.explanations / f"{run_id}.json"


def save(found: Explanation, path: Path) -> None:
    """The file appears whole or not at all."""
    write_file(path, _stored().dump_json(found, indent=1).decode())


def load(path: Path) -> Explanation | None:
    """The inverse of `save`; None for a file that is missing, or holds something else."""
    try:
        return _stored().validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


@cache
def _stored() -> TypeAdapter[Explanation]:
    return TypeAdapter(Explanation)  # takes as long as a hundred explanations

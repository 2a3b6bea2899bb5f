"""What trained agents do on test rows: whom they ask and believe, what each model is worth, where they stop.

Plain values for a terminal, a page and a file; shares are fractions. No torch: the report reads them.
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
    """How much Fusion believes one model."""

    asked: int
    """Documents where the model is asked."""
    disputed: int
    """Those where it answered, and another model asked gave a different answer."""
    followed: float
    """Of disputed documents, how often Fusion gives the model's answer; 0 without any."""
    votes: float
    """The mean share of the models asked that give its answer there: how often a random vote would."""
    pull: float | None
    """How much its outputs raise the logit of Fusion's answer above the other slots', in nats, the mean over
    all documents where it was asked; None if logits are not a sum over models."""

    @property
    def weight(self) -> float:
        """The sum of pulls; without pulls, how many more of Fusion's answers are its than votes explain."""
        return self.disputed * (self.followed - self.votes) if self.pull is None else self.asked * self.pull


@dataclass(frozen=True)
class OfModel:
    """How the agents use one model of the pool, and how they do without it."""

    model: str
    train_accuracy: float
    accuracy: float
    """The accuracy of the model alone, on the test documents."""
    asked: float
    """Share of documents on which it is asked."""
    mean_round: float
    """The mean round of calls, from 1, in which it is asked; 0 if it never is."""
    belief: Belief | None
    """None if it is never asked."""
    accuracy_without: Interval
    """What the same frozen agents gain (+) or lose (−) if it is unavailable, with the 95 % interval."""
    log_score_without: Interval
    """The same for ln(probability of the right answer)."""

    @property
    def is_free(self) -> bool:
        """Whether both intervals lie above minus `MARGIN`."""
        return min(self.accuracy_without.low, self.log_score_without.low) > -MARGIN


@dataclass(frozen=True)
class Group:
    """The documents of one task, or those on which the same number of models was asked."""

    name: str
    documents: int
    accuracy: float
    mean_pool_size: float
    beliefs: tuple[tuple[str, Belief], ...]
    """(model, belief) of those asked there, the most believed first."""


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
    n_train: int
    n: int
    """Test documents."""
    accuracy: float
    mean_pool_size: float
    models: tuple[OfModel, ...]
    """The models asked most often first; ties by earlier rounds."""
    tasks: tuple[Group, ...]
    """By name."""
    stops: tuple[Group, ...]
    """By rising number of models asked."""


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

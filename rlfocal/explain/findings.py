"""What an explanation says: plain values that a terminal, a page and a file show. Shares are fractions."""

from __future__ import annotations

from dataclasses import dataclass

from rlfocal.merit.intervals import Interval

MARGIN = 0.01
"""A model can be dropped at no loss where both lower ends, of accuracy and of the log-score in nats, lie
above minus this."""


@dataclass(frozen=True)
class Belief:
    """How far Fusion goes by one model, on documents where those who were asked disagree."""

    documents: int
    """Where the model answered, and another one asked answered something else."""
    followed: float
    """How often Fusion's answer is the model's."""
    votes: float
    """The mean share of those asked that say what the model says: how often a draw from the votes is."""
    pull: float | None
    """What its outputs add to the logit of Fusion's answer above the other slots', in nats, the mean over
    all documents where it was asked; None where logits are no sum over models."""

    @property
    def surplus(self) -> float:
        """How many answers of Fusion are the model's beyond its votes."""
        return self.documents * (self.followed - self.votes)


@dataclass(frozen=True)
class Loss:
    """What the same frozen agents gain (+) or lose (−) where one model is not to be had."""

    accuracy: Interval
    """Difference without it less with it, with its 95 % interval over documents."""
    log_score: Interval
    """The same of ln(probability of the right answer)."""

    @property
    def is_none(self) -> bool:
        """Whether both intervals lie above minus `MARGIN`."""
        return min(self.accuracy.low, self.log_score.low) > -MARGIN


@dataclass(frozen=True)
class OfModel:
    """One model of the pool in the agents' hands."""

    model: str
    train_accuracy: float
    accuracy: float
    """Alone, on the test documents."""
    asked: float
    """Share of documents on which it is asked."""
    by_round: tuple[float, ...]
    """Share of documents on which it is asked in each round of calls; their sum is `asked`."""
    alone_right: float | None
    """Of the documents where it and others are asked: how often it is right and none of them is. None where
    there are no such documents."""
    twin: str
    """The other model that errs most like it."""
    twin_share: float
    """Of the documents where either of the two is wrong: how often both say the same."""
    twin_errors: int
    """How many documents these are."""
    belief: Belief | None
    """None where it is never asked."""
    loss: Loss


@dataclass(frozen=True)
class Stop:
    """The documents on which as many models were asked."""

    size: int
    documents: int
    accuracy: float


@dataclass(frozen=True)
class Pools:
    """Which sets of models were asked."""

    distinct: int
    commonest: tuple[str, ...]
    share: float
    """Of the documents, that were answered by the commonest."""


@dataclass(frozen=True)
class OfTask:
    """One task in the agents' hands."""

    task: str
    documents: int
    accuracy: float
    mean_pool_size: float
    beliefs: tuple[tuple[str, Belief], ...]
    """(model, belief) of those asked there, the most believed first: by the sum of pulls over documents where
    there is such a thing, else by `surplus`."""


@dataclass(frozen=True)
class Said:
    """One answer to a document, and who gave it."""

    answer: str
    is_right: bool
    asked: tuple[str, ...]
    others: tuple[str, ...]
    """Who would have said so, but was not asked."""


@dataclass(frozen=True)
class Example:
    """A document on which the agents are right and most models are wrong."""

    task: str
    doc_id: int
    question: str
    """Shortened; empty where the warehouse has no text, or a confidential one."""
    right: str
    probability: float
    """How likely Fusion held its answer to be."""
    said: tuple[Said, ...]
    """The right answer first, then by how many gave it; an answer of nobody is empty."""


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
    """Those asked most often first; among equals those of earlier rounds."""
    stops: tuple[Stop, ...]
    """By rising size."""
    pools: Pools
    own: int
    """Documents to which Fusion answers what none of those asked says: by the question, or by what their
    other choices tell."""
    own_accuracy: float
    """On these; 0 without any."""
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

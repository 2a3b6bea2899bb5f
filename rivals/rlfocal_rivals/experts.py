"""Online learners from all models' answers: weighted votes that fall with errors, and the recent leader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.stream import Stream
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.methods.routing import ask
from rlfocal.statistics.votes import soft_vote

RATES = (0.01, 0.03, 0.1, 0.3, 1.0)


@register(
    Entry(
        "hedge",
        "all",
        "the plurality, each vote counting its model's weight, which falls with every wrong answer",
        protocols=("online",),
        reads=("outputs",),
        fewest_models=2,
        is_default=False,
        source="Freund and Schapire 1997; fixed share: Herbster and Warmuth 1998",
        differs="starts with the weights that a pass over train leaves; the rate is the one whose votes are "
        "right most often there (`rate`); a little weight is shared out evenly, to follow a stream that "
        "changes (`share=0`: none)",
    )
)
@checked
class Hedge(MethodBase):
    """w_m <- w_m exp(-η [m was wrong]), normalised, then w_m <- (1 - α) w_m + α / N."""

    rate: NonNegativeFloat = 0.0
    """η; 0: the one of `RATES` whose votes are right most often in a pass over train. Ties: the smallest."""
    share: Annotated[float, Field(ge=0, lt=1), Range(1e-4, 0.3, log=True)] = 0.01
    """α, the assumed probability that the best model changes; 0: Freund and Schapire's Hedge."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Hedger]:
        passes = {
            rate: weights_along(~train.correct, rate, self.share)
            for rate in ([self.rate] if self.rate else RATES)
        }
        n_right = {
            rate: int((vote(train, each[:-1]) == train.labels)[train.labels >= 0].sum())
            for rate, each in passes.items()
        }
        best = max(passes, key=lambda rate: n_right[rate])
        return [Hedger(passes[best][-1], best, self.share)]


@dataclass(frozen=True)
class Hedger:
    """Answers the weighted plurality. Ties as in a soft vote."""

    log_weights: Floats
    """(N,) ln w after train"""
    rate: float
    share: float

    def decide(self, calls: Calls) -> Answered:
        """Without labels: uses the weights after train."""
        return Answered(vote(calls.call_all(), self.log_weights))

    def decide_along(self, stream: Stream) -> None:
        """Each label shows which models were right, as all are asked."""
        log_weights = self.log_weights
        for turn in stream:
            turn.answer(int(vote(turn.calls.call_all(), log_weights)[0]))
            log_weights = reweigh(log_weights, ~turn.right, self.rate, self.share)


def reweigh(log_weights: Floats, wrong: Bools, rate: float, share: float) -> Floats:
    """(N,) ln w, normalised, once it is known which models were wrong (N,)."""
    # In logarithms: a weight that underflowed to 0 could never rise again.
    left = log_weights - rate * wrong
    left = left - float(np.logaddexp.reduce(left))
    if not share:
        return left
    return np.asarray(np.logaddexp(left + np.log1p(-share), np.log(share / len(left))))


def weights_along(wrong: Bools, rate: float, share: float) -> Floats:
    """(T + 1, N) ln w before each of T documents and after the last, from which models were wrong (T, N).
    Starts uniform."""
    every = [np.full(wrong.shape[1], -np.log(wrong.shape[1]))]
    for row in wrong:
        every.append(reweigh(every[-1], row, rate, share))
    return np.stack(every)


def vote(said: Dataset, log_weights: Floats) -> Ints:
    """(T,) the weighted plurality of all models, by weights (T, N) or (N,)."""
    votes = said.predictions[:, :, None] == np.arange(said.probs.shape[2])
    # Rounded, or the float error of a weight would break a tie.
    weights = np.exp(log_weights).round(12)
    everyone = np.ones(said.predictions.shape[1], dtype=np.bool_)
    return soft_vote(votes * weights[..., None], everyone, said.kind)


@register(
    Entry(
        "sliding_best",
        "the model that was right most often on the last 200 labels; then the others, to know who was right",
        "what the first answers",
        protocols=("online",),
        fewest_models=2,
        is_default=False,
        source="follow the leader (Hannan 1957; Cesa-Bianchi and Lugosi 2006), over a sliding window",
        differs="the window starts with the last train documents; every model is called for every document, "
        "and counted",
    )
)
@checked
class SlidingBest(MethodBase):
    """Asks the model that was right most often on the last labels."""

    window: Annotated[PositiveInt, Range(20, 2000, log=True)] = 200
    """Number of labels in the window."""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Follower]:
        return [Follower(train.correct[-self.window :], self.window)]


@dataclass(frozen=True)
class Follower:
    """Answers with the leader of the window. Ties: the alphabetically first."""

    before: Bools
    """(W, N) which models were right on the last W train documents; W is at most the window"""
    window: int

    def decide(self, calls: Calls) -> Answered:
        """Without labels: always the leader at the end of train."""
        return ask(calls, np.full(len(calls), self.before.sum(axis=0).argmax()))

    def decide_along(self, stream: Stream) -> None:
        """After each answer the others are called too: a label shows only which of the called were right."""
        last = list(self.before)
        n_right = self.before.sum(axis=0)
        for turn in stream:
            turn.answer(int(ask(turn.calls, n_right[None].argmax(axis=1)).slots[0]))
            turn.calls.call_all()
            last.append(turn.right)
            n_right = n_right + last[-1]
            if len(last) > self.window:
                n_right = n_right - last.pop(0)

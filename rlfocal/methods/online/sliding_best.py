"""Follow the leader over a sliding window: the model most often right on the last labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import PositiveInt

from rlfocal.base.arrays import Bools
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.stream import Stream
from rlfocal.methods._routing import ask
from rlfocal.methods.checking import Range, checked
from rlfocal.methods.registry import Entry, MethodBase, register


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
        space={"window": Range(20, 2000, log=True)},
    )
)
@checked
class SlidingBest(MethodBase):
    """Asks the model that was right most often on the last labels."""

    window: PositiveInt = 200
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

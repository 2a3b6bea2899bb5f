"""The warehouse's rows as tensors of one shape everywhere: documents × models × choices (T × N × C)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["choices", "answers"]


@dataclass(frozen=True)
class Dataset:
    """What N models answered to T documents of one benchmark, in task and doc_id order.

    For choices, slot c is choice c. For answers, the slots of a document are the distinct answers its models gave,
    ordered by total probability (ties: the answer that the alphabetically first model gave).
    """

    benchmark: str
    kind: Kind
    models: tuple[str, ...]
    """N names, in alphabetical order."""
    prices: NDArray[np.float64]
    """(N,) cents per 1,000 queries."""
    tasks: NDArray[np.str_]
    """(T,) task of each document."""
    doc_ids: NDArray[np.int64]
    """(T,) row in the task's own order."""
    probs: NDArray[np.float64]
    """(T, N, C) softmax over a document's choices, or the share of passes; 0 where there is no such slot."""
    logprobs: NDArray[np.float64]
    """(T, N, C) log-softmax over a document's choices (choices only; empty for answers); -inf where no slot is."""
    n_choices: NDArray[np.int64]
    """(T,) how many of the C slots exist."""
    predictions: NDArray[np.int64]
    """(T, N) the slot each model predicts; -1 without an answer."""
    labels: NDArray[np.int64]
    """(T,) the right slot; -1 where no slot is right (nobody gave the gold answer)."""
    is_train: NDArray[np.bool_]
    """(T,) whether the document belongs to the train split."""
    slots: tuple[tuple[str, ...], ...]
    """Per document, the answers its slots stand for (answers only; else empty)."""
    snapshot: int
    """The warehouse snapshot that was read."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """(T, N) whether each model is right."""
        return (self.predictions == self.labels[:, None]) & (self.labels[:, None] >= 0)

    def rows(self, keep: NDArray[np.bool_]) -> Dataset:
        """The documents where `keep` (T,) is true."""
        at = np.flatnonzero(keep)
        per_row = ("tasks", "doc_ids", "probs", "logprobs", "n_choices", "predictions", "labels", "is_train")
        fields = {name: getattr(self, name)[at] for name in per_row if len(getattr(self, name))}
        slots = tuple(self.slots[i] for i in at) if self.slots else ()
        return replace(self, **fields, slots=slots)

    @property
    def train(self) -> Dataset:
        return self.rows(self.is_train)

    @property
    def test(self) -> Dataset:
        return self.rows(~self.is_train)

    def by_task(self) -> Iterator[tuple[str, Dataset]]:
        """(task, its documents), in order of first appearance."""
        for task in dict.fromkeys(self.tasks.tolist()):
            yield task, self.rows(self.tasks == task)

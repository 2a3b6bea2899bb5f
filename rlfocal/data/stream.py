"""Documents one at a time: outputs on request as in `Calls`, each label after its document's answer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlfocal.base.arrays import Bools, Ints
from rlfocal.data.calls import Calls
from rlfocal.data.dataset import Dataset, Kind


class Turn:
    """One document of a stream, until the next one comes."""

    def __init__(self, document: Dataset) -> None:
        self.calls = Calls(document)
        """Calls on this document alone. Those after the answer are counted, but add no delay."""
        self._labels = document.labels
        self._rounds_to_answer = 0
        self._answered: int | None = None
        self._is_over = False

    def answer(self, slot: int) -> None:
        """Answers with a slot as `calls` numbers it, -1 for no answer.

        Raises RuntimeError if the document was already answered, or the next one has come.
        """
        if self._is_over or self._answered is not None:
            raise RuntimeError(f"{self._name} is {'over' if self._is_over else 'answered already'}")
        self._answered = int(self.calls.stored_slots(np.array([slot], dtype=np.int64))[0])
        self._rounds_to_answer = int(self.calls.rounds.max(initial=0))

    @property
    def label(self) -> int:
        """The right slot as `calls` numbers it; -1 where none of the called models gave it.

        Raises RuntimeError before the document was answered.
        """
        if self._answered is None:
            raise RuntimeError(f"{self._name} has no answer yet, and its label is revealed after it")
        return int(self.calls.own_slots(self._labels)[0])

    @property
    def right(self) -> Bools:
        """(N,) which of the called models were right. Raises RuntimeError as `label` does."""
        label = self.label
        is_right: Bools = (self.calls.outputs().predictions[0] == label) & (label >= 0)
        return is_right

    @property
    def _name(self) -> str:
        return f"document {self.calls.doc_ids[0]} of {str(self.calls.tasks[0])!r}"

    def close(self) -> tuple[int, Ints]:
        """The dataset's slot that was answered, -1 without an answer, and (N,) the rounds of calls."""
        self._is_over = True
        rounds = self.calls.rounds[0]
        waited = max(self._rounds_to_answer, 1) if self._answered is not None else rounds.max(initial=0)
        return (-1 if self._answered is None else self._answered), np.minimum(rounds, waited)


class Stream:
    """T documents in order, for a single pass.

    Nothing is known about coming documents, not even the question. A document that gets no answer in its
    turn stays without one.
    """

    def __init__(self, documents: Dataset) -> None:
        self.benchmark: str = documents.benchmark
        self.kind: Kind = documents.kind
        self.models = documents.models
        self.prices = documents.prices
        self.answers = np.full(len(documents), -1, dtype=np.int64)
        """(T,) the dataset's slots that were answered so far"""
        self.rounds = np.zeros((len(documents), len(documents.models)), dtype=np.int64)
        """(T, N) in which round of calls, from 1, a model was called; 0 where it was not"""
        self._documents = documents
        self._has_begun = False

    def __len__(self) -> int:
        return len(self._documents)

    def __iter__(self) -> Iterator[Turn]:
        """Each document's turn. Raises RuntimeError the second time, when its labels are already revealed."""
        if self._has_begun:
            raise RuntimeError("a Stream can be iterated only once: its labels are already revealed")
        self._has_begun = True
        for row in range(len(self)):
            turn = Turn(self._documents.take(np.array([row])))
            try:
                yield turn
            finally:
                self.answers[row], self.rounds[row] = turn.close()

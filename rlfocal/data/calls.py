"""Outputs on request: a policy sees only the outputs of models it called, and every call is counted.

A `Stream` yields documents one by one, and reveals a document's label after its answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.dataset import Dataset, Kind


class Answers(NamedTuple):
    """A policy's answers to T documents."""

    slots: Ints
    """(T,) the answered slot, numbered as `Calls` does; -1 for no answer."""
    probability: Floats | None = None
    """(T,) the policy's probability that its answer is right; None if the policy estimates none."""


class Calls:
    """T documents to decide on; a model's outputs are hidden until that model is called.

    A call of a model that is `down` returns nothing, costs nothing and does not count as a round.

    The fields hold what is public: questions, choices, tasks and prices. Slots of free answers are numbered
    in the order in which calls reveal them. New answers of one call are ordered by their total probability
    among its models. Ties go to the answer of the alphabetically first model, to its vote before its other
    answers, and then by text. So the number of a slot reveals nothing about models that were not called. If
    all models are called at once, the numbers are the dataset's own.
    """

    def __init__(self, documents: Dataset, down: Bools | None = None) -> None:
        self.benchmark: str = documents.benchmark
        self.kind: Kind = documents.kind
        self.models = documents.models
        self.prices = documents.prices
        self.tasks = documents.tasks
        self.doc_ids = documents.doc_ids
        self.questions = documents.questions
        self.choices = documents.choices
        self.rounds = np.zeros(documents.predictions.shape, dtype=np.int64)
        """(T, N) the round of calls, from 1, in which a model was called; 0 where it was not."""
        self.down: Bools = np.zeros(len(self.models), dtype=np.bool_) if down is None else down
        """(N,) models that are known to fail."""
        self.failed = np.zeros(len(documents), dtype=np.bool_)
        """(T,) whether a call failed."""
        self._documents = documents.hide_labels()
        self._places: Ints | None = None
        if self.kind == "answers":
            self._places = np.full((len(documents), documents.probs.shape[2]), -1, dtype=np.int64)
            """(T, C) this object's number of each of the dataset's slots; -1: no call has revealed it yet."""

    def __len__(self) -> int:
        return len(self._documents)

    @property
    def n_choices(self) -> Ints:
        """(T,) how many slots exist: all choices of a document, or the answers that calls have revealed."""
        if self._places is None:
            return self._documents.n_choices
        counts: Ints = (self._places >= 0).sum(axis=1)
        return counts

    @property
    def called(self) -> Bools:
        """(T, N) which models were called on each document"""
        return self.rounds > 0

    def select_documents(self, rows: Ints) -> Calls:
        """New `Calls` for the documents at these positions, without any call; `adopt` merges it back."""
        return Calls(self._documents.take(rows), self.down)

    def adopt(self, part: Calls, rows: Ints) -> None:
        """Takes over the calls that `part` made for the documents `rows`, and its numbers of their slots."""
        self.rounds[rows], self.failed[rows] = part.rounds, part.failed
        if self._places is not None:
            assert part._places is not None
            self._places[rows] = part._places

    def call(self, models: Bools) -> Dataset:
        """Calls these models, (T, N), or (N,) for all documents; returns the outputs of all called so far.

        Models that were not called have probability 0, log-prob 0 and prediction -1. A repeated call of a
        model counts once.
        """
        asked = np.broadcast_to(models, self.rounds.shape)
        self.failed |= (asked & self.down).any(axis=1)
        new = asked & ~self.called & ~self.down
        self.rounds[new] = np.broadcast_to(self.rounds.max(axis=1, initial=0)[:, None] + 1, new.shape)[new]
        if self._places is not None:
            self._number_slots(new)
        return self.outputs()

    def call_all(self) -> Dataset:
        """Calls every model on every document, and returns the outputs."""
        return self.call(np.ones(len(self.models), dtype=np.bool_))

    def outputs(self) -> Dataset:
        """The outputs of the models called so far; those of other models are hidden."""
        given, called = self._documents, self.called
        if called.all() and (self._places is None or self._is_as_stored()):
            return given
        probs = np.where(called[:, :, None], given.probs, 0.0)
        predictions = np.where(called, given.predictions, -1)
        if self._places is None:
            logprobs = np.where(called[:, :, None], given.logprobs, 0.0)
            return replace(given, probs=probs, logprobs=logprobs, predictions=predictions)
        order = self._order()
        own_slots = np.take_along_axis(self._places, np.maximum(predictions, 0), axis=1)
        return replace(
            given,
            probs=np.take_along_axis(probs, order[:, None], axis=2),
            predictions=np.where(predictions >= 0, own_slots, -1),
            n_choices=self.n_choices,
            slots=tuple(
                tuple(given.slots[row][slot] for slot in order[row, :n])
                for row, n in enumerate(self.n_choices.tolist())
            )
            if given.slots
            else (),
        )

    def stored_slots(self, slots: Ints) -> Ints:
        """(T,) the dataset's numbers of slots (T,), which have this object's numbers; -1 if unknown."""
        if self._places is None:
            return slots
        own = np.take_along_axis(self._order(), np.maximum(slots, 0)[:, None], axis=1)[:, 0]
        is_known = (slots >= 0) & (slots < self.n_choices)
        return np.where(is_known, own, -1)

    def own_slots(self, slots: Ints) -> Ints:
        """(T,) this object's numbers of the dataset's slots; -1 for a slot that no call has revealed."""
        if self._places is None:
            return slots
        own = np.take_along_axis(self._places, np.maximum(slots, 0)[:, None], axis=1)[:, 0]
        return np.where(slots >= 0, own, -1)

    def _order(self) -> Ints:
        """(T, C) the dataset's slots, sorted by this object's numbers; slots without a number come last."""
        assert self._places is not None
        last = np.where(self._places >= 0, self._places, self._places.shape[1])
        return np.argsort(last, axis=1, kind="stable")

    def _is_as_stored(self) -> bool:
        order = self._order()
        return bool((order == np.arange(order.shape[1])).all())

    def _number_slots(self, new: Bools) -> None:
        assert self._places is not None
        given = np.where(new[:, :, None], self._documents.probs, 0.0)
        is_new = (given > 0).any(axis=1) & (self._places < 0)
        if not is_new.any():
            return
        # Shares such as 0.1 are inexact in binary, and a tie must not hang on the order of a sum.
        total = given.sum(axis=1).round(9)
        first = (given > 0).argmax(axis=1)
        votes = np.take_along_axis(self._documents.predictions, first, axis=1)
        is_other = votes != np.arange(votes.shape[1])
        order = np.lexsort((self._documents.text_ranks, is_other, first, -total, ~is_new), axis=1)
        rank = np.argsort(order, axis=1, kind="stable")
        self._places = np.where(is_new, self.n_choices[:, None] + rank, self._places)


class Turn:
    """One document of a stream, valid until the stream yields the next one."""

    def __init__(self, document: Dataset) -> None:
        self.calls = Calls(document)
        """Calls on this document alone. Those after the answer are counted, but add no delay."""
        self._labels = document.labels
        self._rounds_to_answer = 0
        self._answered: int | None = None
        self._is_over = False

    def answer(self, slot: int) -> None:
        """Answers the document with a slot as `calls` numbers it; -1 for no answer.

        Raises RuntimeError if the document was already answered, or the stream has yielded the next one.
        """
        if self._is_over or self._answered is not None:
            fault = "is over: the next one has come" if self._is_over else "is answered already"
            raise RuntimeError(f"the turn of {self._name} {fault}")
        self._answered = int(self.calls.stored_slots(np.array([slot], dtype=np.int64))[0])
        self._rounds_to_answer = int(self.calls.rounds.max(initial=0))

    @property
    def label(self) -> int:
        """The right slot, numbered as `calls` does; -1 for a free answer that no called model gave.

        Raises RuntimeError before the document was answered.
        """
        if self._answered is None:
            raise RuntimeError(f"{self._name} has no answer yet, and its label is revealed after the answer")
        return int(self.calls.own_slots(self._labels)[0])

    @property
    def right(self) -> Bools:
        """(N,) which called models were right. Raises RuntimeError before the document was answered."""
        label = self.label
        is_right: Bools = (self.calls.outputs().predictions[0] == label) & (label >= 0)
        return is_right

    @property
    def _name(self) -> str:
        return f"document {self.calls.doc_ids[0]} of task {str(self.calls.tasks[0])!r}"

    def close(self) -> tuple[int, Ints]:
        """Ends the turn; the answered slot in the dataset's numbers, or -1, and the rounds of calls (N,)."""
        self._is_over = True
        rounds = self.calls.rounds[0]
        waited = max(self._rounds_to_answer, 1) if self._answered is not None else rounds.max(initial=0)
        return (-1 if self._answered is None else self._answered), np.minimum(rounds, waited)


class Stream:
    """T documents in order, for a single pass.

    A policy sees nothing of later documents, not even the question. A document that gets no answer in its
    turn stays without one.
    """

    def __init__(self, documents: Dataset) -> None:
        self.benchmark: str = documents.benchmark
        self.kind: Kind = documents.kind
        self.models = documents.models
        self.prices = documents.prices
        self.answers = np.full(len(documents), -1, dtype=np.int64)
        """(T,) the answered slots, numbered as in the dataset; -1 where there is no answer yet"""
        self.rounds = np.zeros((len(documents), len(documents.models)), dtype=np.int64)
        """(T, N) the round of calls, from 1, in which a model was called; 0 where it was not."""
        self._documents = documents
        self._has_begun = False

    def __len__(self) -> int:
        return len(self._documents)

    def __iter__(self) -> Iterator[Turn]:
        """Yields each document's turn.

        Raises RuntimeError the second time, because labels are already revealed.
        """
        if self._has_begun:
            raise RuntimeError("a Stream can be iterated only once: its labels are already revealed")
        self._has_begun = True
        for row in range(len(self)):
            turn = Turn(self._documents.take(np.array([row])))
            try:
                yield turn
            finally:
                self.answers[row], self.rounds[row] = turn.close()

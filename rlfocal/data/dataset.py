"""A benchmark's stored answers as arrays, whose axes are documents × models × choices (T × N × C)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from itertools import chain
from typing import Literal

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints, Texts

Kind = Literal["choices", "answers"]
_ROW_FIELDS = (
    "tasks", "doc_ids", "probs", "logprobs", "n_choices", "predictions", "labels", "is_train", "token_costs",
)  # fmt: skip

TIE_RULE = b"vote, then text"
"""The rule by which `Calls` numbers answers that one model gave equally often."""
_MIN_FAILED_DOCUMENTS = 2
"""The fewest documents with a wrong model that show whether all wrong answers are the same text.

On fewer, they may be the same by chance.
"""

HIDDEN_TASK = "all"
"""The task of every document where the tasks' names are hidden."""


@dataclass(frozen=True)
class Dataset:
    """The answers of N models to T documents of one benchmark, in task and doc_id order.

    For choices, slot c is choice c. For answers, the slots of a document are the distinct answers its models
    gave, ordered by total probability (ties: the answer that the alphabetically first model gave).
    """

    benchmark: str
    kind: Kind
    models: tuple[str, ...]
    """N names, in alphabetical order."""
    prices: Floats
    """(N,) cents per 1,000 queries: the flat price, else the mean cost by tokens of train documents; NaN
    where neither is known."""
    tasks: Texts
    """(T,) task of each document."""
    doc_ids: Ints
    """(T,) each document's number within its task."""
    probs: Floats
    """(T, N, C) softmax over a document's choices, or an answer's share of samples; 0 where the slot does not
    exist."""
    logprobs: Floats
    """(T, N, C) log-softmax over a document's choices, -inf where the slot does not exist; (0, N, C) for free
    answers."""
    n_choices: Ints
    """(T,) how many of the C slots exist."""
    predictions: Ints
    """(T, N) the slot that each model predicts; -1 without an answer."""
    labels: Ints
    """(T,) the right slot; -1 where no slot is right (no model gave the gold answer)."""
    is_train: Bools
    """(T,) whether the document belongs to the train split."""
    slots: tuple[tuple[str, ...], ...]
    """(T,) for each document, the answers that its slots stand for; empty for choices."""
    snapshot: int
    """The number of the warehouse snapshot that was read."""
    questions: tuple[str, ...] = ()
    """(T,) the texts of the questions; empty where the warehouse has none."""
    choices: tuple[tuple[str, ...], ...] = ()
    """(T,) the texts of each document's choices; empty where the warehouse has none."""
    token_costs: Floats = field(default_factory=lambda: np.empty((0, 0)))
    """(T, N) the cost of 1,000 queries with each document's tokens, in cents; NaN where unknown.

    The shape is (0, 0) if no token has a price.
    """
    first_names: tuple[str, ...] = ()
    """(N,) each model's name before it was ever renamed; empty: the current names."""
    sampled: tuple[str, ...] = ()
    """Models whose probabilities of choices are shares of sampled letters, and often 0, without a log."""
    left_out: tuple[tuple[str, str], ...] = ()
    """(model, reason) of models that are not in the dataset, because they did not answer every document."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def costs(self) -> Floats:
        """(T, N) cents per 1,000 queries as long as each document; NaN where unknown.

        A cost is the token cost if that is known, else the model's flat price.
        """
        flat = np.broadcast_to(self.prices, self.predictions.shape)
        return np.where(np.isnan(self.token_costs), flat, self.token_costs) if self.token_costs.size else flat

    @property
    def mean_costs(self) -> Floats:
        """(N,) the mean cost of a query of each model, in cents per 1,000 queries."""
        return self.costs.mean(axis=0) if self.token_costs.size and len(self) else self.prices

    @property
    def has_logprobs(self) -> bool:
        """Whether the scores can be log-probs, whose softmax is a distribution.

        They cannot if each model's scores of a document always lie within 1 of each other, as min-max scaled
        scores do.
        """
        exists = np.isfinite(self.logprobs)
        spread = self.logprobs.max(axis=2, initial=-np.inf, where=exists) - self.logprobs.min(
            axis=2, initial=np.inf, where=exists
        )
        return bool((spread > 1 + 1e-6).any())

    @property
    def is_only_graded(self) -> bool:
        """Whether free answers are mere grades: all wrong answers are one text, which is never right.

        Such answers show who is right, which nobody can know before the label.
        """
        if not self.slots:
            return False
        rights = {slots[label] for slots, label in zip(self.slots, self.labels, strict=True) if label >= 0}
        wrong = [
            slot for slots, label in zip(self.slots, self.labels, strict=True)
            for place, slot in enumerate(slots) if place != label
        ]  # fmt: skip
        n_failed = int((~self.correct).any(axis=1).sum())
        return n_failed >= _MIN_FAILED_DOCUMENTS and len(set(wrong)) <= 1 and not rights & set(wrong)

    @property
    def correct(self) -> Bools:
        """(T, N) whether each model is right."""
        right: Bools = (self.predictions == self.labels[:, None]) & (self.labels[:, None] >= 0)
        return right

    def is_right(self, slots: Ints) -> Bools:
        """(..., T) whether these slots (..., T) are the right ones."""
        return np.asarray((slots == self.labels) & (self.labels >= 0))

    @property
    def chances(self) -> Floats:
        """(T, N) each model's probability of the right slot, or its share of samples; 0 if no slot is
        right."""
        given = np.take_along_axis(self.probs, np.maximum(self.labels, 0)[:, None, None], axis=2)[:, :, 0]
        return np.where(self.labels[:, None] >= 0, given, 0.0)

    def rank_models(self) -> Ints:
        """(N,) the models' positions by falling accuracy.

        A digest of their answers orders equally accurate models, so that no fit depends on names or places.
        """
        right = self.correct.sum(axis=0).tolist()
        tied = [model for model, n in enumerate(right) if right.count(n) > 1]
        digests = {model: self._digest_answers(model) for model in tied}
        return np.array(sorted(range(len(right)), key=lambda model: (-right[model], digests.get(model, ""))))

    def _digest_answers(self, model: int) -> str:
        digest = sha256()
        if self.slots:  # their numbers depend on the other models
            given = zip(self.slots, self.probs[:, model].tolist(), strict=True)
            texts = [
                sorted((text, p) for text, p in zip(slots, probs, strict=False) if p)
                for slots, probs in given
            ]
            digest.update(repr(texts).encode())
        else:
            digest.update(np.ascontiguousarray(self.probs[:, model]).tobytes())
            digest.update(np.ascontiguousarray(self.predictions[:, model]).tobytes())
        return digest.hexdigest()

    def rows(self, keep: Bools) -> Dataset:
        """The documents where `keep` (T,) is true."""
        return self.take(np.flatnonzero(keep))

    def take(self, rows: Ints) -> Dataset:
        """The documents at these positions, in this order."""
        fields = {name: getattr(self, name)[rows] for name in _ROW_FIELDS if len(getattr(self, name))}
        slots = tuple(self.slots[i] for i in rows) if self.slots else ()
        questions = tuple(self.questions[i] for i in rows) if self.questions else ()
        choices = tuple(self.choices[i] for i in rows) if self.choices else ()
        return replace(self, **fields, slots=slots, questions=questions, choices=choices)

    def reorder(self, order: Ints) -> Dataset:
        """The same dataset with its models in the order of these positions (N,)."""

        def names(values: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(values[at] for at in order) if values else ()

        return replace(
            self,
            models=names(self.models),
            first_names=names(self.first_names),
            prices=self.prices[order],
            probs=self.probs[:, order],
            logprobs=self.logprobs[:, order],
            predictions=self.predictions[:, order],
            token_costs=self.token_costs[:, order] if self.token_costs.size else self.token_costs,
        )

    def drop_answers(self, is_lost: Bools) -> Dataset:
        """The dataset without the answers that `is_lost` marks: (T, N), or (N,) for all documents."""
        is_lost = np.broadcast_to(is_lost, self.predictions.shape)
        logprobs = self.logprobs
        if self.kind == "choices":
            logprobs = np.where(is_lost[:, :, None] & np.isfinite(logprobs), 0.0, logprobs)
        probs = np.where(is_lost[:, :, None], 0.0, self.probs)
        predictions = np.where(is_lost, -1, self.predictions)
        return replace(self, probs=probs, logprobs=logprobs, predictions=predictions)

    def hide_tasks(self) -> Dataset:
        """The documents with one task name for all, for methods that may not read the tasks' names."""
        return replace(self, tasks=np.full(len(self), HIDDEN_TASK))

    def hide_labels(self) -> Dataset:
        """The documents without labels, as a policy sees them when it decides."""
        return replace(self, labels=np.full(len(self), -1, dtype=np.int64))

    @property
    def train(self) -> Dataset:
        return self.rows(self.is_train)

    @property
    def test(self) -> Dataset:
        return self.rows(~self.is_train)

    def split_by_task(self) -> Iterator[tuple[str, Dataset]]:
        """Yields each task and its documents, in the order in which tasks first appear."""
        for task in dict.fromkeys(self.tasks.tolist()):
            yield task, self.rows(self.tasks == task)

    @cached_property
    def text_ranks(self) -> Ints:
        """(T, C) numbers that order the free answers of each document by text; 0 where no slot exists."""
        ranks = np.zeros((len(self), self.probs.shape[2]), dtype=np.int64)
        place = {answer: rank for rank, answer in enumerate(sorted(set(chain.from_iterable(self.slots))))}
        exists = np.arange(ranks.shape[1]) < self.n_choices[:, None]
        if self.slots:
            ranks[exists] = [place[answer] for answer in chain.from_iterable(self.slots)]
        return ranks

    def fingerprint(self) -> str:
        """A hash of all that a method learns from, decides on and is scored by, except prices.

        Renaming a model changes the hash only if the model's place in the alphabet changes, because that
        breaks ties.
        """
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        names = self.first_names or self.models
        digest = sha256(repr((self.benchmark, self.kind, names, self.slots, self.questions)).encode())
        for array in (self.doc_ids, self.probs, self.predictions, self.labels, self.is_train):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update("\n".join(self.tasks.tolist()).encode())
        if self.kind == "answers" and ((self.probs > 0) & (self.probs < 1)).any():
            digest.update(TIE_RULE)  # stored decisions by an earlier rule must not stand for today's
        return digest.hexdigest()


def order_answers(given: Mapping[str, Mapping[int, float]], votes: Mapping[int, str]) -> tuple[str, ...]:
    """A document's free answers in the order of their slots, by falling total of their shares.

    `given`: each answer's share of samples, by the position of the model. `votes`: the answer that each model
    gave most often. Ties go to the answer of the first model, to its vote before its other answers, and then
    by text, as in `Calls` after a call of all these models.
    """

    def place(answer: str) -> tuple[float, int, bool, str]:
        first = min(given[answer])
        return -round(sum(given[answer].values()), 9), first, votes[first] != answer, answer

    return tuple(sorted(given, key=place))

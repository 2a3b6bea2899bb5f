"""The interface between lm-eval's tasks and the engines: what an engine is asked, and what it returns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rlfocal.base.errors import RunError
from rlfocal.base.failures import escape_controls, shorten, without_secrets
from rlfocal.pool.specs import ThinkingSpec
from warehouse.alignment import prompt_hash

_SEED_STRIDE = 2**31
"""The distance between the first seeds that requests are sent with, for two neighbouring seeds of a pool."""


@dataclass(frozen=True)
class Document:
    """One question of one task, with the prompts lm-eval built for it."""

    doc_id: int
    doc_hash: str
    question: str
    label: int | None
    """Index of the right choice, -1 where the gold is none of them; None for answers."""
    gold: str
    """The right choice's text, or the gold answer."""
    choices: tuple[str, ...]
    """The texts of the choices; empty for free answers."""
    context: str
    """The prompt, lm-eval's first argument."""
    continuations: tuple[str, ...]
    """The text of each choice that follows the prompt, with its leading delimiter: lm-eval's second
    argument."""
    messages: tuple[tuple[str, str], ...] | None = None
    """(role, content) of a chat, which is then the prompt; `context` is empty.

    A last message from the assistant is the beginning of its answer.
    """
    given_gold: str | None = None
    """The gold answer as its source writes it, with its unit; None for choices."""

    @property
    def prompt_hash(self) -> str:
        """The hash of everything that is the same for all models: template, examples, system prompt and
        continuations."""
        return prompt_hash(self.context, self.messages, self.continuations)


@dataclass(frozen=True)
class SamplingSettings:
    """How answers are sampled: `passes` texts per document, cut at the first stop string."""

    passes: int
    temperature: float
    top_p: float
    max_tokens: int
    stop: tuple[str, ...]
    seed: int
    stop_tokens: tuple[int, ...] = field(default=(), repr=False)
    """Tokens that end a text, as the end-of-text token does."""

    def seed_of(self, doc_id: int) -> int:
        """The seed of a document's first sample; an engine with one seed a document gives sample p the p-th
        seed after it.

        No two samples share a seed, for any documents below 2^31 / passes and any seeds.
        """
        return self.seed * _SEED_STRIDE + doc_id * self.passes


RETRIED_REASONS = {
    "filtered": False,  # a service's filter held back the question or the answer
    "refused": False,  # the server does not take the question
    "unclear": False,  # the answer names none of the choices
    "empty": False,  # max_tokens, or reasoning, left no text
    "cut off": True,  # the answer ended for another reason than its end or its limit
    "broken": True,  # what came cannot be an answer to what was asked
    "failed": True,  # the server failed on the question
}
"""By kind of reason why a document has no answer, whether the next run asks again."""
_MAX_REASON_CHARACTERS = 200


@dataclass(frozen=True)
class MissingAnswer:
    """The reason why a document has no answer; it counts as wrong."""

    kind: str
    """The kind of the reason, a key of RETRIED_REASONS."""
    words: str

    @property
    def may_pass(self) -> bool:
        return RETRIED_REASONS[self.kind]

    def __str__(self) -> str:
        return f"{self.kind}: {shorten(escape_controls(without_secrets(self.words)), _MAX_REASON_CHARACTERS)}"


class UnansweredError(Exception):
    """A server has no answer to one document; others may have one.

    `is_free`: the request was not worked on.
    """

    def __init__(self, kind: str, words: str, *, is_free: bool = False) -> None:
        super().__init__(words)
        self.reason = MissingAnswer(kind, words)
        self.is_free = is_free


class HopelessError(RunError):
    """No request to a model can succeed, and waiting does not help: its run ends."""

    is_free = True

    def __init__(self, words: str, status: int | None = None) -> None:
        super().__init__(words)
        self.status = status


@dataclass(frozen=True)
class ChoiceScore:
    """The log-likelihood of one continuation, token by token."""

    token_ids: tuple[int, ...]
    token_logprobs: tuple[float, ...]
    is_greedy: bool
    n_prompt_tokens: int | None
    """The number of the prompt's tokens; None: the service does not say."""
    truncated: bool
    covered_mass: float | None = None
    """The probability of all answers that name a choice, from a service that scores no prompt.

    Such a score has one log-prob and no token.
    """
    n_generated: int | None = 0
    """The tokens that a service which scores no prompt generated for the document; None: it does not say."""
    unanswered: MissingAnswer | None = None
    """The reason why the document has no answer, so that all of its choices are equally likely; None if it
    has one."""

    @property
    def is_partial(self) -> bool:
        return self.covered_mass is not None


class ChangedModelError(RunError):
    """Another model than before answers behind a service's name, so its answers no longer belong together."""


@dataclass(frozen=True)
class Sample:
    """One sampled answer; `finish_reason` is "stop" (a stop string or end of text) or "length"."""

    text: str
    n_tokens: int | None
    finish_reason: str
    n_prompt_tokens: int | None
    token_ids: tuple[int, ...] = ()
    """The sampled tokens, including the one that ended the text; empty if a server does not return them."""
    unanswered: MissingAnswer | None = None
    """The reason why the text is no answer; None if it is one."""


@dataclass(frozen=True)
class Trace:
    """The text that a model wrote before it answered, without the markers around it."""

    token_ids: tuple[int, ...]
    text: str
    n_tokens: int
    """The number of sampled tokens, including the one that ended the trace."""
    finish_reason: str
    """How the trace ended: "stop" at the closing marker, "end" at the end of text, "length" at the budget."""
    unanswered: MissingAnswer | None = None
    """The reason why nothing can be answered after the trace; None if it can."""


def empty_scores(n_choices: int, reason: MissingAnswer) -> tuple[ChoiceScore, ...]:
    """The scores of a document that has no answer: all choices are equally likely."""
    score = ChoiceScore((), (-math.log(n_choices),), False, 0, False, covered_mass=0.0, unanswered=reason)
    return (score,) * n_choices


def empty_sample(reason: MissingAnswer) -> Sample:
    """A sample without an answer."""
    return Sample("", 0, reason.kind, 0, unanswered=reason)


class Engine(Protocol):
    """A loaded model. Its methods yield one result per document, in the order of the documents."""

    shard: int
    """The number of documents to ask at once.

    A call's results depend on its documents alone, not on earlier calls.
    """

    @property
    def slower(self) -> str | None:
        """Why the engine works more slowly than others of its kind; None if it does not."""
        ...

    def check(
        self,
        documents: Sequence[Document],
        sampling: SamplingSettings | None = None,
        thinking: ThinkingSpec | None = None,
    ) -> None:
        """Raises InputError, before any request, if a prompt does not fit and must not be truncated."""
        ...

    def texts(self, documents: Sequence[Document]) -> list[str]:
        """The prompt of every document as the model reads it: a chat rendered by its template."""
        ...

    def score(self, documents: Sequence[Document]) -> Iterator[tuple[ChoiceScore, ...]]:
        """Log-likelihoods of every continuation of every document."""
        ...

    def sample(
        self, documents: Sequence[Document], sampling: SamplingSettings
    ) -> Iterator[tuple[Sample, ...]]:
        """`sampling.passes` texts per document, which depend only on its doc_id and the seed."""
        ...

    def think(
        self, documents: Sequence[Document], thinking: ThinkingSpec, sampling: SamplingSettings | None = None
    ) -> Iterator[tuple[Trace, ...]]:
        """Traces before the choices are scored, or one before each sample; they depend only on doc_id and
        seed."""
        ...

    def score_after(
        self, documents: Sequence[Document], thinking: ThinkingSpec, traces: Sequence[Sequence[Trace]]
    ) -> Iterator[tuple[tuple[ChoiceScore, ...], ...]]:
        """The scores of `score`, after each of a document's traces."""
        ...

    def sample_after(
        self,
        documents: Sequence[Document],
        sampling: SamplingSettings,
        thinking: ThinkingSpec,
        traces: Sequence[Sequence[Trace]],
    ) -> Iterator[tuple[Sample, ...]]:
        """The samples of `sample`; sample p follows a document's p-th trace."""
        ...

    def settings(self) -> dict[str, object]:
        """The settings that distinguish this engine's numbers (dtype, batch size, ...), stored with every
        partition."""
        ...

    def versions(self) -> dict[str, str]:
        """Versions of the libraries that computed the numbers."""
        ...


@runtime_checkable
class PaidEngine(Protocol):
    """An engine whose answers cost money: each answer is kept on disk, even if its partition is never
    committed."""

    def begin(self, file: Path, partition: str, probe_id: str | None = None) -> None:
        """Begins a partition, whose answers and payments are kept in `file`.

        A probe uses no answer that was given to another probe or run.
        """
        ...

    def facts(self) -> dict[str, Any]:
        """Columns of the partition's record: the kind of evidence, the cents paid, versions."""
        ...

    def forget(self) -> None:
        """Deletes the partition's kept answers, so that all are asked again."""
        ...

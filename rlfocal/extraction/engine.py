"""The interface between lm-eval's tasks and the engines: what an engine is asked, and what it returns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rlfocal.base.errors import RunError, escape_controls, shorten, without_secrets
from rlfocal.pool.specs import ThinkingSpec
from warehouse.alignment import prompt_hash

_SEED_STRIDE = 2**31
"""The distance between the first request seeds of two runs whose `SamplingSettings.seed` differ by one."""


@dataclass(frozen=True)
class Document:
    """One question of a task, with the prompts that lm-eval built for it."""

    doc_id: int
    doc_hash: str
    question: str
    label: int | None
    """The index of the right choice, or -1 where the gold is none of the choices. It is None for free
    answers."""
    gold: str
    """The right choice's text, or the gold answer."""
    choices: tuple[str, ...]
    """The texts of the choices; empty for free answers."""
    context: str
    """The prompt, which is the first argument of lm-eval's request."""
    continuations: tuple[str, ...]
    """The text of each choice as it follows the prompt, with its leading delimiter: the second argument of
    lm-eval's request."""
    messages: tuple[tuple[str, str], ...] | None = None
    """The messages of a chat, as (role, content). They are then the prompt, and `context` is empty. A last
    message from the assistant is the beginning of its answer."""
    given_gold: str | None = None
    """The gold answer as its source writes it, with its unit; None for choices."""

    @property
    def prompt_hash(self) -> str:
        """The hash of the prompt's parts that all models share: template, examples, system prompt and
        continuations."""
        return prompt_hash(self.context, self.messages, self.continuations)


@dataclass(frozen=True)
class SamplingSettings:
    """The settings of sampled answers: `passes` texts a document, each cut at its first stop string."""

    passes: int
    temperature: float
    top_p: float
    max_tokens: int
    stop: tuple[str, ...]
    seed: int
    stop_tokens: tuple[int, ...] = field(default=(), repr=False)
    """The ids of tokens that end a text, as the end-of-text token does."""

    def seed_of(self, doc_id: int) -> int:
        """The seed of a document's first sample. An engine may give the document's sample p the p-th seed
        after it. No two samples share a seed, as long as every doc_id is below 2^31 / passes."""
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
"""For each kind of reason why a document has no answer, whether the next run asks the model again."""
_MAX_REASON_CHARACTERS = 200


@dataclass(frozen=True)
class MissingAnswer:
    """The reason why a document has no answer. Such a document counts as wrong."""

    kind: str
    """The kind of the reason, a key of RETRIED_REASONS."""
    words: str

    @property
    def may_pass(self) -> bool:
        return RETRIED_REASONS[self.kind]

    def __str__(self) -> str:
        return f"{self.kind}: {shorten(escape_controls(without_secrets(self.words)), _MAX_REASON_CHARACTERS)}"


class UnansweredError(Exception):
    """The error of a server that has no answer to one document; it may answer other documents. `is_free` says
    that the server did no work on the request, and bills none."""

    def __init__(self, kind: str, words: str, *, is_free: bool = False) -> None:
        super().__init__(words)
        self.reason = MissingAnswer(kind, words)
        self.is_free = is_free


class HopelessError(RunError):
    """The error that ends a model's run, because no request to the model can succeed and waiting does not
    help."""

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
    """The number of the prompt's tokens; None where the service does not report it."""
    truncated: bool
    covered_mass: float | None = None
    """The total probability of answers that name a choice, from a service that cannot score given text. Such
    a score has one log-prob and no token. It is None from engines that score the choices' tokens."""
    n_generated: int | None = 0
    """The number of tokens that a service generated for the document, where it cannot score given text. It is
    0 for other engines, and None where the service does not report it."""
    unanswered: MissingAnswer | None = None
    """The reason why the document has no answer, so that all of its choices are equally likely; None if it
    has an answer."""

    @property
    def is_partial(self) -> bool:
        return self.covered_mass is not None


class ChangedModelError(RunError):
    """The error of a service whose name now stands for another model, so that its answers do not belong
    together."""


@dataclass(frozen=True)
class Sample:
    """One sampled answer. Its `finish_reason` is "stop" (a stop string or the end of text), "length", or why
    it is no answer."""

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
    """The text that a model wrote before its answer, without the markers around it."""

    token_ids: tuple[int, ...]
    text: str
    n_tokens: int
    """The number of sampled tokens, including the one that ended the trace."""
    finish_reason: str
    """What ended the trace: "stop" is the closing marker, "end" the end of text, "length" the token
    budget."""
    unanswered: MissingAnswer | None = None
    """The reason why the trace leads to no answer; None if it can be followed by one."""


def empty_scores(n_choices: int, reason: MissingAnswer) -> tuple[ChoiceScore, ...]:
    """The scores of a document that has no answer: all choices are equally likely."""
    score = ChoiceScore((), (-math.log(n_choices),), False, 0, False, covered_mass=0.0, unanswered=reason)
    return (score,) * n_choices


def empty_sample(reason: MissingAnswer) -> Sample:
    return Sample("", 0, reason.kind, 0, unanswered=reason)


class Engine(Protocol):
    """A loaded model. Its generators yield one result per document, in the order of the documents."""

    shard: int
    """The number of documents that one call is given. A call's results depend on its documents alone, not on
    earlier calls."""

    @property
    def slower(self) -> str | None:
        """The reason why the engine works more slowly than it usually does; None if it does not."""
        ...

    def check(
        self,
        documents: Sequence[Document],
        sampling: SamplingSettings | None = None,
        thinking: ThinkingSpec | None = None,
    ) -> None:
        """Raises InputError, before any request, if the engine cannot answer the documents under these
        settings. One such cause is a prompt that is too long and must not be truncated."""
        ...

    def texts(self, documents: Sequence[Document]) -> list[str]:
        """The prompt of every document as the model reads it; a chat is rendered by the model's template."""
        ...

    def score(self, documents: Sequence[Document]) -> Iterator[tuple[ChoiceScore, ...]]:
        """Yields a score for every continuation of every document."""
        ...

    def sample(
        self, documents: Sequence[Document], sampling: SamplingSettings
    ) -> Iterator[tuple[Sample, ...]]:
        """Yields `sampling.passes` texts per document. They depend only on the document and `sampling`."""
        ...

    def think(
        self, documents: Sequence[Document], thinking: ThinkingSpec, sampling: SamplingSettings | None = None
    ) -> Iterator[tuple[Trace, ...]]:
        """Yields each document's traces: `thinking.traces` before its choices, or one before each of its
        samples. They depend only on the document and the settings."""
        ...

    def score_after(
        self, documents: Sequence[Document], thinking: ThinkingSpec, traces: Sequence[Sequence[Trace]]
    ) -> Iterator[tuple[tuple[ChoiceScore, ...], ...]]:
        """Yields the scores of every document's choices after each of its traces."""
        ...

    def sample_after(
        self,
        documents: Sequence[Document],
        sampling: SamplingSettings,
        thinking: ThinkingSpec,
        traces: Sequence[Sequence[Trace]],
    ) -> Iterator[tuple[Sample, ...]]:
        """Yields every document's samples. Sample p follows the document's p-th trace."""
        ...

    def settings(self) -> dict[str, object]:
        """The settings that the engine's numbers depend on (dtype, batch size, ...); every partition stores
        them."""
        ...

    def versions(self) -> dict[str, str]:
        """The versions of the libraries that computed the numbers, by library."""
        ...


@runtime_checkable
class PaidEngine(Protocol):
    """An engine whose answers cost money. Each answer is saved on disk at once, even if its partition is
    never committed."""

    def begin(self, file: Path, partition: str, probe_id: str | None = None) -> None:
        """Begins a partition, whose answers and payments are saved in `file`. A probe reuses no answer that
        was given to another probe or to a run."""
        ...

    def facts(self) -> dict[str, Any]:
        """Columns of the partition's record: the kind of evidence, the cents paid, and versions."""
        ...

    def forget(self) -> None:
        """Deletes the partition's saved answers, so that the service is asked for all of them again."""
        ...

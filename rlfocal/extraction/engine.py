"""What an engine is asked and what it answers: the interface between lm-eval's tasks and the engines."""

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
"""How far apart the passes of two seeds begin."""


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
    """Choice texts (empty for answers)."""
    context: str
    """The prompt: lm-eval's first argument."""
    continuations: tuple[str, ...]
    """One continuation a choice, with its leading delimiter: lm-eval's second argument."""
    messages: tuple[tuple[str, str], ...] | None = None
    """(role, content) of a chat, which is then the prompt, with an empty `context`; a last message from the
    assistant is the beginning of its answer."""
    given_gold: str | None = None
    """The gold answer as its source writes it, with its unit; None for choices."""

    @property
    def prompt_hash(self) -> str:
        """The hash of all that every model is asked: template, examples, system prompt and continuations."""
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
    """Tokens that end a text, as the end of text does."""

    def seed_of(self, doc_id: int) -> int:
        """The seed of a document's first pass; engines that take one seed a document give pass p the p-th
        after it. No two passes share one, of whatever documents and seeds, for documents below 2^31 / passes.
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
"""Kinds of reasons why a document has no answer, and whether the next run asks again."""
_MAX_REASON_CHARACTERS = 200


@dataclass(frozen=True)
class MissingAnswer:
    """Why a document has no answer; it counts as wrong."""

    kind: str
    """The kind of reason, a key of MAY_PASS."""
    words: str

    @property
    def may_pass(self) -> bool:
        return RETRIED_REASONS[self.kind]

    def __str__(self) -> str:
        return f"{self.kind}: {shorten(escape_controls(without_secrets(self.words)), _MAX_REASON_CHARACTERS)}"


class UnansweredError(Exception):
    """A server has no answer to one document; others may have theirs. `is_free`: it was not worked on."""

    def __init__(self, kind: str, words: str, *, is_free: bool = False) -> None:
        super().__init__(words)
        self.reason = MissingAnswer(kind, words)
        self.is_free = is_free


class HopelessError(RunError):
    """No request of a model can succeed, and waiting mends nothing: its run is over."""

    is_free = True

    def __init__(self, words: str, status: int | None = None) -> None:
        super().__init__(words)
        self.status = status


@dataclass(frozen=True)
class ChoiceScore:
    """One continuation's log-likelihood, token by token."""

    token_ids: tuple[int, ...]
    token_logprobs: tuple[float, ...]
    is_greedy: bool
    n_prompt_tokens: int | None
    """The tokens of the prompt; None: the service does not say."""
    truncated: bool
    covered_mass: float | None = None
    """The probability of all answers that name a choice, of a service that scores no prompt. Such a score has
    one log-prob and no token."""
    n_generated: int | None = 0
    """Tokens that such a service generated for the document; None: it does not say."""
    unanswered: MissingAnswer | None = None
    """Why the document has no answer: all of its choices are equally likely then."""

    @property
    def is_partial(self) -> bool:
        return self.covered_mass is not None


class ChangedModelError(RunError):
    """A service answered by another model than before: what it said belongs together no more."""


@dataclass(frozen=True)
class Sample:
    """One sampled answer; `finish_reason` is "stop" (a stop string or end of text) or "length"."""

    text: str
    n_tokens: int | None
    finish_reason: str
    n_prompt_tokens: int | None
    token_ids: tuple[int, ...] = ()
    """What was drawn, the token that ended it included; empty if a server does not tell."""
    unanswered: MissingAnswer | None = None
    """Why the text is no answer."""


@dataclass(frozen=True)
class Trace:
    """What a model thought before it answered, without its markers."""

    token_ids: tuple[int, ...]
    text: str
    n_tokens: int
    """The number of drawn tokens, the one that ended the trace included."""
    finish_reason: str
    """Why the trace ended: "stop" at the closing marker, "end" at the end of text, "length" at the budget."""
    unanswered: MissingAnswer | None = None
    """The reason why nothing can be answered after the trace; None if it can."""


def empty_scores(n_choices: int, reason: MissingAnswer) -> tuple[ChoiceScore, ...]:
    """The scores of a document that has no answer: no choice is likelier than another."""
    score = ChoiceScore((), (-math.log(n_choices),), False, 0, False, covered_mass=0.0, unanswered=reason)
    return (score,) * n_choices


def empty_sample(reason: MissingAnswer) -> Sample:
    """A pass without an answer."""
    return Sample("", 0, reason.kind, 0, unanswered=reason)


class Engine(Protocol):
    """A loaded model. Methods yield one result per document, in the order of the documents."""

    shard: int
    """Documents to ask at once. A call's results depend on its documents alone, not on earlier calls."""

    @property
    def slower(self) -> str | None:
        """How it works more slowly than others of its kind, and why; None: it does not."""
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
        """Traces before choices, or one before each of the passes; they depend only on doc_id and seed."""
        ...

    def score_after(
        self, documents: Sequence[Document], thinking: ThinkingSpec, traces: Sequence[Sequence[Trace]]
    ) -> Iterator[tuple[tuple[ChoiceScore, ...], ...]]:
        """`score` after each of a document's traces."""
        ...

    def sample_after(
        self,
        documents: Sequence[Document],
        sampling: SamplingSettings,
        thinking: ThinkingSpec,
        traces: Sequence[Sequence[Trace]],
    ) -> Iterator[tuple[Sample, ...]]:
        """`sample`, pass p after a document's p-th trace."""
        ...

    def settings(self) -> dict[str, object]:
        """What distinguishes this engine's numbers (dtype, batch size, ...), stored with every partition."""
        ...

    def versions(self) -> dict[str, str]:
        """Versions of the libraries that computed the numbers."""
        ...


@runtime_checkable
class PaidEngine(Protocol):
    """An engine whose answers cost money: each is kept, whatever becomes of its partition."""

    def begin(self, file: Path, partition: str, probe_id: str | None = None) -> None:
        """What follows is asked for a partition; answers and payments are kept in a file.

        A probe takes no answer that others were given.
        """
        ...

    def facts(self) -> dict[str, Any]:
        """Columns of the partition's record: the kind of evidence, what was paid, versions."""
        ...

    def forget(self) -> None:
        """Drops the partition's answers: it begins anew."""
        ...

"""What a benchmark requires of each model: documents, requests and tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlfocal.base.errors import InputError
from rlfocal.extraction.engine import Document
from rlfocal.extraction.tasks import TaskDocuments
from rlfocal.pool.specs import Benchmark

CHARACTERS_PER_TOKEN = 4
ONE_TOKEN = 2  # characters of a choice, its leading blank included, that is surely one token: " A"


@dataclass(frozen=True)
class Workload:
    """The tasks of one benchmark for one model: counts, and tokens that are estimates."""

    benchmark: str
    partitions: int
    documents: int
    requests: int
    """To an engine that continues a cached context: one per document, or one per choice of several tokens,
    and one for each choice that is also scored after an empty prompt."""
    prefill_tokens: float
    """Unique ones: a task's shared preamble once, each document once, each choice once."""
    prompt_tokens: float
    """All of every document's prompt once, as a service is paid for it."""
    decode_tokens: float
    one_token: bool
    """Whether every choice is one token, so that one request per document answers it."""

    def __add__(self, other: Workload) -> Workload:
        return Workload(
            self.benchmark,
            self.partitions + other.partitions,
            self.documents + other.documents,
            self.requests + other.requests,
            self.prefill_tokens + other.prefill_tokens,
            self.prompt_tokens + other.prompt_tokens,
            self.decode_tokens + other.decode_tokens,
            self.one_token and other.one_token,
        )

    def with_thinking(self, traces: int, budget: int) -> Workload:
        """Adds traces of every document, each of which takes its budget, and asks after each of them."""
        return replace(
            self,
            requests=self.documents + traces * self.requests,
            decode_tokens=self.decode_tokens + self.documents * traces * budget,
        )

    def with_choices(self, n_choices: int, tokens: float) -> Workload:
        """With a request for each choice of several tokens, in place of one a document."""
        prefill = self.prefill_tokens + tokens
        return replace(self, requests=n_choices, prefill_tokens=prefill, one_token=False)

    def with_unconditional(self, n_alone: int, tokens: float) -> Workload:
        """Adds `n_alone` choices scored after an empty prompt."""
        return replace(
            self,
            requests=self.requests + n_alone,
            prefill_tokens=self.prefill_tokens + tokens,
        )


def of_documents(task: TaskDocuments, answer_tokens: float | None) -> Workload:
    """The workload of one task whose documents are available locally.

    `answer_tokens` is the mean of one sampled answer; None assumes the limit.
    """
    prompts = [_prompt(d) for d in task.documents]
    contexts = [len(prompt) / CHARACTERS_PER_TOKEN for prompt in prompts]
    choices = [sum(map(len, d.continuations)) / CHARACTERS_PER_TOKEN for d in task.documents]
    preamble = _shared_characters(prompts) / CHARACTERS_PER_TOKEN
    n = len(task.documents)
    own = sum(contexts) - n * preamble
    prompts_alone = Workload(task.benchmark, 1, n, n, preamble + own, sum(contexts), 0.0, one_token=True)
    if task.sampling is not None:
        length = task.sampling.max_tokens if answer_tokens is None else answer_tokens
        return replace(prompts_alone, decode_tokens=n * task.sampling.passes * length)
    one_token = all(len(c) <= ONE_TOKEN for d in task.documents for c in d.continuations)
    n_choices = sum(len(d.continuations) for d in task.documents)
    scored = prompts_alone if one_token else prompts_alone.with_choices(n_choices, sum(choices))
    if not task.unconditional:
        return scored
    alone = {c for d in task.documents for c in d.continuations}
    return scored.with_unconditional(len(alone), sum(map(len, alone)) / CHARACTERS_PER_TOKEN)


def _prompt(document: Document) -> str:
    """The prompt's text; of a chat, without what each model's template puts around the messages."""
    return document.context or "".join(text for _, text in document.messages or ())


def _shared_characters(texts: Sequence[str]) -> int:
    """How long the beginning is that all texts share; 0 for fewer than two texts."""
    if len(texts) < 2:
        return 0
    first, last = min(texts), max(texts)
    differing = (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    return next(differing, min(len(first), len(last)))


def of_size(benchmark: Benchmark, limit: int | None = None) -> Workload:
    """The workload of a benchmark without local documents, from its `size`; InputError without one."""
    size = benchmark.size
    if size is None:
        raise InputError(
            f"benchmark {benchmark.name!r}: its documents are not available locally and it has no `size`; "
            "pass a mirror of its data with --datasets, or add a size to its definition"
        )
    partitions = len(benchmark.tasks)
    n = size.documents if limit is None else min(size.documents, limit * partitions)
    context = size.preamble_tokens + size.document_tokens
    unique = partitions * size.preamble_tokens + n * size.document_tokens
    prompts = Workload(benchmark.name, partitions, n, n, unique, n * context, 0.0, one_token=True)
    if benchmark.kind == "answers":
        passes = benchmark.sampling.passes if benchmark.sampling is not None else size.passes
        return replace(prompts, decode_tokens=n * passes * size.answer_tokens)
    one_token = size.choice_tokens <= 1
    n_choices = round(n * size.choices)
    scored = prompts if one_token else prompts.with_choices(n_choices, n_choices * size.choice_tokens)
    if not benchmark.unconditional:
        return scored
    # Choices of one token are the same letters everywhere, longer ones are taken to differ.
    n_alone = min(n_choices, partitions * math.ceil(size.choices)) if one_token else n_choices
    return scored.with_unconditional(n_alone, n_alone * size.choice_tokens)


def mean_answer(benchmark: Benchmark) -> float | None:
    """The mean tokens of one sampled answer, where the benchmark's size says so."""
    return benchmark.size.answer_tokens or None if benchmark.size is not None else None

"""A first look at a model: a few documents of each kind, in a temporary warehouse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from rlfocal.base.errors import InputError
from rlfocal.extraction.running.events import Event
from rlfocal.extraction.running.missing import plan_extraction
from rlfocal.extraction.running.runner import extract_model
from rlfocal.extraction.tasks import TaskDocuments, load_tasks
from rlfocal.new_model.plausibility import faults_of_answers, faults_of_choices, faults_of_tokenizer
from rlfocal.pool.hub import local_weights
from rlfocal.pool.specs import Benchmark, ModelSpec, PoolSpec
from warehouse import Warehouse, open_warehouse

DOCUMENTS = 20
"""Documents of each kind."""
TASKS = 4
"""Spread over so many, because one task's answers may really be all the same: of 16 models and MMLU's 57
tasks, 1.6 % of the first 20 documents of a task, but 0.4 % of five documents of four."""
TEXTS = 8
"""For the tokenizer."""


def find_faults(
    spec: ModelSpec,
    pool: PoolSpec,
    backend: str,
    datasets: str | Path | None,
    on_progress: Callable[[Event], None] | None = None,
) -> list[str]:
    """What is implausible about a model's answers to 20 documents of each kind of the pool's benchmarks.

    Raises InputError with the engine's reason if it cannot answer.
    """
    tasks = _few(pool.benchmarks, datasets)
    with TemporaryDirectory() as folder:
        place = Path(folder) / "look"
        with open_warehouse(place) as warehouse:
            [plan] = plan_extraction(warehouse, [spec], tasks, backend)
        outcome = extract_model(place, plan, backend, on_progress=on_progress)
        if outcome.missing:
            raise InputError(
                f"{spec.model} cannot answer: {outcome.missing[0].reason}; the pool is unchanged"
            )
        with open_warehouse(place, read_only=True) as warehouse:
            names = dict.fromkeys(task.benchmark for task in tasks)
            found = [fault for name in names for fault in _faults(warehouse, name)]
    if spec.is_closed:
        return found
    from rlfocal.extraction.engines.tokens import tokenizer_of

    return found + faults_of_tokenizer(tokenizer_of(spec, local_weights(spec)), _texts(tasks))


def _few(benchmarks: Sequence[Benchmark], datasets: str | Path | None) -> list[TaskDocuments]:
    """DOCUMENTS of the first benchmark of each kind, from its first TASKS tasks."""
    first = {benchmark.kind: benchmark for benchmark in reversed(benchmarks)}
    tasks: list[TaskDocuments] = []
    for benchmark in first.values():
        few = dict(list(benchmark.tasks.items())[:TASKS])
        each = -(-DOCUMENTS // len(few))
        tasks += load_tasks([benchmark.model_copy(update={"tasks": few})], each, datasets)
    return tasks


def _faults(warehouse: Warehouse, benchmark: str) -> list[str]:
    scored = warehouse.rows(
        "SELECT list(c.logprob ORDER BY c.choice), "
        "flatten(list(coalesce(c.token_logprobs, [c.logprob]))), any_value(d.label) "
        "FROM choice_logprobs AS c JOIN docs AS d USING (benchmark, task, doc_id) "
        "WHERE benchmark = ? GROUP BY task, doc_id ORDER BY task, doc_id",
        [benchmark],
    )
    if scored:
        logprobs, tokens, labels = zip(*scored, strict=True)
        return faults_of_choices(benchmark, logprobs, np.concatenate(tokens, dtype=np.float64), labels)
    passes = warehouse.rows(
        "SELECT list(answer ORDER BY pass) FROM answer_passes WHERE benchmark = ? GROUP BY task, doc_id",
        [benchmark],
    )
    return faults_of_answers(benchmark, [answers for (answers,) in passes])


def _texts(tasks: Sequence[TaskDocuments]) -> list[str]:
    """Prompts and choices of the first documents."""
    documents = [document for task in tasks for document in task.documents[:2]][: TEXTS // 2]
    texts = [text for d in documents for text in (d.context or d.question, d.gold) if text]
    return list(dict.fromkeys(texts))

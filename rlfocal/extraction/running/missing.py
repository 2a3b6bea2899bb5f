"""Finds the partitions that a warehouse lacks of each model, and why some cannot be extracted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from itertools import product
from shutil import rmtree
from typing import Any

import pyarrow as pa

from rlfocal.base.errors import InputError, describe_error
from rlfocal.extraction.engine import Document
from rlfocal.extraction.engines import backend_of, check_entry_for, check_weights_for, tokenizer_for
from rlfocal.extraction.engines.tokenizers import CHECK_TEXTS, Tokenization
from rlfocal.extraction.partition import (
    UNCONDITIONAL_SUFFIX,
    Job,
    extraction_lock,
    fingerprint,
    weights_digest,
)
from rlfocal.extraction.rows import doc_rows
from rlfocal.extraction.running.events import Failure
from rlfocal.extraction.running.stored_answers import shard_folder
from rlfocal.extraction.tasks import TaskDocuments
from rlfocal.pool.hub import HubError, head_dtype_of, pin_revision, read_config
from rlfocal.pool.specs import ModelSpec, resolve_thinking
from warehouse import Warehouse
from warehouse.alignment import refusal
from warehouse.store import PartitionKey, PartitionRecord

_version = cache(version)  # it reads a file, and each partition asks
TRIED_DOCUMENTS = 8
"""The number of a task's first documents that a tokenizer of older rows is tested on, beside CHECK_TEXTS."""


@dataclass(frozen=True)
class MissingWork:
    """The work of an extraction for one model."""

    model: ModelSpec
    """The model's entry. Its revision is the commit that will run, unless it could not be pinned."""
    tasks: Sequence[TaskDocuments]
    """All tasks that the extraction requests from the model."""
    jobs: tuple[Job, ...] = ()
    present_partitions: tuple[PartitionKey, ...] = ()
    """The partitions that are committed already."""
    refusals: tuple[Failure, ...] = ()
    reason: str | None = None
    """The reason why the model cannot run at all; None if it can."""
    is_lasting: bool = True
    """Whether another attempt would meet the same `reason`. It is false if the hub did not respond."""

    @property
    def is_incomplete(self) -> bool:
        """Whether the model has anything to extract, or a failure to report."""
        return bool(self.jobs or self.refusals or self.reason)

    @property
    def place(self) -> tuple[bool, int, float, str]:
        """A key to sort models by: those that need the most GPUs first, then those with the most work. Models
        without jobs come last."""
        work = self.model.params_b * sum(len(job.task.documents) for job in self.jobs)
        return not self.jobs, -self.model.tensor_parallel, -work, self.model.model


def plan_extraction(
    warehouse: Warehouse,
    models: Sequence[ModelSpec],
    tasks: Sequence[TaskDocuments],
    backend: str,
    *,
    replace_documents: bool = False,
) -> list[MissingWork]:
    """The work of an extraction, by model. It also records all models and tasks in the warehouse. And it
    deletes shards that killed runs left of committed partitions."""
    facts = {
        table: [task.facts[table] for task in tasks if table in task.facts]
        for table in ("benchmarks", "tasks")
    }
    warehouse.put_models(models, facts)
    committed = warehouse.committed_partitions()
    plans = find_missing(models, tasks, backend, committed, replace_documents=replace_documents)
    for plan in plans:
        for key in plan.present_partitions:
            folder = shard_folder(warehouse.location.shards, key.text)
            if folder.exists():  # a run was killed after its commit, or is at it and holds the lock
                with extraction_lock(warehouse, key.model, key.benchmark, wait=False) as mine:
                    if mine:
                        rmtree(folder, ignore_errors=True)
    return plans if replace_documents else refuse_other_documents(plans, warehouse, committed)


def find_missing(
    models: Sequence[ModelSpec],
    tasks: Sequence[TaskDocuments],
    backend: str,
    records: Mapping[PartitionKey, PartitionRecord],
    *,
    replace_documents: bool = False,
    local_only: bool = False,
) -> list[MissingWork]:
    """The missing work of each model. A model with a fault gets a `reason`, and the others still have jobs.
    With `local_only`, the hub is not asked."""
    asked = {model.model: [task for task in tasks if task.includes_model(model.model)] for model in models}
    return [
        _find_missing(model, asked[model.model], backend, records, replace_documents, local_only)
        for model in models
    ]


def _find_missing(
    model: ModelSpec,
    tasks: Sequence[TaskDocuments],
    backend: str,
    records: Mapping[PartitionKey, PartitionRecord],
    replace_documents: bool,
    local_only: bool,
) -> MissingWork:
    backend = backend_of(model, backend)
    try:
        check_entry_for(backend, model)
        spec = pin_revision(model, local_only=local_only)
        check_weights_for(backend, spec)
        tokenizer = tokenizer_for(backend, spec, local_only=local_only)
        weights = weights_digest(spec)
        keys = [PartitionKey(model.model, task.benchmark, task.task) for task in tasks]
        wanted = [
            Job(
                task,
                _find_fingerprint(spec, weights, task, backend, tokenizer, records.get(key)),
                replace_documents,
                resolve_thinking(spec, task.thinking),
            )
            for key, task in zip(keys, tasks, strict=True)
        ]
    except Exception as error:
        return MissingWork(
            model, tasks, reason=describe_error(error), is_lasting=not isinstance(error, HubError)
        )
    jobs: list[Job] = []
    covered: list[PartitionKey] = []
    refused: list[Failure] = []
    for job in wanted:
        key = job.key(model.model)
        entry = records.get(key)
        if job.is_covered_by(entry):
            covered.append(key)
        elif reason := job.explain_refusal(entry) or _explain_misreading(spec, tokenizer, job.task):
            refused.append(Failure("extract", *key, reason, lasting=True))
        else:
            jobs.append(job)
    return MissingWork(spec, tasks, tuple(jobs), tuple(covered), tuple(refused))


def _find_fingerprint(
    model: ModelSpec,
    weights: str,
    task: TaskDocuments,
    backend: str,
    tokenizer: Tokenization | None,
    entry: PartitionRecord | None,
) -> str:
    """The partition's fingerprint. A correct committed partition from before tokenizers and heads were part
    of fingerprints keeps its older one.

    Its tokenizer was correct if the same version of transformers made the rows, and reads sample texts as
    tokenizer.json does. Its head was correct if everything was computed in float32.
    """
    digest = None if tokenizer is None else tokenizer.digest
    head = head_dtype_of(model, read_config(model)) if backend in ("hf", "vllm") else None
    current = fingerprint(model, weights, task, backend, digest, head)
    if entry is None:
        return current
    texts = [*CHECK_TEXTS, *_list_texts(task.documents[:TRIED_DOCUMENTS], unconditional=task.unconditional)]
    for tokens, of_head in product({digest, None}, {head, None}):
        older = fingerprint(model, weights, task, backend, tokens, of_head)
        if entry.fingerprint.removesuffix(UNCONDITIONAL_SUFFIX) != older.removesuffix(UNCONDITIONAL_SUFFIX):
            continue
        is_known = entry.transformers == _version("transformers")
        same_tokens = (
            tokenizer is None or tokens == digest or (is_known and not tokenizer.was_wrong_on(texts))
        )
        if same_tokens and (of_head == head or entry.dtype == "float32"):
            return older
    return current


def _explain_misreading(model: ModelSpec, tokenizer: Tokenization | None, task: TaskDocuments) -> str | None:
    """The reason why the tokenizer reads the task's documents wrongly; None if it does not."""
    if tokenizer is None:
        return None
    try:
        tokenizer.check(model, _list_texts(task.documents, unconditional=task.unconditional))
    except InputError as error:
        return str(error)
    return None


def _list_texts(documents: Sequence[Document], *, unconditional: bool) -> list[str]:
    """Each document's prompt followed by its continuations. With `unconditional`, also each continuation
    alone."""
    texts = []
    for document in documents:
        asked = document.context + "\n".join(content for _, content in document.messages or ())
        texts.append(asked + "".join(document.continuations))
        texts += document.continuations if unconditional else ()
    return texts


def refuse_other_documents(
    plans: Sequence[MissingWork], warehouse: Warehouse, records: Mapping[PartitionKey, PartitionRecord]
) -> list[MissingWork]:
    """The plans without jobs whose documents differ from those that other models answered. Such jobs become
    failures now, before an engine works for hours."""
    holders: dict[tuple[str, str], set[str]] = {}
    for key in records:
        holders.setdefault((key.benchmark, key.task), set()).add(key.model)
    tasks = {(job.task.benchmark, job.task.task): job.task for plan in plans for job in plan.jobs}
    answered = [task for name, task in tasks.items() if name in holders]
    differing: dict[tuple[str, str], str] = {}
    if answered:
        docs = pa.concat_tables([doc_rows(task) for task in answered])
        n_whole = {(task.benchmark, task.task): task.n_whole for task in answered}
        differing = warehouse.documents_differ(docs, n_whole)
    return [_refuse_differing(plan, differing, holders) for plan in plans]


def _refuse_differing(
    plan: MissingWork, differing: Mapping[tuple[str, str], Any], holders: Mapping[tuple[str, str], set[str]]
) -> MissingWork:
    jobs: list[Job] = []
    refused = list(plan.refusals)
    for job in plan.jobs:
        name = (job.task.benchmark, job.task.task)
        others = sorted(holders.get(name, set()) - {plan.model.model})
        if others and name in differing:
            reason = refusal(differing[name], others, job.task.benchmark)
            refused.append(Failure("extract", plan.model.model, *name, reason, lasting=True))
        else:
            jobs.append(job)
    return replace(plan, jobs=tuple(jobs), refusals=tuple(refused))

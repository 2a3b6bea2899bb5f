"""Asks a model some documents, batch by batch as they are chosen, and stores each answer. This is a probe."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from typing import Any

from rlfocal.base.errors import InputError, RunError
from rlfocal.base.wording import count_noun
from rlfocal.extraction.engines import backend_of
from rlfocal.extraction.partition import Job
from rlfocal.extraction.recording import log, measure, start_log, unanswered_documents
from rlfocal.extraction.rows import probe_rows
from rlfocal.extraction.running.events import ProbeBatch, Progress
from rlfocal.extraction.running.missing import find_missing, refuse_other_documents
from rlfocal.extraction.running.processes import Send
from rlfocal.extraction.running.runner import cores, run_jobs
from rlfocal.extraction.running.stored_answers import Shard, shard_folder
from rlfocal.extraction.running.worker import (
    MAX_UNANSWERED_SHARE,
    Extraction,
    answer,
    list_choices_alone,
)
from rlfocal.extraction.tasks import TaskDocuments
from rlfocal.pool.specs import ModelSpec
from warehouse import Warehouse, open_warehouse
from warehouse.writing import put_probe_answers

Place = tuple[str, str]
"""The name of a benchmark, and of one of its tasks."""
Batch = Mapping[Place, Mapping[int, float]]
"""Documents to ask: for each task, the probability with which each doc_id was drawn."""
Choose = Callable[[Warehouse], Batch]
"""A function that chooses the next batch from the committed answers. The probe ends after an empty batch, or
a batch whose documents it has all asked."""


def ask_documents(
    location: str | Path | None,
    probe_id: str,
    model: ModelSpec,
    tasks: Sequence[TaskDocuments],
    backend: str,
    choose: Choose,
    *,
    jobs: int = 1,
    on_progress: Callable[[ProbeBatch | Progress], None] | None = None,
) -> int:
    """Asks a model the documents of `tasks` that `choose` names. Returns the number of documents asked.

    The engine starts once, in its own process. There `choose`, which must be picklable, is called before each
    batch. A batch is committed to `probe_answers` in one transaction. Documents that the probe asked before
    are not asked again, so a killed probe continues when it is called again. `jobs` is the number of such
    calls that share the cores. `on_progress` is called with Progress for each shard of a batch, and with
    ProbeBatch once the batch is committed. No other table gets rows of the model.

    Raises InputError for a model that cannot run, and for documents that differ from the warehouse's. It also
    raises InputError if the probe asked another model before, or in another way. Raises RunError if the
    engine fails. Committed batches stay.
    """
    start_log()
    with open_warehouse(location) as warehouse:
        plans = find_missing([model], tasks, backend, {})
        [plan] = refuse_other_documents(plans, warehouse, warehouse.committed_partitions())
        reasons = [plan.reason, *(failure.reason for failure in plan.refusals)]
        if reason := next(filter(None, reasons), None):
            raise (InputError if plan.is_lasting else RunError)(reason)
        _check_same(warehouse, probe_id, model.model, plan.jobs)
    asked = 0

    def report(_: str, event: ProbeBatch | Progress) -> None:
        nonlocal asked
        asked += event.n_docs if isinstance(event, ProbeBatch) else 0
        if on_progress is not None:
            on_progress(event)

    threads = max(1, cores() // jobs)
    arguments = (location, probe_id, plan.model, backend_of(plan.model, backend), plan.jobs, choose, threads)
    ended = run_jobs(
        ask_batches,
        {model.model: arguments},
        [plan.model],
        backend,
        at_once=1,
        seconds=None,
        on_event=report,
    )
    if reason := ended[model.model]:
        raise RunError(f"the probe of {model.model} ended early: {reason}")
    return asked


def ask_batches(
    send: Send,
    location: str | Path | None,
    probe_id: str,
    model: ModelSpec,
    backend: str,
    jobs: Sequence[Job],
    choose: Choose,
    threads: int,
) -> None:
    """Asks all batches, in the model's own process. For each batch it sends Progress events, then a
    ProbeBatch."""
    with open_warehouse(location) as warehouse, warehouse.lock(f"probe {probe_id}", wait=True):
        extraction = Extraction(model, backend, threads, warehouse, send)
        folder = shard_folder(warehouse.location.shards, f"probe\0{probe_id}")
        while batch := _find_new(warehouse, probe_id, jobs, choose(warehouse)):
            _ask_batch(extraction, probe_id, batch, folder)
        rmtree(folder, ignore_errors=True)  # what a kill after a commit left


def _check_same(warehouse: Warehouse, probe_id: str, model: str, jobs: Sequence[Job]) -> None:
    is_same = "model = ? AND list_contains(?, fingerprint)"
    other = f"SELECT model FROM probe_answers WHERE probe_id = ? AND NOT ({is_same}) LIMIT 1"
    if others := warehouse.rows(other, [probe_id, model, [job.fingerprint for job in jobs]]):
        raise InputError(
            f"probe {probe_id!r} asked {others[0][0]} with other weights, prompts or settings of the engine; "
            "give the new probe another id"
        )


def _find_asked(warehouse: Warehouse, probe_id: str) -> set[tuple[Any, ...]]:
    rows = "SELECT benchmark, task, doc_id FROM probe_answers WHERE probe_id = ?"
    return set(warehouse.rows(rows, [probe_id]))


def _find_new(
    warehouse: Warehouse, probe_id: str, jobs: Sequence[Job], chosen: Batch
) -> list[tuple[Job, dict[int, float]]]:
    """The documents of a batch that the probe has not asked yet, as one job for each task. Raises InputError
    for a document that the task does not have."""
    left = {(*place, doc_id) for place, documents in chosen.items() for doc_id in documents}
    left -= _find_asked(warehouse, probe_id)
    batch = []
    for job in jobs:
        place = job.task.benchmark, job.task.task
        pairs = zip(job.task.documents, job.task.splits, strict=True)
        wanted = [(document, split) for document, split in pairs if (*place, document.doc_id) in left]
        if wanted:
            documents, splits = zip(*wanted, strict=True)
            drawn = {document.doc_id: float(chosen[place][document.doc_id]) for document in documents}
            batch.append((replace(job, task=replace(job.task, documents=documents, splits=splits)), drawn))
            left -= {(*place, doc_id) for doc_id in drawn}
    if left:
        benchmark, task, doc_id = min(left)
        raise InputError(f"probe {probe_id!r} chose a document that {benchmark}/{task} lacks: {doc_id}")
    return batch


def _ask_batch(
    extraction: Extraction, probe_id: str, batch: Sequence[tuple[Job, dict[int, float]]], folder: Path
) -> None:
    """Asks the documents of a batch, and commits the model's answers."""
    warehouse, model = extraction.warehouse, extraction.model
    total = sum(len(job.task.documents) + len(list_choices_alone(job.task)) for job, _ in batch)
    done, seconds = 0, 0.0
    made: list[dict[str, Any]] = []
    missing: list[str] = []
    for job, drawn in batch:
        shard, about = _ask_task(extraction, probe_id, job, folder, done, total)
        done += len(drawn) + len(list_choices_alone(job.task))
        seconds += shard.seconds
        made += probe_rows(about, drawn, shard.rows, shard.traces)
        missing += unanswered_documents(shard.rows).values()
    if len(missing) > max(1, MAX_UNANSWERED_SHARE * len(made)):
        raise RunError(
            f"{len(missing)} of {len(made)} documents have no answer (a batch may lack "
            f"{MAX_UNANSWERED_SHARE:.0%} of them, or one); {missing[0]}"
        )
    with warehouse.transaction(f"probe {model} with {count_noun(len(made), 'document')}"):
        asked = _find_asked(
            warehouse, probe_id
        )  # where the lock was lost in the meantime, by another process
        new = [row for row in made if (row["benchmark"], row["task"], row["doc_id"]) not in asked]
        put_probe_answers(warehouse.connection, new)
    rmtree(folder, ignore_errors=True)
    log("batch of a probe committed", model=model, n_docs=len(new), seconds=seconds)
    extraction.send(ProbeBatch(model, len(new), seconds, len(asked) + len(new)))


def _ask_task(
    extraction: Extraction, probe_id: str, job: Job, folder: Path, done: int, total: int
) -> tuple[Shard, dict[str, Any]]:
    """The model's answers to one task's documents in a batch, and the columns of `probe_answers` that they
    share."""
    key = job.key(extraction.model)
    paid = extraction.begin(job, f"probe {probe_id} {key.text}", probe_id)
    if paid:
        earlier = (
            "SELECT coalesce(sum(paid), 0) FROM probe_answers WHERE (probe_id, benchmark, task) = (?, ?, ?)"
        )
        [(committed,)] = extraction.warehouse.rows(earlier, [probe_id, *key[1:]])
        committed = min(committed, paid.facts()["paid"])  # another machine's payments are not known here
    shard = answer(extraction, job, folder, done=done, total=total, may_lack=1.0)
    n, record = len(job.task.documents), extraction.record
    facts = paid.facts() if paid else {}
    facts = {"versions": record["versions"]} | facts
    facts |= measure(shard.rows, shard.traces, shard.seconds, 0, record["settings"])
    return shard, key._asdict() | {
        "probe_id": probe_id,
        "fingerprint": job.fingerprint,
        "settings": json.dumps(record["settings"], sort_keys=True),
        "versions": json.dumps(facts["versions"], sort_keys=True),
        "evidence": facts["evidence"],
        "seconds": shard.seconds / n,
        "paid": (facts["paid"] - committed) / n if paid else None,
        "asked_at": datetime.now(UTC),
    }

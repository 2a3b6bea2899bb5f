"""A probe asks a model some documents, batch by batch as they are chosen, and keeps what it says to each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rlfocal.base.errors import InputError, RunError
from rlfocal.base.wording import counted
from rlfocal.extraction.engine import ChangedModelError, Paid
from rlfocal.extraction.engines import backend_of
from rlfocal.extraction.partition import Job
from rlfocal.extraction.recording import log, measure, start_log, unanswered_documents
from rlfocal.extraction.rows import probe_rows
from rlfocal.extraction.running.events import Asked, Progress
from rlfocal.extraction.running.missing import find_missing, without_other_documents
from rlfocal.extraction.running.processes import Send
from rlfocal.extraction.running.runner import cores, run_jobs
from rlfocal.extraction.running.shards import Shard, discard, probe_folder
from rlfocal.extraction.running.worker import MOST_UNANSWERED, Extraction, answer, check, documents_alone
from rlfocal.extraction.tasks import TaskDocuments
from rlfocal.pool.specs import ModelSpec
from warehouse import Warehouse, open_warehouse
from warehouse.writing import put_probe_answers

Place = tuple[str, str]
"""Benchmark and task."""
Batch = Mapping[Place, Mapping[int, float]]
"""Documents to ask, by doc_id, each with the probability with which it was drawn."""
_STORED = (
    "SELECT count(*), count(*) FILTER (list_count(coalesce(list_transform(choices, lambda c: c.unanswered), "
    "list_transform(passes, lambda p: p.unanswered))) > 0) FROM probe_answers WHERE probe_id = ?"
)
"""How many documents a probe asked, and how many of these have no answer."""
Choose = Callable[[Warehouse], Batch]
"""Chooses the next batch from what is committed; an empty one, or one of asked documents, ends the probe."""


def ask_documents(
    location: str | Path | None,
    probe_id: str,
    model: ModelSpec,
    tasks: Sequence[TaskDocuments],
    backend: str,
    choose: Choose,
    *,
    jobs: int = 1,
    seconds: float | None = None,
    on_progress: Callable[[Asked | Progress], None] | None = None,
) -> int:
    """Asks a model the documents of `tasks` that `choose` names; returns how many it asked.

    The engine starts once, in a process of its own, where `choose`, which must be picklable, is called before
    each batch. A batch is committed to `probe_answers` in one transaction; documents that the probe asked
    before are not asked again, so that a probe that was killed continues when it is called again. `jobs` is
    how many such calls share the cores; `on_progress` is called with Progress for each shard of a batch, and
    with Asked once it is committed. The model itself enters no other table.

    Raises InputError for a model that cannot run, documents that are not those of the warehouse, and a probe
    that asked another model or in another way; RunError if the engine fails: what is committed stays.
    """
    start_log()
    with open_warehouse(location) as warehouse:
        plans = find_missing([model], tasks, backend, {})
        [plan] = without_other_documents(plans, warehouse, warehouse.committed())
        reasons = [plan.reason, *(failure.reason for failure in plan.refused)]
        if reason := next(filter(None, reasons), None):
            raise (InputError if plan.is_lasting else RunError)(reason)
        _check_same(warehouse, probe_id, model.model, plan.jobs)
    asked = 0

    def report(_: str, event: Asked | Progress) -> None:
        nonlocal asked
        asked += event.n_docs if isinstance(event, Asked) else 0
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
        seconds=seconds,
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
    """Runs in the model's own process. For each batch it sends Progress, then Asked."""
    with open_warehouse(location) as warehouse, warehouse.lock(f"probe {probe_id}", wait=True):
        extraction = Extraction(model, backend, threads, warehouse, send)
        folder = probe_folder(warehouse.location.shards, probe_id)
        while batch := _find_new(warehouse, probe_id, jobs, choose(warehouse)):
            _ask_batch(extraction, probe_id, batch, folder)
        discard(folder)  # what a kill after a commit left


def _check_same(warehouse: Warehouse, probe_id: str, model: str, jobs: Sequence[Job]) -> None:
    now = {job.key(model)[1:]: (model, job.fingerprint) for job in jobs}
    stored = "SELECT DISTINCT benchmark, task, model, fingerprint FROM probe_answers WHERE probe_id = ?"
    for benchmark, task, *before in warehouse.rows(stored, [probe_id]):
        if now.get((benchmark, task), tuple(before)) != tuple(before) or before[0] != model:
            raise InputError(
                f"probe {probe_id!r} asked {before[0]} on {benchmark}/{task} as it was then: its weights, "
                "prompts or engine differ now; give the new probe another id"
            )


def _find_new(
    warehouse: Warehouse, probe_id: str, jobs: Sequence[Job], chosen: Batch
) -> list[tuple[Job, dict[int, float]]]:
    """The documents of a batch that the probe has not asked, a job of these alone for each task.

    Raises InputError for one that the warehouse or the task does not have.
    """
    asked = set(
        warehouse.rows("SELECT benchmark, task, doc_id FROM probe_answers WHERE probe_id = ?", [probe_id])
    )
    of_docs = "SELECT benchmark, task, doc_id FROM docs WHERE list_contains(?, benchmark)"
    there = set(warehouse.rows(of_docs, [[benchmark for benchmark, _ in chosen]])) if chosen else set()
    batch = []
    left = {(*place, doc_id) for place, documents in chosen.items() for doc_id in documents} - asked
    for job in jobs:
        place = job.task.benchmark, job.task.task
        wanted = [
            (document, split)
            for document, split in zip(job.task.documents, job.task.splits, strict=True)
            if (*place, document.doc_id) in left & there
        ]
        if wanted:
            documents, splits = zip(*wanted, strict=True)
            task = replace(job.task, documents=documents, splits=splits)
            drawn = {document.doc_id: float(chosen[place][document.doc_id]) for document in documents}
            batch.append((replace(job, task=task), drawn))
            left -= {(*place, doc_id) for doc_id in drawn}
    if left:
        benchmark, task, doc_id = min(left)
        raise InputError(
            f"document {doc_id} of {benchmark}/{task} was chosen for probe {probe_id!r}, but the warehouse "
            "or the task does not have it; choose among documents that other models answered"
        )
    return batch


def _ask_batch(
    extraction: Extraction, probe_id: str, batch: Sequence[tuple[Job, dict[int, float]]], folder: Path
) -> None:
    """Asks the documents of a batch, and commits what the model said to them."""
    warehouse, model = extraction.warehouse, extraction.model
    total = sum(len(job.task.documents) + len(documents_alone(job.task)) for job, _ in batch)
    made: list[dict[str, Any]] = []
    seconds, done = 0.0, 0
    missing: list[str] = []
    for job, drawn in batch:
        shard, rows = _ask_task(extraction, probe_id, job, drawn, folder, done, total)
        made += rows
        seconds += shard.seconds
        done += len(drawn) + len(documents_alone(job.task))
        missing += unanswered_documents(shard.rows).values()
    stored = warehouse.rows(_STORED, [probe_id])[0]
    n_so_far, n_missing = stored[0] + sum(len(drawn) for _, drawn in batch), stored[1] + len(missing)
    if missing and n_missing > max(1, MOST_UNANSWERED * n_so_far):
        raise RunError(
            f"{n_missing} of {n_so_far} documents have no answer (a probe may lack {MOST_UNANSWERED:.0%} of "
            f"them); {missing[0]}"
        )
    with warehouse.transaction(f"probe {model} with {counted(len(made), 'document')}"):
        if warehouse.rows(_STORED, [probe_id])[0] != stored:  # the lock was lost in the meantime
            raise RunError(f"another process asked documents for probe {probe_id!r}; run again")
        put_probe_answers(warehouse.connection, made)
    discard(folder)
    log("documents of a probe committed", model=model, n_docs=len(made), seconds=seconds)
    extraction.send(Asked(model, len(made), seconds, n_so_far))


def _ask_task(
    extraction: Extraction,
    probe_id: str,
    job: Job,
    drawn: Mapping[int, float],
    folder: Path,
    done: int,
    total: int,
) -> tuple[Shard, list[dict[str, Any]]]:
    """What the model says to the documents of one task in a batch; also as rows of `probe_answers`."""
    warehouse, engine, key = extraction.warehouse, extraction.engine, job.key(extraction.model)
    check(extraction, job)
    paid = engine if isinstance(engine, Paid) else None
    booked = 0.0
    if paid:
        paid.begin(warehouse.location.payments, f"probe {probe_id} {key.text}", probe_id)
        earlier = (
            "SELECT coalesce(sum(paid), 0) FROM probe_answers WHERE (probe_id, benchmark, task) = (?, ?, ?)"
        )
        [(committed,)] = warehouse.rows(earlier, [probe_id, *key[1:]])
        booked = min(paid.facts()["paid"], committed)  # where other machines paid, less is known here
    try:
        shard = answer(extraction, job, folder, done=done, total=total, may_lack=1.0)
    except ChangedModelError:
        discard(folder)
        if paid:
            paid.forget()
        raise
    facts = paid.facts() if paid else {}
    versions = facts.get("versions", extraction.record["versions"])
    facts |= measure(shard.rows, shard.traces, shard.seconds, 0, extraction.record["settings"])
    about = {
        **key._asdict(),
        "probe_id": probe_id,
        "fingerprint": job.fingerprint,
        "settings": json.dumps(extraction.record["settings"], sort_keys=True),
        "versions": json.dumps(versions, sort_keys=True),
        "evidence": facts["evidence"],
        "seconds": shard.seconds / len(drawn),
        "paid": (facts["paid"] - booked) / len(drawn) if paid else None,
        "asked_at": datetime.now(UTC),
    }
    return shard, probe_rows(about, drawn, shard.rows, shard.traces)

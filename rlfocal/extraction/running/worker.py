"""What one model's process does: start the engine once, answer every missing task, commit each when whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from logging import ERROR
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa

from rlfocal.base.errors import InputError
from rlfocal.extraction.engine import ChangedModelError, Document, Engine, Paid
from rlfocal.extraction.engines import start_engine
from rlfocal.extraction.logs import log
from rlfocal.extraction.partition import Job, is_covered, partition_lock
from rlfocal.extraction.recording import count_start, measure
from rlfocal.extraction.rows import (
    CHOICES,
    PASSES,
    choice_rows,
    doc_rows,
    documents_of_choices,
    pass_rows,
    prompt_rows,
    thought_rows,
    trace_rows,
    with_unconditional,
)
from rlfocal.extraction.running.events import AlreadyCommitted, Event, Extracted, Failure, Progress
from rlfocal.extraction.running.faults import explain
from rlfocal.extraction.running.missing import refusal_to_shorten
from rlfocal.extraction.running.processes import Send
from rlfocal.extraction.running.shards import (
    Shard,
    Shards,
    discard,
    discard_shards,
    identity,
    shard_folder,
)
from rlfocal.extraction.tasks import TaskDocuments
from rlfocal.pool.specs import ModelSpec, ThinkingSpec
from warehouse import Warehouse
from warehouse.disk import DiskFullError
from warehouse.store import PartitionKey
from warehouse.validity import check_scores

ALONE = " alone"
"""Part of the identity of shards whose documents are choices after an empty prompt."""


@dataclass(frozen=True)
class Extraction:
    """A loaded model, and where its answers go."""

    model: str
    engine: Engine
    warehouse: Warehouse
    send: Send
    record: dict[str, Any]
    """What every partition's record says: model, backend, settings, versions."""


def extract_jobs(
    send: Send,
    location: str | Path | None,
    model: ModelSpec,
    backend: str,
    jobs: Sequence[Job],
    threads: int,
) -> None:
    """Runs in the model's own process. For each job it sends Progress, then one other event."""
    from warehouse import open_warehouse

    with open_warehouse(location, read_only=True) as warehouse:
        jobs = _find_left(send, warehouse, model.model, jobs)
    if not jobs:
        return
    engine = start_engine(model, backend, threads)
    with open_warehouse(location) as warehouse:
        extraction = _extraction(send, warehouse, model, backend, engine)
        locked = [job for job in jobs if not _run(extraction, job, wait=False)]
        for job in locked:  # other runs are at these
            _run(extraction, job, wait=True)


def _extraction(
    send: Send, warehouse: Warehouse, model: ModelSpec, backend: str, engine: Engine
) -> Extraction:
    slower = {} if engine.slower is None else {"slower": engine.slower}
    record = {
        "model": model.model,
        "backend": backend,
        "settings": _weights(model) | engine.settings() | slower,
        "versions": engine.versions(),
    }
    return Extraction(model.model, engine, warehouse, send, record)


def _find_left(send: Send, warehouse: Warehouse, model: str, jobs: Sequence[Job]) -> list[Job]:
    """The jobs that no other run has committed since this one was planned: an engine takes minutes."""
    committed = warehouse.committed(model)
    left: list[Job] = []
    for job in jobs:
        key = job.key(model)
        if is_covered(job, committed.get(key)):
            send(AlreadyCommitted(*key))
        else:
            left.append(job)
    return left


def _run(extraction: Extraction, job: Job, *, wait: bool) -> bool:
    """Runs one job; False if another process has the partition's lock and `wait` is not set."""
    key = job.key(extraction.model)
    try:
        with partition_lock(extraction.warehouse, key, wait=wait) as mine:
            if not mine:
                return False
            event = _commit(extraction, key, job)
    except DiskFullError:
        raise  # every further partition would fail too, after hours of work for nothing
    except Exception as error:
        event = Failure("extract", *key, explain(error), isinstance(error, InputError))
        log("partition failed", level=ERROR, **key._asdict(), reason=event.reason)
    extraction.send(event)
    return True


def _weights(model: ModelSpec) -> dict[str, Any]:
    """What the entry says of the weights; of files and adapters where it names one."""
    on_top = model.model_dump(include={"gguf_file", "adapter", "adapter_revision"}, exclude_defaults=True)
    return {"hf_repo": model.hf_repo, "revision": model.revision} | on_top


def _commit(extraction: Extraction, key: PartitionKey, job: Job) -> Event:
    """Extracts and commits a partition unless another run has. Needs the partition's lock."""
    task, warehouse = job.task, extraction.warehouse
    folder = shard_folder(warehouse.location.shards, key)
    there = warehouse.committed(key.model, key.benchmark).get(key)
    if is_covered(job, there):
        return AlreadyCommitted(*key)
    if reason := refusal_to_shorten(job, there):
        raise InputError(reason)
    extraction.engine.check(task.documents, task.sampling, job.thinking)
    if alone := _documents_alone(task):
        extraction.engine.check(alone)
    paid = extraction.engine if isinstance(extraction.engine, Paid) else None
    if paid:
        paid.begin(warehouse.location.payments, folder.name)
    retries = count_start(folder)
    try:
        rows, seconds, traces = _answer(extraction, job, folder)
    except ChangedModelError:
        discard_shards(folder)
        if paid:
            paid.forget()
        raise
    made = paid.facts() if paid else {}
    made |= measure(rows, traces, seconds, retries, extraction.record["settings"])
    written = warehouse.put_partition(
        doc_rows(task),
        rows,
        {
            **extraction.record,
            "benchmark": task.benchmark,
            "task": task.task,
            "fingerprint": job.fingerprint,
            "n_docs": len(task.documents),
            "n_whole": task.n_whole,
            "seconds": seconds,
            **made,
        },
        prompts=prompt_rows(task, key.model, extraction.engine.texts(task.documents)),
        traces=traces,
        replace_documents=job.replace_documents,
        unless=lambda now: is_covered(job, now),  # if the lock was lost in the meantime
    )
    discard(folder)
    if written:
        log("partition committed", **key._asdict(), n_docs=len(task.documents), seconds=seconds, **made)
    return Extracted(*key, len(task.documents), seconds) if written else AlreadyCommitted(*key)


def _answer(extraction: Extraction, job: Job, folder: Path) -> Shard:
    """The rows of a partition. The engine answers only documents that are in no saved shard."""
    task, record = job.task, extraction.record
    texts = _documents_alone(task)
    total = len(task.documents) + len(texts)

    def answer(documents: Sequence[Document], kind: str, thinking: ThinkingSpec | None, done: int) -> Shard:
        own = identity(job.fingerprint + kind, record["settings"], record["versions"])
        return _answer_in_shards(extraction, task, thinking, documents, Shards(folder, own), done, total)

    made = answer(task.documents, "", job.thinking, 0)
    if not texts:
        return made
    scored = answer(texts, ALONE, None, len(task.documents))
    rows = with_unconditional(made.rows, scored.rows, task.documents)
    return Shard(rows, made.seconds + scored.seconds, made.traces)


def _documents_alone(task: TaskDocuments) -> list[Document]:
    return documents_of_choices(task.documents) if task.unconditional else []


def _answer_in_shards(
    extraction: Extraction,
    task: TaskDocuments,
    thinking: ThinkingSpec | None,
    documents: Sequence[Document],
    shards: Shards,
    done: int,
    total: int,
) -> Shard:
    """The rows of some documents, from their shards if saved; `done` of `total` were answered before."""
    schema = CHOICES if task.sampling is None else PASSES
    about: dict[str, Any] = {"model": extraction.model, "benchmark": task.benchmark, "task": task.task}
    made: list[Shard] = []
    size = extraction.engine.shard // (1 if thinking is None else thinking.traces) or 1
    for number, group in enumerate(_split(documents, size)):
        doc_ids = [d.doc_id for d in group]
        shard = shards.read(doc_ids, schema)
        if shard is None:
            shard = _ask(extraction, task, thinking, group)
            log("shard answered", **about, shard=number, n_docs=len(group), seconds=shard.seconds)
            if len(group) < total:  # a shard that is the partition is committed at once
                shards.write(doc_ids, shard)
        made.append(shard)
        done += len(group)
        extraction.send(Progress(**about, done=done, total=total))
    traces = [shard.traces for shard in made if shard.traces is not None]
    return Shard(
        pa.concat_tables(shard.rows for shard in made),
        sum(shard.seconds for shard in made),
        pa.concat_tables(traces) if traces else None,
    )


def _split(documents: Sequence[Document], size: int) -> Iterator[Sequence[Document]]:
    """Groups by position alone, so that a resumed run asks exactly what an uninterrupted one would ask."""
    for start in range(0, len(documents), size):
        yield documents[start : start + size]


def _ask(
    extraction: Extraction, task: TaskDocuments, thinking: ThinkingSpec | None, documents: Sequence[Document]
) -> Shard:
    engine, about = extraction.engine, (task, extraction.model, documents)
    started = perf_counter()
    traces = None
    if thinking is not None:
        rows, traces = _think(engine, thinking, *about)
    elif task.sampling is None:
        rows = choice_rows(*about, list(engine.score(documents)))
    else:
        rows = pass_rows(*about, list(engine.sample(documents, task.sampling)))
    shard = Shard(rows, perf_counter() - started, traces)
    for table in (rows, traces):
        if table is not None:
            check_scores(table)  # before hours of work for rows that the warehouse would refuse
    return shard


def _think(
    engine: Engine, thinking: ThinkingSpec, task: TaskDocuments, model: str, documents: Sequence[Document]
) -> tuple[pa.Table, pa.Table]:
    """The rows of answers after traces, and those of the traces."""
    about = task, model, documents
    traces = list(engine.think(documents, thinking, task.sampling))
    if task.sampling is None:
        scores = list(engine.score_after(documents, thinking, traces))
        return thought_rows(*about, scores), trace_rows(*about, traces, scores)
    samples = list(engine.sample_after(documents, task.sampling, thinking, traces))
    return pass_rows(*about, samples), trace_rows(*about, traces, None)

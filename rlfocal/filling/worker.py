"""What one model's process does: start the engine once, answer every missing task, commit each when whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa

from rlfocal.errors import InputError
from rlfocal.extraction.backends import start_engine
from rlfocal.extraction.engine import Document, Engine
from rlfocal.extraction.partition import CHOICES, PASSES, choice_rows, doc_rows, pass_rows
from rlfocal.extraction.tasks import TaskDocuments
from rlfocal.filling.events import Committed, Event, Gap, Present, Progress
from rlfocal.filling.faults import told
from rlfocal.filling.partitions import Held, Place, Work, covers, held_partitions, partition_lock
from rlfocal.filling.processes import Send
from rlfocal.filling.shards import Shard, Shards, discard, identity, shard_folder
from rlfocal.pool.specs import ModelSpec
from warehouse import Warehouse
from warehouse.alignment import shortening
from warehouse.disk import DiskFullError


@dataclass(frozen=True)
class Extraction:
    """A loaded model, and where its answers go."""

    model: str
    engine: Engine
    warehouse: Warehouse
    send: Send
    record: dict[str, Any]
    """What every partition's record says: model, backend, settings, versions."""


def extract(
    send: Send,
    location: str | Path | None,
    model: ModelSpec,
    backend: str,
    work: Sequence[Work],
    threads: int,
) -> None:
    """Runs in the model's own process. Sends Progress, then Committed, Present or Gap, per partition."""
    from warehouse import open_warehouse

    with open_warehouse(location, read_only=True) as warehouse:
        work = _left(send, warehouse, model.model, work)
    if not work:
        return
    engine = start_engine(model, backend, threads)
    record = {
        "model": model.model,
        "backend": backend,
        "settings": {"hf_repo": model.hf_repo, "revision": model.revision, **engine.settings()},
        "versions": engine.versions(),
    }
    with open_warehouse(location) as warehouse:
        extraction = Extraction(model.model, engine, warehouse, send, record)
        busy = [w for w in work if not _fill(extraction, w, wait=False)]
        for w in busy:
            _fill(extraction, w, wait=True)


def _left(send: Send, warehouse: Warehouse, model: str, work: Sequence[Work]) -> list[Work]:
    """Without what another extraction committed since this one began: an engine may take minutes to start."""
    held = held_partitions(warehouse, model)
    left: list[Work] = []
    for w in work:
        if covers(held.get(w.place(model)), w):
            send(Present(*w.place(model)))
        else:
            left.append(w)
    return left


def _fill(extraction: Extraction, work: Work, *, wait: bool) -> bool:
    """Sees to one partition; False where another process is at it and `wait` is not set."""
    place = work.place(extraction.model)
    try:
        with partition_lock(extraction.warehouse, place, wait=wait) as mine:
            if not mine:
                return False
            event = _filled(extraction, place, work)
    except DiskFullError:
        raise  # it would befall every further partition, after hours of work for nothing
    except Exception as error:
        event = Gap("extract", *place, told(error))
    extraction.send(event)
    return True


def _filled(extraction: Extraction, place: Place, work: Work) -> Event:
    """Extracts and commits a partition unless another extraction has. Needs the partition's lock."""
    task, warehouse = work.task, extraction.warehouse
    folder = shard_folder(warehouse.location.shards, place)

    def held() -> Held | None:
        return held_partitions(warehouse, place.model).get(place)

    there = held()
    if covers(there, work):
        return Present(*place)
    if there and (reason := shortening(there.n_docs, len(task.documents), task.n_whole)):
        raise InputError(reason)
    extraction.engine.check(task.documents, task.sampling)
    rows, seconds = _answers(extraction, work, folder)
    written = warehouse.put_partition(
        doc_rows(task),
        rows,
        {
            **extraction.record,
            "benchmark": task.benchmark,
            "task": task.task,
            "fingerprint": work.fingerprint,
            "n_docs": len(task.documents),
            "n_whole": task.n_whole,
            "seconds": seconds,
        },
        replace_documents=work.replace_documents,
        unless=lambda: covers(held(), work),  # where the lock was lost meanwhile
    )
    discard(folder)
    return Committed(*place, len(task.documents), seconds) if written else Present(*place)


def _answers(extraction: Extraction, work: Work, folder: Path) -> Shard:
    """The rows of a partition. The engine is asked only for those documents that no saved shard answers."""
    task, record = work.task, extraction.record
    shards = Shards(folder, identity(work.fingerprint, record["settings"], record["versions"]))
    schema = CHOICES if task.sampling is None else PASSES
    made: list[Shard] = []
    done = 0
    for documents in _groups(task, extraction.engine.shard):
        doc_ids = [d.doc_id for d in documents]
        shard = shards.read(doc_ids, schema)
        if shard is None:
            shard = _ask(extraction, task, documents)
            if len(documents) < len(task.documents):  # a shard that is the partition is committed at once
                shards.write(doc_ids, shard)
        made.append(shard)
        done += len(documents)
        extraction.send(Progress(extraction.model, task.benchmark, task.task, done, len(task.documents)))
    return Shard(pa.concat_tables(s.rows for s in made), sum(s.seconds for s in made))


def _groups(task: TaskDocuments, size: int) -> Iterator[Sequence[Document]]:
    """Groups by position alone, so that a resumed run asks what an undisturbed one asks, to the last bit."""
    for start in range(0, len(task.documents), size):
        yield task.documents[start : start + size]


def _ask(extraction: Extraction, task: TaskDocuments, documents: Sequence[Document]) -> Shard:
    started = perf_counter()
    if task.sampling is None:
        rows = partial(choice_rows, scores=list(extraction.engine.score(documents)))
    else:
        rows = partial(pass_rows, samples=list(extraction.engine.sample(documents, task.sampling)))
    seconds = perf_counter() - started
    return Shard(rows(task, extraction.model, documents), seconds)

"""The work of one model's process: it starts the engine once, answers every missing task, and commits whole
tasks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from time import perf_counter
from typing import Any

import pyarrow as pa

from rlfocal.base.errors import RunError
from rlfocal.extraction.engine import ChangedModelError, Document, Engine, HopelessError, PaidEngine
from rlfocal.extraction.engines import start_engine, tokenizer_for
from rlfocal.extraction.estimate import KNOWN_GPUS, gpu_of, hours_of_choices
from rlfocal.extraction.partition import Job, describe_weights
from rlfocal.extraction.recording import (
    count_start,
    documents_to_ask,
    gpu_facts,
    log,
    measure,
    unanswered_documents,
)
from rlfocal.extraction.rows import (
    CHOICE_SCHEMA,
    PASS_SCHEMA,
    add_unconditional,
    choice_rows,
    doc_rows,
    documents_of_choices,
    pass_rows,
    prompt_rows,
    thought_rows,
    trace_rows,
)
from rlfocal.extraction.running.committing import AnsweredPartition, Batch, log_failure
from rlfocal.extraction.running.events import ConcurrentPartition, Event, Failure, Progress, explain
from rlfocal.extraction.running.processes import Send, StoppedError, check_not_stopped
from rlfocal.extraction.running.stored_answers import (
    Shard,
    Shards,
    find_stored,
    identity,
    merge_shards,
    shard_folder,
)
from rlfocal.extraction.tasks import TaskDocuments
from rlfocal.pool.specs import ModelSpec
from warehouse import Warehouse
from warehouse.alignment import check_scores
from warehouse.limits import DiskFullError
from warehouse.store import PartitionKey, PartitionRecord
from warehouse.writing import Partition

MAX_UNANSWERED_SHARE = 0.25
"""The largest share of a task's documents that may be left without an answer. Beyond it, the task fails."""
MISSING_ANSWER_ADVICE = {
    "unclear": "; ask for a letter in the `system_prompt` of a chat benchmark, or raise max_tokens in "
    "engine_args: {chat: ...}",
    "empty": "; raise max_tokens, which reasoning uses too: of the benchmark's sampling, or max_tokens or "
    "max_completion_tokens in engine_args: {chat: {body: ...}}",
    "filtered": "; leave the benchmark out for this model, or ask a service that does not filter it",
}
"""Advice on documents without an answer, by kind of reason."""
ALONE_SUFFIX = " alone"
"""A part of the identity of shards with choices that are scored after an empty prompt."""


@dataclass(frozen=True)
class Extraction:
    """A model and the warehouse for its answers. The model is loaded when the first partition needs it."""

    spec: ModelSpec
    backend: str
    threads: int
    warehouse: Warehouse
    send: Send
    jobs: Sequence[Job] = ()
    """The partitions that this process has to extract."""
    stop_if_slower: bool = False

    @property
    def model(self) -> str:
        return self.spec.model

    @cached_property
    def engine(self) -> Engine:
        """The engine. It is loaded on first use, which can take minutes. Raises HopelessError if it is slower
        than usual and `stop_if_slower` is set."""
        engine = start_engine(self.spec, self.backend, self.threads)
        if engine.slower is not None:
            product = str(gpu_facts(engine.settings()).get("device_product", ""))
            gpu = gpu_of(product) or KNOWN_GPUS["H100"]
            once, each = hours_of_choices(self.spec, [job.task for job in self.jobs], gpu)
            says = f"{engine.slower} (planned: {each:.2f} {gpu.name}-hours instead of {once:.2f})"
            if self.stop_if_slower:
                raise HopelessError(f"the engine {says}, and --stop-if-slower is given")
            print(f"slower: {self.model} {says}", file=sys.stderr, flush=True)
        return engine

    @cached_property
    def record(self) -> dict[str, Any]:
        """The columns that every partition's record shares: model, backend, settings and versions."""
        slower = {} if self.engine.slower is None else {"slower": self.engine.slower}
        checked = tokenizer_for(self.backend, self.spec)
        tokenizer = {} if checked is None else {"tokenizer": checked.digest}
        settings = self.engine.settings()
        return {
            "model": self.model,
            "backend": self.backend,
            "settings": describe_weights(self.spec) | settings | gpu_facts(settings) | slower | tokenizer,
            "versions": self.engine.versions(),
        }

    @cached_property
    def probed_partitions(self) -> set[tuple[Any, ...]]:
        """The (benchmark, task) of partitions of which a probe has asked documents before."""
        rows = "SELECT DISTINCT benchmark, task FROM probe_answers WHERE model = ?"
        return set(self.warehouse.rows(rows, [self.model]))

    def begin(self, job: Job, ledger: str, probe_id: str | None = None) -> PaidEngine | None:
        """Loads the engine for a job. Returns it if it is paid, with its payments noted under the name
        `ledger`. Raises InputError, before any request, if the engine cannot answer a document."""
        self.engine.check(job.task.documents, job.task.sampling, job.thinking)
        if alone := list_choices_alone(job.task):
            self.engine.check(alone)
        if not isinstance(self.engine, PaidEngine):
            return None
        self.engine.begin(self.warehouse.location.payments, ledger, probe_id)
        return self.engine


def extract_jobs(
    send: Send,
    location: str | Path | None,
    model: ModelSpec,
    backend: str,
    jobs: Sequence[Job],
    threads: int,
    stop_if_slower: bool = False,
) -> None:
    """Extracts jobs, in the model's own process. For each job it sends Progress events, then one other
    event."""
    from warehouse import open_warehouse

    benchmarks: dict[str, list[Job]] = {}
    for job in jobs:
        benchmarks.setdefault(job.task.benchmark, []).append(job)
    left = list(jobs)
    with open_warehouse(location, threads=1) as warehouse, Batch(warehouse, model.model, send) as batch:
        extraction = Extraction(model, backend, threads, warehouse, send, jobs, stop_if_slower)
        try:
            busy = [name for name in benchmarks if not _run(extraction, batch, benchmarks[name], left)]
            for name in busy:  # other runs are at these
                _run(extraction, batch, benchmarks[name], left, wait=True)
            batch.commit()
        except HopelessError as error:
            batch.commit()
            for job in left:
                send(Failure("extract", *job.key(model.model), explain(error), lasting=True))
        except StoppedError:  # who asked for it says what is left, and why
            batch.commit()


def _run(
    extraction: Extraction, batch: Batch, jobs: Sequence[Job], todo: list[Job], *, wait: bool = False
) -> bool:
    """Answers the jobs of one benchmark, and removes them from `todo`. Returns False if another process holds
    the benchmark's lock and `wait` is not set."""
    benchmark = jobs[0].task.benchmark
    if not batch.lock(benchmark, wait=wait):
        return False
    committed = extraction.warehouse.committed_partitions(extraction.model, benchmark)
    for job in jobs:
        key = job.key(extraction.model)
        try:
            outcome = _answer_job(extraction, key, job, committed.get(key))
        except (DiskFullError, HopelessError, StoppedError):
            raise  # every further partition would fail too, after hours of work for nothing
        except Exception as error:
            if "engine" not in vars(extraction):  # it was not loaded
                raise  # no partition's fault
            outcome = log_failure(key, error)
        todo.remove(job)
        if isinstance(outcome, AnsweredPartition):
            batch.add(outcome)
        else:
            extraction.send(outcome)
    return True


def _answer_job(
    extraction: Extraction, key: PartitionKey, job: Job, entry: PartitionRecord | None
) -> AnsweredPartition | Event:
    """Answers a partition, unless `entry` shows that another run has committed it. This is checked under the
    benchmark's lock, before the engine is loaded."""
    task, warehouse = job.task, extraction.warehouse
    folder = shard_folder(warehouse.location.shards, key.text)
    if job.is_covered_by(entry):
        return ConcurrentPartition(*key)
    if reason := job.explain_refusal(entry):
        return Failure("extract", *key, reason, lasting=True)
    paid = extraction.begin(job, folder.name)
    retries = count_start(folder)
    stored = None
    if entry or key[1:] in extraction.probed_partitions:
        stored = find_stored(warehouse, job, extraction.record, entry)
    rows, seconds, traces = answer(extraction, job, folder, stored and stored.shard)
    if stored and paid and paid.facts()["versions"]["answered_by"] not in (None, stored.answered_by):
        stored = None  # the service runs another model now
        rows, seconds, traces = answer(extraction, job, folder)
    is_there = entry is not None and job.is_covered_by(entry._replace(n_to_ask=0))
    if stored and entry and is_there and len(documents_to_ask(rows)) == entry.n_to_ask:  # nothing new
        rmtree(folder, ignore_errors=True)
        return ConcurrentPartition(*key)
    made = paid.facts() if paid else {}
    if stored and paid:
        made["paid"] += stored.paid
        made |= stored.facts if len(stored.doc_ids) == len(task.documents) else {}
    made |= measure(rows, traces, seconds, retries, extraction.record["settings"])
    about = {"n_docs": len(task.documents), "seconds": seconds, **made}
    record = {
        **extraction.record,
        "benchmark": task.benchmark,
        "task": task.task,
        "fingerprint": job.fingerprint,
        "n_whole": task.n_whole,
        **about,
    }
    prompts = prompt_rows(task, key.model, extraction.engine.texts(task.documents))
    partition = Partition(doc_rows(task), rows, record, prompts, traces, job.replace_documents)
    return AnsweredPartition(key, job, partition, folder, about)


def answer(
    extraction: Extraction,
    job: Job,
    folder: Path,
    stored: Shard | None = None,
    *,
    done: int = 0,
    total: int | None = None,
    may_lack: float = MAX_UNANSWERED_SHARE,
) -> Shard:
    """The rows of a job. The engine answers only documents without a row in `stored`.

    Progress counts from `done` to `total`, by default the number of documents to ask. `may_lack` is the
    largest share of the documents that may be left without an answer.
    """
    task = job.task
    texts = list_choices_alone(task)
    answered_ids = set() if stored is None else set(stored.rows["doc_id"].to_pylist())
    documents = [document for document in task.documents if document.doc_id not in answered_ids]
    total = len(documents) + len(texts) if total is None else total

    made = [] if stored is None else [stored]
    try:
        if documents:
            made.append(_answer_in_shards(extraction, job, documents, folder, done, total, may_lack))
    except ChangedModelError:  # all that it said is dropped
        for file in folder.glob("*.arrow"):  # not the note of how often it was started
            file.unlink(missing_ok=True)
        if isinstance(extraction.engine, PaidEngine):
            extraction.engine.forget()
        raise
    answered = made[0] if len(made) == 1 else merge_shards(made)
    if not texts:
        return answered
    suffix = ALONE_SUFFIX + "\0".join(text for document in texts for text in document.continuations)
    alone = replace(job, fingerprint=job.fingerprint + suffix, thinking=None)
    scored = _answer_in_shards(extraction, alone, texts, folder, done + len(documents), total, may_lack)
    rows = add_unconditional(answered.rows, scored.rows, task.documents)
    return Shard(rows, answered.seconds + scored.seconds, answered.traces)


def list_choices_alone(task: TaskDocuments) -> list[Document]:
    """The choices of a task as documents that are scored after an empty prompt; empty unless it is
    `unconditional`."""
    return documents_of_choices(task.documents) if task.unconditional else []


def _answer_in_shards(
    extraction: Extraction,
    job: Job,
    documents: Sequence[Document],
    folder: Path,
    done: int,
    total: int,
    may_lack: float,
) -> Shard:
    """The rows of some documents, read from the shards saved in `folder` where there are any. `done` of
    `total` documents were answered before."""
    task, record = job.task, extraction.record
    shards = Shards(folder, identity(job.fingerprint, record["settings"], record["versions"]))
    schema = CHOICE_SCHEMA if task.sampling is None else PASS_SCHEMA
    about: dict[str, Any] = {"model": extraction.model, "benchmark": task.benchmark, "task": task.task}
    made: list[Shard] = []
    size = extraction.engine.shard // (1 if job.thinking is None else job.thinking.traces) or 1
    for number, start in enumerate(range(0, len(documents), size)):
        group = documents[start : start + size]  # by position alone: a resumed run makes the same requests
        doc_ids = [d.doc_id for d in group]
        shard = shards.read(doc_ids, schema)
        if shard is None:
            check_not_stopped()
            shard = _ask(extraction, job, group)
            log("shard answered", **about, shard=number, n_docs=len(group), seconds=shard.seconds)
            if not documents_to_ask(shard.rows):  # what may pass is asked again
                shards.write(doc_ids, shard)
        made.append(shard)
        done += len(group)
        missing = unanswered_documents(pa.concat_tables(each.rows for each in made))
        is_dead = number == 0 and len(missing) == len(group) == size
        if len(missing) > may_lack * len(task.documents) or is_dead:
            raise RunError(_explain_unanswered(missing, done, record["settings"].get("url")))
        extraction.send(Progress(**about, done=done, total=total))
    traces = [shard.traces for shard in made if shard.traces is not None]
    return Shard(
        pa.concat_tables(shard.rows for shard in made),
        sum(shard.seconds for shard in made),
        pa.concat_tables(traces) if traces else None,
    )


def _explain_unanswered(missing: Mapping[int, str], done: int, url: object) -> str:
    """The reason why a task fails: too many of its documents have no answer. `url` is the service, if it is
    one."""
    [(first, reason), *_] = missing.items()
    by = "" if url is None else f" from {url}"
    return (
        f"{len(missing)} of {done} documents have no answer{by} (a task may lack {MAX_UNANSWERED_SHARE:.0%} "
        f"of them); document {first}, {reason}{MISSING_ANSWER_ADVICE.get(reason.partition(':')[0], '')}"
    )


def _ask(extraction: Extraction, job: Job, documents: Sequence[Document]) -> Shard:
    """The engine's answers to some documents, and the traces before them if the model thinks."""
    engine, sampling, thinking = extraction.engine, job.task.sampling, job.thinking
    about = job.task, extraction.model, documents
    started = perf_counter()
    traces = None
    if thinking is not None:
        thoughts, scores = list(engine.think(documents, thinking, sampling)), None
        if sampling is None:
            scores = list(engine.score_after(documents, thinking, thoughts))
            rows = thought_rows(*about, scores)
        else:
            rows = pass_rows(*about, list(engine.sample_after(documents, sampling, thinking, thoughts)))
        traces = trace_rows(*about, thoughts, scores)
    elif sampling is None:
        rows = choice_rows(*about, list(engine.score(documents)))
    else:
        rows = pass_rows(*about, list(engine.sample(documents, sampling)))
    shard = Shard(rows, perf_counter() - started, traces)
    for table in (rows, traces):
        if table is not None:
            check_scores(table)  # before hours of work for rows that the warehouse would refuse
    return shard

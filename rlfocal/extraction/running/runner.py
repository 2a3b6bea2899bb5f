"""Extracts a pool: finds the partitions that are missing, runs one process per model, reports the outcome."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from logging import ERROR
from pathlib import Path
from time import perf_counter
from typing import Any

from rlfocal.extraction.engines.backends import check_backend
from rlfocal.extraction.gpus.devices import Device, find_gpus
from rlfocal.extraction.gpus.leases import lease_folder
from rlfocal.extraction.gpus.schedule import in_order
from rlfocal.extraction.logs import log, start_log
from rlfocal.extraction.plan.gpus import DEFAULT, GPUS, gpu_of
from rlfocal.extraction.running.events import AlreadyCommitted, Event, Extracted, Failure
from rlfocal.extraction.running.faults import over_time
from rlfocal.extraction.running.gpu_jobs import Jobs, run_on_gpus
from rlfocal.extraction.running.missing import (
    facts_of,
    name_of,
    plan_of,
    refuse_other_documents,
    replacing,
    works_of,
)
from rlfocal.extraction.running.partitions import Job
from rlfocal.extraction.running.processes import run_each
from rlfocal.extraction.running.shards import discard_leftovers
from rlfocal.extraction.running.worker import extract, extract_on_gpus, wait_for_others
from rlfocal.extraction.tasks import TaskDocuments, load_tasks
from rlfocal.pool.specs import ModelSpec, PoolSpec
from warehouse import check_location, open_warehouse
from warehouse.store import PartitionKey

OnProgress = Callable[[Event], None]
PRELOADED = {"hf": ("rlfocal.extraction.engines.hf", "transformers.models.llama.modeling_llama")}
"""Modules imported once for all processes of a backend; a Llama's import what every model needs."""


@dataclass(frozen=True)
class ModelOutcome:
    """What extraction did for one model."""

    model: str
    committed: tuple[Extracted, ...]
    skipped: tuple[tuple[str, str], ...]
    """(benchmark, task) of the partitions that were committed already."""
    missing: tuple[Failure, ...]


@dataclass(frozen=True)
class ExtractionReport:
    """What extraction did for a pool."""

    outcomes: tuple[ModelOutcome, ...]
    seconds: float

    @property
    def committed(self) -> list[Extracted]:
        return [c for o in self.outcomes for c in o.committed]

    @property
    def missing(self) -> list[Failure]:
        return [m for o in self.outcomes for m in o.missing]

    @property
    def n_skipped(self) -> int:
        """Partitions that were committed already."""
        return sum(len(o.skipped) for o in self.outcomes)

    @property
    def n_docs(self) -> int:
        """Documents answered in this run, counted once per model."""
        return sum(c.n_docs for c in self.committed)


def extract_pool(
    location: str | Path | None,
    pool: PoolSpec,
    *,
    backend: str | None = None,
    limit: int | None = None,
    datasets: str | Path | None = None,
    jobs: int | None = None,
    replace_documents: bool = False,
    on_progress: OnProgress | None = None,
) -> ExtractionReport:
    """Extracts every partition of the pool that the warehouse lacks, `jobs` models at a time.

    On GPUs, as many engines run as there are GPUs for, and at most `jobs` where that is given.
    `datasets` is a local mirror of the data sets. `limit` takes the first documents of every task; a longer
    committed partition stays. A task whose documents differ from those that other models answered is
    refused; with `replace_documents`, the first commit drops all models' answers to the old ones.
    A model that fails is reported, and the others continue.
    Raises InputError or RunError, with nothing written, if the backend or a benchmark is not available.
    """
    started = perf_counter()
    backend = backend or pool.backend
    check_backend(backend)
    check_location(location)
    tasks = load_tasks(pool.benchmarks, limit, datasets)
    outcomes = _extract(location, pool.models, tasks, backend, jobs, replace_documents, on_progress, jobs)
    return ExtractionReport(tuple(outcomes), perf_counter() - started)


def extract_model(
    location: str | Path | None,
    pool: PoolSpec,
    model: str,
    tasks: Sequence[TaskDocuments],
    *,
    backend: str | None = None,
    jobs: int = 1,
    engines: int | None = None,
    seconds: float | None = None,
    on_progress: OnProgress | None = None,
) -> ModelOutcome:
    """`extract_pool` for one model and tasks that are loaded; `jobs` is how many such calls share the cores.

    `engines`: the most that it may have at once on GPUs; None means as many as there are GPUs for.
    `seconds`: how long its process may take before it is stopped; what it has not committed is missing.
    """
    backend = backend or pool.backend
    check_backend(backend)
    [spec] = pool.choose(models=[model]).models
    [outcome] = _extract(location, [spec], tasks, backend, jobs, False, on_progress, engines, seconds)
    return outcome


def default_jobs(backend: str) -> int:
    """How many models run at once by default: one per GPU, and on a CPU 2, or 1 with vLLM."""
    return len(_gpus(backend)) or (1 if backend == "vllm" else 2)


def _extract(
    location: str | Path | None,
    models: Sequence[ModelSpec],
    tasks: Sequence[TaskDocuments],
    backend: str,
    jobs: int | None,
    replace_documents: bool,
    on_progress: OnProgress | None,
    at_once: int | None,
    seconds: float | None = None,
) -> list[ModelOutcome]:
    """`jobs`: how many models share the machine's cores; `at_once`: the most engines on GPUs."""
    start_log()
    with open_warehouse(location) as warehouse:
        warehouse.put_models(models, facts_of(tasks))
        committed = warehouse.committed()
        plan = plan_of(models, tasks, backend, committed)
        if replace_documents:
            plan = replacing(plan)
        else:
            refuse_other_documents(plan, warehouse, committed)
        for key in plan.covered:
            discard_leftovers(warehouse, key)
    pending = {name: left for name, left in plan.pending.items() if left}
    told: list[Event] = []

    def report(_: str, event: Event) -> None:
        told.append(event)
        if on_progress is not None:
            on_progress(event)

    for key in plan.covered:
        if key.model in pending:
            report(key.model, AlreadyCommitted(*key))
    gpus = _gpus(backend)
    jobs = jobs or len(gpus) or min(default_jobs(backend), len(models))
    threads = max(1, cores() // jobs)
    preload = PRELOADED.get(backend, ())
    if gpus:
        ended = _run_on_gpus(
            location, plan.specs, backend, pending, threads, gpus, at_once, seconds, report, preload
        )
    else:
        arguments = {
            name: (location, plan.specs[name], backend, left, threads) for name, left in pending.items()
        }
        ended = run_each(extract, arguments, at_once=jobs, on_event=report, preload=preload, seconds=seconds)
    failed = plan.failed | ended
    lasting = plan.failed.keys() - plan.unreached
    if seconds is not None:
        lasting |= {name for name, reason in ended.items() if reason == over_time(seconds)}
    events = [*plan.refused, *told]
    outcomes = [
        _outcome(m.model, tasks, plan.pending.get(m.model), failed.get(m.model), m.model in lasting, events)
        for m in models
    ]
    for gap in (gap for outcome in outcomes for gap in outcome.missing if gap not in told):
        about = PartitionKey(gap.model, gap.benchmark, gap.task)._asdict()
        log("partition failed", level=ERROR, **about, reason=gap.reason)
    return outcomes


def _gpus(backend: str) -> tuple[Device, ...]:
    """Those that engines here may use; a server's are its own."""
    return () if backend == "openai" else find_gpus()


def _run_on_gpus(
    location: str | Path | None,
    specs: Mapping[str, ModelSpec],
    backend: str,
    pending: Mapping[str, Sequence[Job]],
    threads: int,
    gpus: Sequence[Device],
    at_once: int | None,
    seconds: float | None,
    report: Callable[[str, Event], None],
    preload: Sequence[str],
) -> dict[str, str | None]:
    works = works_of(specs, pending, gpu_of(gpus[0].product) or GPUS[DEFAULT])
    named = {model: {name_of(job): job for job in jobs} for model, jobs in pending.items()}

    def arguments(model: str, left: Collection[str]) -> tuple[Any, ...]:
        jobs = [named[model][task] for task in in_order(works[model].tasks) if task in left]
        return location, specs[model], backend, jobs, threads

    return run_on_gpus(
        Jobs(extract_on_gpus, wait_for_others, arguments),
        list(works.values()),
        gpus,
        lease_folder(),
        at_once=at_once,
        seconds=seconds,
        on_event=report,
        # CUDA reads its environment once: what a process is to see must be set before torch is imported.
        preload=() if gpus[0].product else preload,
    )


def _outcome(
    model: str,
    tasks: Sequence[TaskDocuments],
    jobs: Sequence[Job] | None,
    reason: str | None,
    lasting: bool,
    events: Sequence[Event],
) -> ModelOutcome:
    """Every partition is committed, skipped or missing."""
    everything = [(t.benchmark, t.task) for t in tasks]
    wanted = everything if jobs is None else [(job.task.benchmark, job.task.task) for job in jobs]
    own = [e for e in events if e.model == model]
    committed = tuple(e for e in own if isinstance(e, Extracted))
    made = {(c.benchmark, c.task) for c in committed}
    # One engine of a model may fail at what another one does.
    missing = [e for e in own if isinstance(e, Failure) and (e.benchmark, e.task) not in made]
    seen = made | {(m.benchmark, m.task) for m in missing}
    why = reason or "its process ended before this task"
    present = {(p.benchmark, p.task) for p in own if isinstance(p, AlreadyCommitted)}
    left = [task for task in wanted if task not in seen | present]
    missing += [Failure("extract", model, *task, why, lasting) for task in left]
    skipped = tuple(p for p in everything if p in present or (p not in wanted and p not in seen))
    return ModelOutcome(model, committed, skipped, tuple(missing))


def cores() -> int:
    """That this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

"""Extracts a pool: finds the missing partitions, runs one process per model, and reports the outcome."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from logging import ERROR
from pathlib import Path
from time import perf_counter
from typing import Any

from rlfocal.base import options
from rlfocal.base.request import checked
from rlfocal.extraction.budget import GPUBudget, make_budget
from rlfocal.extraction.engines import backend_of
from rlfocal.extraction.gpus import Device, Placement, find_gpus, lease_folder
from rlfocal.extraction.partition import explain_replaced
from rlfocal.extraction.recording import log, start_log
from rlfocal.extraction.running.events import (
    ConcurrentPartition,
    Event,
    ExtractedPartition,
    Failure,
    explain_timeout,
)
from rlfocal.extraction.running.missing import MissingWork, plan_extraction
from rlfocal.extraction.running.processes import run_each, start_fork_server
from rlfocal.extraction.running.worker import extract_jobs
from rlfocal.extraction.tasks import load_tasks
from rlfocal.pool.downloads import Downloads
from rlfocal.pool.files import load_pool
from rlfocal.pool.specs import ModelSpec, PoolSpec
from warehouse import check_location, open_warehouse
from warehouse.store import PartitionKey

OnProgress = Callable[[Event], None]
ENGINE_MODULES = {"hf": ("rlfocal.extraction.engines.hf", "transformers.models.llama.modeling_llama")}
"""The modules that are imported once for all processes of a backend. Every model needs what Llama's module
imports."""


@dataclass(frozen=True)
class ModelOutcome:
    """The outcome of an extraction for one model."""

    model: str
    committed: tuple[ExtractedPartition, ...]
    skipped: tuple[tuple[str, str], ...]
    """The (benchmark, task) of partitions that were committed already."""
    missing: tuple[Failure, ...]


@dataclass(frozen=True)
class ExtractionReport:
    """The outcome of an extraction for a pool."""

    outcomes: tuple[ModelOutcome, ...]
    seconds: float
    replaced: tuple[str, ...] = ()
    """Sentences on committed partitions that this run replaced, and why."""

    @property
    def committed(self) -> list[ExtractedPartition]:
        return [c for o in self.outcomes for c in o.committed]

    @property
    def missing(self) -> list[Failure]:
        return [m for o in self.outcomes for m in o.missing]

    @property
    def n_skipped(self) -> int:
        """The number of partitions that were committed already."""
        return sum(len(o.skipped) for o in self.outcomes)

    @property
    def n_docs(self) -> int:
        """The number of documents answered in this run, added up over models."""
        return sum(c.n_docs for c in self.committed)


@checked
def extract(
    pool: str | Path | PoolSpec,
    location: str | Path | None = None,
    *,
    models: options.Models = None,
    benchmarks: options.Benchmarks = None,
    backend: options.Backend = None,
    limit: options.Limit = None,
    datasets: options.Datasets | Path = None,
    jobs: options.Jobs = None,
    replace_documents: bool = False,
    unconditional: bool = False,
    stop_if_slower: bool = False,
    gpu_hours: options.GPUHours = None,
    on_progress: OnProgress | None = None,
) -> ExtractionReport:
    """Asks the models of a pool for the answers that the warehouse at `location` lacks, and commits them.

    `pool` is a pool's name, its YAML file, or the result of `load_pool`. `location` is an argument of
    `open_warehouse`. `rlfocal extract --help` describes the other parameters. On GPUs, as many models run as
    there are GPUs for, and at most `jobs` if that is given. `limit` takes the first documents of every task;
    a longer committed partition stays. A task is refused if its documents differ from those that other models
    answered. With `replace_documents`, the first commit deletes all models' answers to the old documents.
    `on_progress` is called with each event of `rlfocal.extraction.running.events`. Models that fail are in
    the report's `missing`, and the others continue.

    Raises InputError for a wrong name. If the backend or a benchmark is not available, raises InputError or
    RunError, and writes nothing. Engines run in their own processes: call this function under `if __name__ ==
    "__main__":`.
    """
    chosen = (pool if isinstance(pool, PoolSpec) else load_pool(str(pool))).choose(models, benchmarks)
    chosen = chosen.with_unconditional() if unconditional else chosen
    started = perf_counter()
    engine = backend or chosen.backend
    check_location(location)
    budget = make_budget(gpu_hours, len(find_gpus_of(engine)))
    tasks = load_tasks(chosen.benchmarks, limit, datasets)
    with open_warehouse(location) as warehouse:
        before = warehouse.committed_partitions()
        plans = plan_extraction(warehouse, chosen.models, tasks, engine, replace_documents=replace_documents)
    outcomes = _run_extraction(
        location, plans, engine, jobs, stop_if_slower=stop_if_slower, budget=budget, on_progress=on_progress
    )
    mine = {PartitionKey(c.model, c.benchmark, c.task) for outcome in outcomes for c in outcome.committed}
    replaced: list[str] = []
    if mine:
        with open_warehouse(location, read_only=True) as warehouse:
            replaced = explain_replaced(before, warehouse.committed_partitions(), mine)
    return ExtractionReport(tuple(outcomes), perf_counter() - started, tuple(replaced))


def extract_model(
    location: str | Path | None,
    plan: MissingWork,
    backend: str,
    *,
    jobs: int = 1,
    seconds: float | None = None,
    stop_if_slower: bool = False,
    budget: GPUBudget | None = None,
    on_progress: OnProgress | None = None,
) -> ModelOutcome:
    """Extracts the missing partitions of one model. `jobs` is the number of such calls that share the cores.

    `seconds` is the time limit of the model's process; partitions that it has not committed stay missing.
    `budget` is the GPU-hours that all such calls share.
    """
    if not plan.is_lasting:  # the hub may answer now
        with open_warehouse(location) as warehouse:
            [plan] = plan_extraction(warehouse, [plan.model], plan.tasks, backend)
    [outcome] = _run_extraction(
        location,
        [plan],
        backend,
        jobs,
        seconds=seconds,
        stop_if_slower=stop_if_slower,
        budget=budget,
        on_progress=on_progress,
    )
    return outcome


def _run_extraction(
    location: str | Path | None,
    plans: Sequence[MissingWork],
    backend: str,
    jobs: int | None,
    *,
    seconds: float | None = None,
    stop_if_slower: bool = False,
    budget: GPUBudget | None = None,
    on_progress: OnProgress | None = None,
) -> list[ModelOutcome]:
    """Runs a process for each model that has jobs, at most `jobs` at a time. Returns one outcome per plan, in
    order."""
    start_log()
    refused = [failure for plan in plans for failure in plan.refusals]
    events: list[Event] = [*refused]

    def report(_: str, event: Event) -> None:
        events.append(event)
        if on_progress is not None:
            on_progress(event)

    pending = [plan for plan in sorted(plans, key=lambda plan: plan.place) if plan.jobs]
    for plan in pending:
        for key in plan.present_partitions:
            report(key.model, ConcurrentPartition(*key))
    gpus = find_gpus_of(backend)
    threads = max(1, cores() // (jobs or len(gpus) or min(default_jobs(backend), len(plans))))
    arguments = {
        p.model.model: (location, p.model, backend_of(p.model, backend), p.jobs, threads, stop_if_slower)
        for p in pending
    }
    ended = run_jobs(
        extract_jobs,
        arguments,
        [plan.model for plan in pending],
        backend,
        at_once=jobs or len(gpus) or min(default_jobs(backend), len(plans)),
        seconds=seconds,
        budget=budget,
        on_event=report,
    )
    lasting = {budget.reason} if budget else set()
    lasting |= set() if seconds is None else {explain_timeout(seconds)}
    outcomes = [_make_outcome(plan, ended.get(plan.model.model), lasting, events) for plan in plans]
    for gap in (gap for outcome in outcomes for gap in outcome.missing):
        if gap in refused or gap not in events:
            about = {"model": gap.model, "benchmark": gap.benchmark, "task": gap.task}
            log("partition failed", level=ERROR, **about, reason=gap.reason)
    return outcomes


def run_jobs(
    job: Callable[..., None],
    arguments: Mapping[str, tuple[Any, ...]],
    models: Sequence[ModelSpec],
    backend: str,
    *,
    at_once: int,
    seconds: float | None,
    on_event: Callable[[str, Any], None],
    budget: GPUBudget | None = None,
) -> dict[str, str | None]:
    """Runs `job(send, *arguments[model])` in a process per model, each with its own GPUs if its engine uses
    any. Calls `on_event` and returns as `run_each` does."""
    gpus = find_gpus_of(backend)
    downloads = Downloads(models) if gpus else None  # no GPU waits for a download
    widths = {model.model: 0 if model.is_closed else model.tensor_parallel for model in models}
    return run_each(
        job,
        arguments,
        at_once=at_once,
        on_event=on_event,
        preload=_list_preloads(backend, gpus),
        seconds=seconds,
        gpus=Placement(gpus, lease_folder(), widths, downloads.is_ready, budget) if downloads else None,
    )


def import_for_engines(backend: str, and_then: Sequence[str] = ()) -> None:
    """Starts a server that imports the modules of `backend`, then those of `and_then`. Engines' processes
    fork from it."""
    if preloaded := _list_preloads(backend, find_gpus_of(backend)):
        start_fork_server((*preloaded, *and_then))


def _list_preloads(backend: str, gpus: Sequence[Device]) -> tuple[str, ...]:
    # CUDA reads its environment once: what a process is to see must be set before torch is imported.
    return () if gpus and gpus[0].product else ENGINE_MODULES.get(backend, ())


def default_jobs(backend: str) -> int:
    """The number of models that run at once by default: one per GPU. On a CPU it is 2, or 1 with vLLM."""
    return len(find_gpus_of(backend)) or (1 if backend == "vllm" else 2)


def find_gpus_of(backend: str) -> tuple[Device, ...]:
    """The GPUs on this machine that engines of a backend may use; none for a backend that asks a server."""
    return () if backend in ("openai", "chat") else find_gpus()


def _make_outcome(
    plan: MissingWork, ended: str | None, lasting: Collection[str], events: Sequence[Event]
) -> ModelOutcome:
    """The outcome of one model. Every partition is committed, skipped or missing. `lasting` has the reasons
    that another attempt would meet again."""
    model = plan.model.model
    everything = [(task.benchmark, task.task) for task in plan.tasks]
    wanted = everything if plan.reason else [(job.task.benchmark, job.task.task) for job in plan.jobs]
    own = [event for event in events if event.model == model]
    committed = tuple(event for event in own if isinstance(event, ExtractedPartition))
    missing = [event for event in own if isinstance(event, Failure)]
    present = {(event.benchmark, event.task) for event in own if isinstance(event, ConcurrentPartition)}
    seen = {(event.benchmark, event.task) for event in committed}
    seen |= {(event.benchmark, event.task) for event in missing}
    why = plan.reason or ended or "its process ended before this task"
    is_lasting = bool(plan.reason) and plan.is_lasting
    is_lasting |= ended in lasting
    left = [task for task in wanted if task not in seen | present]
    missing += [Failure("extract", model, *task, why, is_lasting) for task in left]
    skipped = tuple(task for task in everything if task in present or task not in {*wanted, *seen})
    return ModelOutcome(model, committed, skipped, tuple(missing))


def cores() -> int:
    """The number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

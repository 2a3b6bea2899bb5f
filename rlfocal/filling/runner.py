"""Extraction of a pool: which partitions the warehouse lacks, one process a model, and what came of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from rlfocal.errors import InputError
from rlfocal.extraction.backends import check_backend
from rlfocal.extraction.fingerprint import fingerprint, weights_digest
from rlfocal.extraction.partition import doc_rows
from rlfocal.extraction.tasks import TaskDocuments, load_tasks
from rlfocal.failures import plain
from rlfocal.filling.events import Committed, Event, Gap, Present
from rlfocal.filling.partitions import Held, Place, Work, covers, held_partitions
from rlfocal.filling.processes import run_each
from rlfocal.filling.shards import discard_leftovers
from rlfocal.filling.worker import extract
from rlfocal.pool.hub import pinned
from rlfocal.pool.specs import ModelSpec, PoolSpec
from warehouse import Warehouse, check_location, open_warehouse
from warehouse.alignment import refusal, shortening

OnProgress = Callable[[Event], None]
PRELOADED = {"hf": ("rlfocal.extraction.hf",)}
"""What the processes of a backend share, imported once."""


@dataclass(frozen=True)
class Plan:
    """What a run is to do, by model."""

    work: dict[str, list[Work]]
    specs: dict[str, ModelSpec]
    """The models at the commits that are to run."""
    failed: dict[str, str]
    """Why nothing of a model can be extracted."""
    refused: list[Gap]
    covered: list[Place]
    """Partitions that are there already."""


@dataclass(frozen=True)
class ModelOutcome:
    """What extraction did for one model."""

    model: str
    committed: tuple[Committed, ...]
    skipped: tuple[tuple[str, str], ...]
    """(benchmark, task) of the partitions that were there already."""
    missing: tuple[Gap, ...]


@dataclass(frozen=True)
class ExtractionReport:
    """What extraction did for a pool."""

    outcomes: tuple[ModelOutcome, ...]
    seconds: float

    @property
    def committed(self) -> list[Committed]:
        return [c for o in self.outcomes for c in o.committed]

    @property
    def missing(self) -> list[Gap]:
        return [m for o in self.outcomes for m in o.missing]

    @property
    def n_skipped(self) -> int:
        """Partitions that were there already."""
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
    """Fills the warehouse with every partition of the pool that it lacks, `jobs` models at a time.

    `datasets` is a mirror of the hub's. `limit` takes the first documents of every task; a longer partition
    that is there stays. A task whose documents are no longer those that other models answered is refused;
    with `replace_documents` what all models answered to the old ones goes with the first commit. A model that
    fails is reported, and the others go on.
    Raises InputError or RunError, with nothing written, where the backend or a benchmark cannot be had.
    """
    started = perf_counter()
    backend = backend or pool.backend
    check_backend(backend)
    check_location(location)
    tasks = load_tasks(pool.benchmarks, limit, datasets)
    outcomes = _extract(
        location, pool.models, tasks, backend, jobs or default_jobs(backend), replace_documents, on_progress
    )
    return ExtractionReport(tuple(outcomes), perf_counter() - started)


def extract_model(
    location: str | Path | None,
    pool: PoolSpec,
    model: str,
    *,
    backend: str | None = None,
    limit: int | None = None,
    datasets: str | Path | None = None,
    tasks: Sequence[TaskDocuments] | None = None,
    jobs: int = 1,
    replace_documents: bool = False,
    on_progress: OnProgress | None = None,
) -> ModelOutcome:
    """`extract_pool` for one model; `jobs` is how many such calls share the machine's cores.

    `tasks` spares building the prompts anew for every model: `load_tasks(pool.benchmarks, limit, datasets)`.
    """
    backend = backend or pool.backend
    check_backend(backend)
    [spec] = pool.choose(models=[model]).models
    wanted = load_tasks(pool.benchmarks, limit, datasets) if tasks is None else tasks
    [outcome] = _extract(location, [spec], wanted, backend, jobs, replace_documents, on_progress)
    return outcome


def is_filled(warehouse: Warehouse, pool: PoolSpec, tasks: Sequence[TaskDocuments], backend: str) -> bool:
    """Whether the warehouse holds every partition as it would be extracted now."""
    plan = _plan(pool.models, tasks, backend, held_partitions(warehouse))
    return not (plan.failed or plan.refused or any(plan.work.values()))


def default_jobs(backend: str) -> int:
    """How many models run at once unless told: vLLM takes a GPU's memory for one."""
    return 1 if backend == "vllm" else 2


def _extract(
    location: str | Path | None,
    models: Sequence[ModelSpec],
    tasks: Sequence[TaskDocuments],
    backend: str,
    jobs: int,
    replace_documents: bool,
    on_progress: OnProgress | None,
) -> list[ModelOutcome]:
    with open_warehouse(location) as warehouse:
        warehouse.put_models(models)
        held = held_partitions(warehouse)
        plan = _plan(models, tasks, backend, held)
        if replace_documents:
            plan = _replacing(plan)
        else:
            _refuse_other_documents(plan, warehouse, held)
        for place in plan.covered:
            discard_leftovers(warehouse, place)
    threads = max(1, _cores() // jobs)
    events: list[Event] = [*plan.refused]

    def note(_: str, event: Event) -> None:
        events.append(event)
        if on_progress is not None:
            on_progress(event)

    arguments = {
        name: (location, plan.specs[name], backend, work, threads) for name, work in plan.work.items() if work
    }
    preload = PRELOADED.get(backend, ())
    failed = plan.failed | run_each(extract, arguments, at_once=jobs, on_event=note, preload=preload)
    return [_outcome(m.model, tasks, plan.work.get(m.model), failed.get(m.model), events) for m in models]


def _plan(
    models: Sequence[ModelSpec],
    tasks: Sequence[TaskDocuments],
    backend: str,
    held: Mapping[Place, Held],
) -> Plan:
    """Leaves out what is there already, and what would replace a partition by a shorter one."""
    plan = Plan({}, {}, {}, [], [])
    for model in models:
        try:
            spec = pinned(model)
            weights = weights_digest(spec)
        except (InputError, OSError) as error:
            plan.failed[model.model] = plain(error)
            continue
        plan.specs[model.model] = spec
        plan.work[model.model] = []
        for task in tasks:
            work = Work(task, fingerprint(spec, weights, task, backend))
            place = work.place(model.model)
            there = held.get(place)
            if covers(there, work):
                plan.covered.append(place)
            elif there and (reason := shortening(there.n_docs, len(task.documents), task.n_whole)):
                plan.refused.append(Gap("extract", *place, reason))
            else:
                plan.work[model.model].append(work)
    return plan


def _replacing(plan: Plan) -> Plan:
    work = {
        model: [replace(w, replace_documents=True) for w in wanted] for model, wanted in plan.work.items()
    }
    return replace(plan, work=work)


def _refuse_other_documents(plan: Plan, warehouse: Warehouse, held: Mapping[Place, Held]) -> None:
    """Before an engine works for hours on answers that could not be committed."""
    tasks = {(w.task.benchmark, w.task.task): w.task for wanted in plan.work.values() for w in wanted}
    for (benchmark, name), task in tasks.items():
        holders = sorted(place.model for place in held if (place.benchmark, place.task) == (benchmark, name))
        if not holders or (found := warehouse.documents_differ(doc_rows(task), task.n_whole)) is None:
            continue
        for model, wanted in plan.work.items():
            others = [m for m in holders if m != model]
            kept = [w for w in wanted if (w.task.benchmark, w.task.task) != (benchmark, name)]
            if others and len(kept) < len(wanted):
                plan.work[model] = kept
                plan.refused.append(Gap("extract", model, benchmark, name, refusal(found, others, benchmark)))


def _outcome(
    model: str,
    tasks: Sequence[TaskDocuments],
    work: Sequence[Work] | None,
    reason: str | None,
    events: Sequence[Event],
) -> ModelOutcome:
    """Every partition is committed, skipped or missing."""
    everything = [(t.benchmark, t.task) for t in tasks]
    wanted = everything if work is None else [(w.task.benchmark, w.task.task) for w in work]
    own = [e for e in events if e.model == model]
    committed = tuple(e for e in own if isinstance(e, Committed))
    missing = [e for e in own if isinstance(e, Gap)]
    told = {(c.benchmark, c.task) for c in committed} | {(m.benchmark, m.task) for m in missing}
    why = reason or "its process ended before this task"
    present = {(p.benchmark, p.task) for p in own if isinstance(p, Present)}
    missing += [Gap("extract", model, *place, why) for place in wanted if place not in told | present]
    skipped = tuple(p for p in everything if p in present or (p not in wanted and p not in told))
    return ModelOutcome(model, committed, skipped, tuple(missing))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

"""What a warehouse lacks of a pool: each model's partitions to extract, and the models that cannot run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlfocal.base.failures import plain
from rlfocal.extraction.engines.backends import check_entry_for
from rlfocal.extraction.fingerprint import fingerprint, weights_digest
from rlfocal.extraction.gpus.schedule import Work, ordered
from rlfocal.extraction.partition import doc_rows
from rlfocal.extraction.plan.gpus import DEFAULT, GPU, GPUS
from rlfocal.extraction.plan.workload import of_documents
from rlfocal.extraction.plan.works import work
from rlfocal.extraction.running.events import Failure
from rlfocal.extraction.running.partitions import Job, is_covered
from rlfocal.extraction.running.shards import discard_leftovers
from rlfocal.extraction.tasks import TaskDocuments
from rlfocal.pool.hub import HubError, pinned
from rlfocal.pool.specs import ModelSpec, PoolSpec
from warehouse import Warehouse
from warehouse.alignment import refusal, shortening
from warehouse.store import Committed, PartitionKey


@dataclass(frozen=True)
class Plan:
    """What a run has to do, by model."""

    pending: dict[str, list[Job]]
    specs: dict[str, ModelSpec]
    """The models, pinned to the commits that will run."""
    failed: dict[str, str]
    """Models that cannot run at all, and why."""
    unreached: set[str]
    """Those of them that may run when the hub answers again."""
    refused: list[Failure]
    covered: list[PartitionKey]
    """Partitions that are committed already."""


def describe_and_find_lacking(
    warehouse: Warehouse, pool: PoolSpec, tasks: Sequence[TaskDocuments], backend: str
) -> list[ModelSpec]:
    """The models with something to extract, or to report as refused or failed.

    The widest come first, and of equally wide ones those with the most work. Also records all models and
    tasks in the warehouse, and discards what a killed run left of committed partitions.
    """
    warehouse.put_models(pool.models, facts_of(tasks))
    plan = plan_of(pool.models, tasks, backend, warehouse.committed())
    for key in plan.covered:
        discard_leftovers(warehouse, key)
    works = ordered(works_of(plan.specs, plan.pending, GPUS[DEFAULT]).values())
    place = {work.model: number for number, work in enumerate(works)}
    lacking = [model for model in pool.models if model.model in _lacking(plan)]
    return sorted(lacking, key=lambda m: place.get(m.model, len(place)))  # those that cannot run are last


def facts_of(tasks: Sequence[TaskDocuments]) -> dict[str, list[Mapping[str, Any]]]:
    """What is known of benchmarks and tasks, by the warehouse's table."""
    return {
        table: [task.facts[table] for task in tasks if table in task.facts]
        for table in ("benchmarks", "tasks")
    }


def _lacking(plan: Plan) -> set[str]:
    pending = {model for model, jobs in plan.pending.items() if jobs}
    return pending | plan.failed.keys() | {gap.model for gap in plan.refused}


def works_of(
    specs: Mapping[str, ModelSpec], pending: Mapping[str, Sequence[Job]], sheet: GPU
) -> dict[str, Work]:
    """The work of every model on such GPUs."""
    tasks = {name_of(job): job.task for jobs in pending.values() for job in jobs}
    loads = {name: of_documents(task, None) for name, task in tasks.items()}
    return {
        model: work(specs[model], [([name_of(job)], loads[name_of(job)]) for job in jobs], sheet)
        for model, jobs in pending.items()
    }


def name_of(job: Job) -> str:
    """A job's benchmark and task, as schedules name it."""
    return f"{job.task.benchmark}/{job.task.task}"


def plan_of(
    models: Sequence[ModelSpec],
    tasks: Sequence[TaskDocuments],
    backend: str,
    committed: Mapping[PartitionKey, Committed],
) -> Plan:
    """Leaves out what is committed already, and what would replace a partition by a shorter one."""
    plan = Plan({}, {}, {}, set(), [], [])
    for model in models:
        try:
            check_entry_for(backend, model)
            spec = pinned(model)
            weights = weights_digest(spec)
            jobs = [Job(task, fingerprint(spec, weights, task, backend)) for task in tasks]
        except Exception as error:  # whatever is wrong with one model, the others run
            plan.failed[model.model] = plain(error)
            if isinstance(error, HubError):
                plan.unreached.add(model.model)
            continue
        plan.specs[model.model] = spec
        plan.pending[model.model] = []
        for task, job in zip(tasks, jobs, strict=True):
            key = job.key(model.model)
            there = committed.get(key)
            if is_covered(job, there):
                plan.covered.append(key)
            elif (
                there
                and not there.fault
                and (reason := shortening(there.n_docs, len(task.documents), task.n_whole))
            ):
                plan.refused.append(Failure("extract", *key, reason, lasting=True))
            else:
                plan.pending[model.model].append(job)
    return plan


def replacing(plan: Plan) -> Plan:
    pending = {
        model: [replace(job, replace_documents=True) for job in jobs] for model, jobs in plan.pending.items()
    }
    return replace(plan, pending=pending)


def refuse_other_documents(
    plan: Plan, warehouse: Warehouse, committed: Mapping[PartitionKey, Committed]
) -> None:
    """Before an engine works for hours on answers that could not be committed."""
    tasks = {(job.task.benchmark, job.task.task): job.task for jobs in plan.pending.values() for job in jobs}
    for (benchmark, name), task in tasks.items():
        holders = sorted(key.model for key in committed if (key.benchmark, key.task) == (benchmark, name))
        if not holders or (found := warehouse.documents_differ(doc_rows(task), task.n_whole)) is None:
            continue
        for model, jobs in plan.pending.items():
            others = [m for m in holders if m != model]
            kept = [job for job in jobs if (job.task.benchmark, job.task.task) != (benchmark, name)]
            if others and len(kept) < len(jobs):
                plan.pending[model] = kept
                plan.refused.append(
                    Failure(
                        "extract", model, benchmark, name, refusal(found, others, benchmark), lasting=True
                    )
                )

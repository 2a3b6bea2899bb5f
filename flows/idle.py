"""Whether a regeneration has anything to do: where not, no Prefect server and no task is started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

from flows.support.summary import Summary
from rlfocal.evaluation import Evaluation, evaluate
from rlfocal.extraction.running.missing import is_filled
from rlfocal.extraction.tasks import TaskDocuments, load_each
from rlfocal.pool import PoolSpec, load_pool
from rlfocal.report.html import report_inputs
from rlfocal.report.inputs import is_made_from
from warehouse import Warehouse, open_warehouse
from warehouse.opening import needs_upgrade
from warehouse.store import PartitionKey


def find_done(
    pool: str,
    *,
    warehouse: str | None,
    benchmarks: list[str] | None,
    models: list[str] | None,
    limit: int | None,
    datasets: str | None,
    backend: str | None,
    seeds: int,
    report: str,
    on_progress: Callable[[str, float], None] | None = None,
) -> Summary | None:
    """What the flow would return if it has nothing to do; None if it has, or where a server records it.

    Everything is compared as it is now: the prompts of every task, the weights and settings of every model,
    every document and answer that an evaluation was made of, and what the report shows. Nothing is written.
    Raises InputError for a pool, a model or a benchmark that does not exist.
    """
    started = perf_counter()
    chosen = load_pool(pool).choose(models, benchmarks)
    if _is_recorded():
        return None
    try:
        with open_warehouse(warehouse, read_only=True, create=False) as opened:
            if not _may_be_done(opened, chosen, report):
                return None
            tasks = _tasks(chosen, limit, datasets, on_progress)
            return as_it_is(opened, chosen, tasks, backend or chosen.backend, seeds, report, started)
    except Exception:  # whatever is missing or broken, the flow reports it
        return None


def as_it_is(
    warehouse: Warehouse,
    pool: PoolSpec,
    tasks: Sequence[TaskDocuments],
    backend: str,
    seeds: int,
    report: str,
    started: float,
) -> Summary | None:
    """What a regeneration that began at `started`, of perf_counter, returns without doing anything.

    None if it has something to do, or where something is broken. `warehouse` is open read-only.
    """
    try:
        if not _may_be_done(warehouse, pool, report) or not is_filled(warehouse, pool, tasks, backend):
            return None
        return Summary(
            pool=pool.name,
            extracted=0,
            present=len(pool.models) * len(tasks),
            evaluations=_evaluations(warehouse, pool, seeds),
            report=Path(report),
            gaps=(),
            seconds=perf_counter() - started,
        )
    except Exception:  # the steps themselves report it
        return None


def _is_recorded() -> bool:
    """Whether a Prefect server is named, in the environment or a profile: it shows every run."""
    from prefect.settings import PREFECT_API_URL

    return bool(PREFECT_API_URL.value())


def _may_be_done(warehouse: Warehouse, pool: PoolSpec, report: str) -> bool:
    """What is quick to check: every partition is there by name, and the report is of this snapshot."""
    if needs_upgrade(warehouse):
        return False
    committed = warehouse.committed()
    wanted = ((m.model, b.name, task) for m in pool.models for b in pool.benchmarks for task in b.tasks)
    is_filled_by_name = all(PartitionKey(*key) in committed for key in wanted)
    return is_filled_by_name and is_made_from(Path(report), report_inputs(warehouse))


def _tasks(
    pool: PoolSpec,
    limit: int | None,
    datasets: str | None,
    on_progress: Callable[[str, float], None] | None,
) -> list[TaskDocuments]:
    """Every task as it is now. Raises what keeps one from loading."""
    tasks: list[TaskDocuments] = []
    for at, (_, loaded) in enumerate(load_each(pool.benchmarks, limit, datasets)):
        if isinstance(loaded, Exception):
            raise loaded
        tasks += loaded
        if on_progress is not None:
            on_progress("tasks read", (at + 1) / len(pool.benchmarks))
    return tasks


def _evaluations(warehouse: Warehouse, pool: PoolSpec, seeds: int) -> tuple[Evaluation, ...]:
    """Of every benchmark. Raises ReadOnlyError where one is still to be made or a model to be described."""
    warehouse.put_models(pool.models)
    names = [model.model for model in pool.models]
    reports = [evaluate(warehouse, b.name, models=names, seeds=seeds) for b in pool.benchmarks]
    return tuple(row for report in reports for row in report.rows)

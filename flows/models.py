"""All models of a pool: here, `jobs` at a time, or each handed over to a worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from prefect import allow_failure, get_run_logger
from prefect.client.schemas.objects import State
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.utilities.annotations import quote

from flows import RegenerationRequest
from flows.extracting import extract
from flows.support.pages import ALL
from flows.workers import LIMIT, Workers, find_workers, hand_over, make_limit
from rlfocal.base.failures import plain
from rlfocal.base.wording import counted
from rlfocal.extraction.running.events import Failure
from rlfocal.extraction.running.missing import Missing, plan_extraction
from rlfocal.extraction.running.runner import ModelOutcome, default_jobs
from rlfocal.extraction.tasks import TaskDocuments
from rlfocal.pool import ModelSpec, PoolSpec
from warehouse import open_warehouse
from warehouse.store import PartitionKey


def submit_each(
    task: Any, each: Sequence[dict[str, Any]], *, at_once: int, after: Iterable[State[Any]] = ()
) -> list[State[Any]]:
    """Runs a task with each of these arguments. Returns the final states, in order.

    `after`: states of earlier runs, failed or not; the page draws arrows from them.
    """
    # Prefect looks for other runs' results in all that a task is given: `quote` spares it every document, and
    # the page an arrow wherever two models were given the same object.
    with ThreadPoolTaskRunner[Any](max_workers=at_once) as runner:
        given = [
            {name: value if isinstance(value, str) else quote(value) for name, value in one.items()}
            for one in each
        ]
        before = with_failures(after)
        futures = [runner.submit(task, one, wait_for=before) for one in given]
        for future in futures:
            future.wait()
    return [future.state for future in futures]


def with_failures(states: Iterable[State[Any]]) -> list[Any]:
    """For `wait_for`: draws the page's arrows from runs whether they failed or not."""
    return [allow_failure(state) for state in states]


def extract_all(
    pool: PoolSpec, tasks: Sequence[TaskDocuments], request: RegenerationRequest
) -> tuple[list[State[Any]], list[Failure]]:
    """One task run per model that lacks something. Returns their final states, and what is missing."""
    backend = request.backend or pool.backend
    with open_warehouse(request.location) as warehouse:
        plans = plan_extraction(warehouse, pool.models, tasks, backend)
    lacking = sorted((plan for plan in plans if plan.is_incomplete), key=lambda plan: plan.place)
    if not lacking:
        return [], []
    workers = find_workers()
    if workers is None:
        return _extract_locally(lacking, request, backend)
    return _extract_on_workers([plan.model for plan in lacking], tasks, request, backend, workers)


def _extract_locally(
    lacking: Sequence[Missing], request: RegenerationRequest, backend: str
) -> tuple[list[State[Any]], list[Failure]]:
    jobs = request.jobs or default_jobs(backend)
    given = {
        "location": request.location,
        "backend": backend,
        "jobs": jobs,
        "minutes": request.minutes_per_model,
    }
    each = [{**given, "model": plan.model.model, "missing": plan} for plan in lacking]
    states = submit_each(extract, each, at_once=jobs)
    outcomes = [state.result(raise_on_failure=False) for state in states]
    pairs = zip(lacking, outcomes, strict=True)
    return states, [gap for plan, outcome in pairs for gap in _missing(plan.model.model, outcome)]


def _missing(model: str, outcome: ModelOutcome | BaseException) -> Iterator[Failure]:
    if isinstance(outcome, BaseException):
        yield Failure("extract", model, ALL, ALL, plain(outcome))
    else:
        yield from outcome.missing


def _extract_on_workers(
    lacking: Sequence[ModelSpec],
    tasks: Sequence[TaskDocuments],
    request: RegenerationRequest,
    backend: str,
    workers: Workers,
) -> tuple[list[State[Any]], list[Failure]]:
    limit = make_limit(workers, backend, request.jobs)
    online, models = counted(workers.online, "worker"), counted(len(lacking), "model")
    get_run_logger().info(
        "%s for %s of work pool %s, %d at once (limit %s)", models, online, workers.pool, limit, LIMIT
    )
    parameters = {
        "pool": request.pool,
        "warehouse": request.location,
        "benchmarks": request.benchmarks,
        "limit": request.limit,
        "datasets": request.datasets,
        "backend": backend,
        "minutes": request.minutes_per_model,
    }
    given = {name: value for name, value in parameters.items() if value is not None}
    each = [
        {
            "model": model.model,
            "gpus": model.tensor_parallel,
            "workers": workers,
            "parameters": {**given, "model": model.model},
        }
        for model in lacking
    ]
    states = submit_each(hand_over, each, at_once=len(each))
    with open_warehouse(request.location, read_only=True) as warehouse:
        committed = warehouse.committed()
    keys = [(task.benchmark, task.task) for task in tasks]
    gaps: list[Failure] = []
    for model, state in zip(lacking, states, strict=True):
        absent = [key for key in keys if PartitionKey(model.model, *key) not in committed]
        gaps += _find_gaps(model.model, state, absent, workers)
    return states, gaps


def _find_gaps(
    model: str, state: State[Any], absent: Sequence[tuple[str, str]], workers: Workers
) -> Iterator[Failure]:
    """What a worker's run failed to extract: its partitions if they are known, else the model."""
    if state.is_completed():
        reason = (
            f"its run on a worker of {workers.pool} succeeded, but this warehouse has no answers of it; "
            "give all workers the same RLFOCAL_WAREHOUSE, one that each of them can reach"
        )
    else:
        reason = str(state.message)
        absent = absent or [(ALL, ALL)]  # an older partition is there, the new one is not
    for key in absent:
        yield Failure("extract", model, *key, reason)

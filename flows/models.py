"""All models of a pool: here, `jobs` at a time, or each handed over to a worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prefect import get_run_logger
from prefect.client.schemas.objects import State
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.utilities.annotations import quote

from flows.extracting import extract
from flows.support.summary import ALL
from flows.support.threads import Turns
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


@dataclass(frozen=True)
class Asked:
    """What a regeneration was asked to extract: the flow's parameters that concern extraction."""

    pool: str
    warehouse: str | None
    benchmarks: list[str] | None
    limit: int | None
    datasets: str | None
    backend: str
    jobs: int | None
    minutes: int | None

    def of_one_model(self, model: str) -> dict[str, Any]:
        """The parameters of the deployment extract-model."""
        given = {name: value for name, value in vars(self).items() if name != "jobs" and value is not None}
        return given | {"model": model}


def extract_all(
    pool: PoolSpec, tasks: Sequence[TaskDocuments], asked: Asked
) -> tuple[list[State[Any]], list[Failure]]:
    """One task run per model that lacks something. Returns their final states, and what is missing."""
    with open_warehouse(asked.warehouse) as warehouse:
        plans = plan_extraction(warehouse, pool.models, tasks, asked.backend)
    lacking = sorted((plan for plan in plans if plan.is_incomplete), key=lambda plan: plan.place)
    if not lacking:
        return [], []
    workers = find_workers()
    if workers is None:
        return _here(lacking, asked)
    return _elsewhere([plan.model for plan in lacking], tasks, asked, workers)


def _here(lacking: Sequence[Missing], asked: Asked) -> tuple[list[State[Any]], list[Failure]]:
    jobs = asked.jobs or default_jobs(asked.backend)
    # Prefect looks for other runs' results in all that a task is given: `quote` spares it every document, and
    # the page an arrow wherever two models were given the same object.
    given = {
        "location": asked.warehouse,
        "backend": asked.backend,
        "jobs": jobs,
        "minutes": asked.minutes,
    }
    each = [{**given, "model": plan.model.model, "missing": plan} for plan in lacking]
    states = _submit(extract, each, at_once=jobs)
    outcomes = [state.result(raise_on_failure=False) for state in states]
    pairs = zip(lacking, outcomes, strict=True)
    return states, [gap for plan, outcome in pairs for gap in _missing(plan.model.model, outcome)]


def _missing(model: str, outcome: ModelOutcome | BaseException) -> Iterator[Failure]:
    if isinstance(outcome, BaseException):
        yield Failure("extract", model, ALL, ALL, plain(outcome))
    else:
        yield from outcome.missing


def _elsewhere(
    lacking: Sequence[ModelSpec], tasks: Sequence[TaskDocuments], asked: Asked, workers: Workers
) -> tuple[list[State[Any]], list[Failure]]:
    limit = make_limit(workers, asked.backend, asked.jobs)
    online, models = counted(workers.online, "worker"), counted(len(lacking), "model")
    get_run_logger().info(
        "%s for %s of work pool %s, %d at once (limit %s)", models, online, workers.pool, limit, LIMIT
    )
    turns = Turns()
    each = [
        {
            "model": model.model,
            "gpus": model.tensor_parallel,
            "workers": workers,
            "parameters": asked.of_one_model(model.model),
            "turns": turns,
            "number": number,
        }
        for number, model in enumerate(lacking)
    ]
    states = _submit(hand_over, each, at_once=len(each))
    with open_warehouse(asked.warehouse, read_only=True) as warehouse:
        committed = warehouse.committed()
    keys = [(task.benchmark, task.task) for task in tasks]
    gaps: list[Failure] = []
    for model, state in zip(lacking, states, strict=True):
        absent = [key for key in keys if PartitionKey(model.model, *key) not in committed]
        gaps += _left(model.model, state, absent, workers)
    return states, gaps


def _left(
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


def _submit(task: Any, each: Sequence[dict[str, Any]], *, at_once: int) -> list[State[Any]]:
    """Runs a task with each of these arguments. Returns the final states, in order."""
    with ThreadPoolTaskRunner[Any](max_workers=at_once) as runner:
        given = [
            {name: value if name == "model" else quote(value) for name, value in one.items()} for one in each
        ]
        futures = [runner.submit(task, one) for one in given]
        for future in futures:
            future.wait()
    return [future.state for future in futures]

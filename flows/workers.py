"""Models handed over to workers: one run of the deployment extract-model each, a limited number at once.

The server stores how many slots of its limit are in use, but keeps who holds them in memory, which a restart
loses. A run that waits for a slot therefore corrects the number from the runs that exist.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from prefect import get_client, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, GlobalConcurrencyLimitUpdate
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
    WorkerFilter,
    WorkerFilterStatus,
)
from prefect.client.schemas.objects import FlowRun, State, StateType, TaskRun
from prefect.concurrency.sync import concurrency
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.runtime import deployment, flow_run
from prefect.states import Cancelled, Completed, Failed
from prefect.tasks import Task, exponential_backoff

from flows.support.deploying import end_if_silent
from flows.support.pages import report_progress
from rlfocal.extraction.running.runner import default_jobs

DEPLOYMENT = "extract-model/extract-model"
LIMIT = "rlfocal-models"
TAG = "rlfocal-handed-over"
TRIES = 3
"""Attempts when a model's worker keeps dying."""
SECONDS_BETWEEN_LOOKS = 2.0
SECONDS_BETWEEN_HEARTBEAT_CHECKS = 60.0
SECONDS_BETWEEN_RECOUNTS = 60.0
"""Seconds after which a run that waits for a slot recounts the slots in use."""
LEASE_SECONDS = 120.0
"""Seconds for which the server keeps the slot of a regeneration that died."""
PATIENCE = 300.0
"""Seconds that a run waits where no worker is online."""
_UNFINISHED = (
    *(StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING),
    *(StateType.PAUSED, StateType.CANCELLING),
)


class Workers(NamedTuple):
    """The workers that take models."""

    pool: str
    """The work pool's name."""
    online: int
    has_gpus: bool
    """Whether a run may ask the pool for a number of GPUs, as Kubernetes jobs do."""


def find_workers() -> Workers | None:
    """Workers that are online for the deployment extract-model.

    None if there are none, and for a run that is not a deployment's: its directories are its own.
    """
    if deployment.id is None:
        return None
    with get_client(sync_client=True) as client:
        try:
            pool = client.read_deployment_by_name(DEPLOYMENT).work_pool_name
        except ObjectNotFound:
            return None
        if pool is None or not (online := _count_online(client, pool)):
            return None
        variables = client.read_work_pool(pool).base_job_template.get("variables", {})
    return Workers(pool, online, "gpus" in variables.get("properties", {}))


def make_limit(workers: Workers, backend: str, jobs: int | None) -> int:
    """Returns the server's limit of models at once, and creates it if it is missing.

    A new limit is `jobs`, or by default what all workers online run at once.
    """
    with get_client(sync_client=True) as client:
        try:
            return client.read_global_concurrency_limit_by_name(LIMIT).limit
        except ObjectNotFound:
            limit = jobs or default_jobs(backend) * workers.online
        try:
            client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=LIMIT, limit=limit))
        except ObjectAlreadyExists:  # another regeneration was faster
            return client.read_global_concurrency_limit_by_name(LIMIT).limit
    return limit


def _was_raised(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Whether it did not finish: a client that has not reached its server yet does not try again."""
    return isinstance(state.data, BaseException)


@task(
    task_run_name="extract {model}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=4,
    retry_delay_seconds=exponential_backoff(10),
    retry_condition_fn=_was_raised,
)
def hand_over(model: str, gpus: int, workers: Workers, parameters: dict[str, Any]) -> State[Any]:
    """Has a worker extract a model, and another one if it dies. Ends as the last of these runs does."""
    title = f"extract {model}"
    variables = {"gpus": gpus} if workers.has_gpus else None
    with _hold_slot(), get_client(sync_client=True) as client:
        for n in range(TRIES):
            run = run_deployment(
                DEPLOYMENT,
                parameters=parameters,
                flow_run_name=title,
                timeout=0,
                tags=[TAG],
                idempotency_key=f"{flow_run.id}-{flow_run.run_count}-{model}-{n}",
                job_variables=variables,
            )
            assert isinstance(run, FlowRun)  # and no coroutine: this is a task of a thread
            state = _wait_for_final_state(client, run, workers.pool)
            if state.is_completed():
                report_progress(title, 1.0)
                return Completed(message=f"run {run.name} of {workers.pool}")
            if not state.is_crashed():
                break
            get_run_logger().warning("%s: %s", title, state.message)
    return Failed(message=state.message or f"its run on a worker ended {state.name}")


def _wait_for_final_state(client: SyncPrefectClient, run: FlowRun, pool: str) -> State[Any]:
    """The run's final state. A run without a worker is cancelled after a while, a dead one is ended."""
    alone_since: float | None = None
    checked = time.monotonic()
    while True:
        run = client.read_flow_run(run.id)
        state = run.state
        assert state is not None
        if state.is_final():
            return state
        if time.monotonic() - checked > SECONDS_BETWEEN_HEARTBEAT_CHECKS:
            checked = time.monotonic()
            end_if_silent(client, run)
        if not state.is_scheduled() or _count_online(client, pool):
            alone_since = None
        elif alone_since is None:
            alone_since = time.monotonic()
        elif time.monotonic() - alone_since > PATIENCE:
            message = f"no worker of work pool {pool} is online: prefect worker start --pool {pool}"
            client.set_flow_run_state(run.id, Cancelled(message=message))
            alone_since = None
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _count_online(client: SyncPrefectClient, pool: str) -> int:
    wanted = WorkerFilter(status=WorkerFilterStatus(any_=["ONLINE"]))
    return len(client.read_workers_for_work_pool(pool, wanted))


@contextmanager
def _hold_slot() -> Iterator[None]:
    """Holds one of the limit's slots, strictly: if the limit is gone, nothing runs."""
    with ExitStack() as held:
        while True:
            slot = concurrency(
                LIMIT,
                strict=True,
                timeout_seconds=SECONDS_BETWEEN_RECOUNTS,
                lease_duration=LEASE_SECONDS,
                raise_on_lease_renewal_failure=False,  # a restarted server has forgotten who holds what
            )
            try:
                held.enter_context(slot)
                break
            except TimeoutError:
                _release_leaked_slots()
        yield


def _release_leaked_slots() -> None:
    """Sets the slots in use to the number of runs that hold one."""
    held = FlowRunFilter(
        tags=FlowRunFilterTags(all_=[TAG]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(_UNFINISHED))),
    )
    with get_client(sync_client=True) as client:
        taken = client.count_flow_runs(flow_run_filter=held)
        if client.read_global_concurrency_limit_by_name(LIMIT).active_slots > taken:
            get_run_logger().warning(
                "concurrency limit %s: %d slots in use; releasing leaked slots", LIMIT, taken
            )
            client.update_global_concurrency_limit(LIMIT, GlobalConcurrencyLimitUpdate(active_slots=taken))

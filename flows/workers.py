"""Has workers extract models: one run of the deployment extract-model for each, as many at once as GPUs
allow.

The server stores how many slots of its limit are in use, but keeps in memory who holds them, which a restart
loses. So a run that waits for slots corrects the number by counting unfinished runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import Condition
from typing import Any, NamedTuple

from prefect import get_client, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, GlobalConcurrencyLimitUpdate
from prefect.client.schemas.objects import FlowRun, State, TaskRun
from prefect.concurrency.sync import concurrency
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound, PrefectHTTPStatusError
from prefect.runtime import deployment, flow_run
from prefect.states import Cancelled, Cancelling, Completed, Failed
from prefect.tasks import Task, exponential_backoff

from flows.support.capacity import GPUS_VARIABLE, HANDED_OVER_TAG, count_slots, count_used_slots, list_online
from flows.support.deploying import end_if_silent
from flows.support.pages import report_progress
from rlfocal.extraction.budget import GPUBudget

WORKER_DEPLOYMENT = "extract-model/extract-model"
LIMIT_NAME = "rlfocal-models"
MAX_TRIES = 3
"""The most runs for one model, if its workers keep dying."""
SECONDS_BETWEEN_LOOKS = 2.0
SECONDS_BETWEEN_HEARTBEAT_CHECKS = 60.0
SECONDS_BETWEEN_RECOUNTS = 30.0
"""The seconds after which a run that waits for slots counts slots, and those in use, again."""
LEASE_SECONDS = 120.0
"""The seconds for which the server reserves slots for a regeneration that died."""
PATIENCE_SECONDS = 300.0
"""The seconds that a run without an online worker waits before it is cancelled."""
SECONDS_TO_COME = 300.0
"""The seconds that a task waits for tasks of lower place to begin; later ones do not hold up the others."""
SERVER_ERROR, MAX_ERRORS = 500, 20
"""The lowest HTTP status of a server's own error, and how many of these a waiting run accepts."""
SLOTS_OF_A_CLUSTER = 10_000
"""The number of slots of a cluster: more than any has, because it queues pods itself, and starts nodes."""

POD_RESOURCES: dict[str, Callable[[int], int | str]] = {
    GPUS_VARIABLE: lambda gpus: gpus,
    "cpu_request": lambda gpus: str(2 + gpus),
    "memory_request": lambda gpus: f"{32 + 32 * gpus}Gi",
}
"""By job variable, the function from a number of GPUs to what a pod requests; an engine needs a core for
each."""


class Workers(NamedTuple):
    """A work pool whose workers extract models."""

    pool: str
    """The work pool's name."""
    online: int
    job_variables: frozenset[str] = frozenset()
    """The job variables by which a run gets GPUs of its own, as Kubernetes jobs do; empty for other pools."""
    widest: int = 1
    """The most GPUs of any model to extract: the number of slots of a worker that has not reported yet."""


class Turns:
    """The order in which concurrent tasks take slots, so that no narrow model overtakes a wide one."""

    def __init__(self) -> None:
        self._came: set[int] = set()
        self._waiting: set[int] = set()
        self._changed = Condition()

    @contextmanager
    def take(self, place: int) -> Iterator[None]:
        """Runs a block once no task of lower `place` waits; a task that never comes delays it only for a
        time."""
        with self._changed:
            self._came.add(place)
            self._waiting.add(place)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._came.issuperset(range(place)), SECONDS_TO_COME)
            self._changed.wait_for(lambda: min(self._waiting) == place)
        try:
            yield
        finally:
            with self._changed:
                self._waiting.remove(place)
                self._changed.notify_all()


def find_workers() -> Workers | None:
    """The work pool with online workers for the deployment extract-model. None if there is none, and for a
    run that no deployment started, because other workers do not have its folders."""
    if deployment.id is None:
        return None
    with get_client(sync_client=True) as client:
        try:
            pool = client.read_deployment_by_name(WORKER_DEPLOYMENT).work_pool_name
        except ObjectNotFound:
            return None
        if pool is None or not (online := len(list_online(client, pool))):
            return None
        variables = client.read_work_pool(pool).base_job_template.get("variables", {})
    known = variables.get("properties", {})
    is_cluster = GPUS_VARIABLE in known
    asked = [
        name
        for name in POD_RESOURCES
        if name in known and (name == GPUS_VARIABLE or "default" not in known[name])
    ]
    return Workers(pool, online, frozenset(asked if is_cluster else ()))


def update_limit(workers: Workers) -> int:
    """Sets the server's concurrency limit to the number of slots of all workers online, and returns it."""
    with get_client(sync_client=True) as client:
        limit = SLOTS_OF_A_CLUSTER
        if not workers.job_variables:
            limit = max(1, count_slots(client, workers.pool, unknown=workers.widest))
        try:
            client.update_global_concurrency_limit(LIMIT_NAME, GlobalConcurrencyLimitUpdate(limit=limit))
        except ObjectNotFound:
            with suppress(ObjectAlreadyExists):  # another regeneration was faster
                client.create_global_concurrency_limit(
                    GlobalConcurrencyLimitCreate(name=LIMIT_NAME, limit=limit)
                )
    return limit


def _was_raised(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Whether the task raised an error, as when a client has not yet reached its server and gives up."""
    return isinstance(state.data, BaseException)


@task(
    task_run_name="extract {model}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=4,
    retry_delay_seconds=exponential_backoff(10),
    retry_condition_fn=_was_raised,
)
def hand_over(
    model: str,
    gpus: int,
    workers: Workers,
    turns: Turns,
    place: int,
    parameters: dict[str, Any],
    budget: GPUBudget | None = None,
) -> State[Any]:
    """Has a worker extract a model, and another worker if that one dies; ends in the state of the last run.

    It waits until no lower `place` waits, and takes as many slots as the model takes GPUs. `budget`: the
    GPU-hours that all models share; once they are used up, runs are cancelled.
    """
    title = f"extract {model}"
    variables = {GPUS_VARIABLE: gpus} | {name: POD_RESOURCES[name](gpus) for name in workers.job_variables}

    def start(n: int) -> FlowRun:
        run = run_deployment(
            WORKER_DEPLOYMENT,
            parameters=parameters,
            flow_run_name=title,
            timeout=0,
            tags=[HANDED_OVER_TAG],
            idempotency_key=f"{flow_run.id}-{flow_run.run_count}-{model}-{n}",
            job_variables=variables,
        )
        assert isinstance(run, FlowRun)  # and no coroutine: this is a task of a thread
        return run

    with ExitStack() as held:
        with turns.take(place):
            held.enter_context(_hold_slots(gpus, workers, lambda: _prefetch(parameters, workers)))
            if budget is not None and budget.is_ending:
                return Failed(message=budget.reason)
            run = start(0)  # before the next one may count slots
        client = held.enter_context(get_client(sync_client=True))
        for n in range(MAX_TRIES):
            if n > 0:
                run = start(n)
            state = _wait_for_final_state(
                client, run, workers.pool, None if budget is None else _Meter(budget, model, gpus)
            )
            if state.is_completed():
                report_progress(title, 1.0)
                return Completed(message=f"run {run.name} of {workers.pool}")
            if not state.is_crashed() or (budget is not None and budget.is_ending):
                break
            get_run_logger().warning("%s: %s", title, state.message)
    if budget is not None and budget.is_ending:
        return Failed(message=budget.reason)
    return Failed(message=state.message or f"its run on a worker ended {state.name}")


class _Meter(NamedTuple):
    """A meter of the GPU-hours of one model's run on a worker."""

    budget: GPUBudget
    model: str
    gpus: int

    def read(self, client: SyncPrefectClient, run: FlowRun) -> None:
        """Counts GPU-hours while the run works, and cancels the run if the budget is nearly used up."""
        state = run.state
        assert state is not None
        if state.is_running():
            self.budget.begin(self.model, self.gpus)
        elif state.is_final():
            self.budget.end(self.model)
        if self.budget.is_ending and (state.is_scheduled() or state.is_running()):
            ending = Cancelling if state.is_running() else Cancelled
            client.set_flow_run_state(run.id, ending(message=self.budget.reason))


def _wait_for_final_state(
    client: SyncPrefectClient, run: FlowRun, pool: str, meter: _Meter | None
) -> State[Any]:
    """Waits for a run's final state; cancels a run that stays without a worker, and ends a dead one."""
    alone_since: float | None = None
    checked = time.monotonic()
    while True:
        run = client.read_flow_run(run.id)
        state = run.state
        assert state is not None
        if meter is not None:
            meter.read(client, run)
        if state.is_final():
            return state
        if time.monotonic() - checked > SECONDS_BETWEEN_HEARTBEAT_CHECKS:
            checked = time.monotonic()
            end_if_silent(client, run)
        if not state.is_scheduled() or list_online(client, pool):
            alone_since = None
        elif alone_since is None:
            alone_since = time.monotonic()
        elif time.monotonic() - alone_since > PATIENCE_SECONDS:
            message = f"no worker of work pool {pool} is online: prefect worker start --pool {pool}"
            client.set_flow_run_state(run.id, Cancelled(message=message))
            alone_since = None
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _prefetch(parameters: dict[str, Any], workers: Workers) -> None:
    """Has a worker download a model while other models use the GPUs."""
    run_deployment(
        WORKER_DEPLOYMENT,
        parameters={**parameters, "download_only": True},
        flow_run_name=f"download {parameters['model']}",
        timeout=0,
        idempotency_key=f"{flow_run.id}-{flow_run.run_count}-{parameters['model']}-download",
        job_variables={GPUS_VARIABLE: 0} if GPUS_VARIABLE in workers.job_variables else {},
    )


@contextmanager
def _hold_slots(gpus: int, workers: Workers, while_waiting: Callable[[], None]) -> Iterator[None]:
    """Holds slots of the server's limit during a block; if the limit was deleted, nothing runs.

    A model that is wider than all workers together takes all slots, and the worker that gets it reports the
    fault. `while_waiting` is called once, if the slots are not free soon.
    """
    with ExitStack() as held:
        before: tuple[int, int] | None = None
        n_errors = 0
        while True:
            try:
                slots = concurrency(
                    LIMIT_NAME,
                    occupy=min(gpus, update_limit(workers)),
                    strict=True,
                    timeout_seconds=SECONDS_BETWEEN_RECOUNTS,
                    lease_duration=LEASE_SECONDS,
                    raise_on_lease_renewal_failure=False,  # a restarted server has forgotten who holds what
                )
                try:
                    held.enter_context(slots)
                    break
                except TimeoutError:
                    if before is None:
                        while_waiting()
                before = _recount(before)
            except PrefectHTTPStatusError as error:  # a busy server must not cost the place
                n_errors += 1
                if error.response.status_code < SERVER_ERROR or n_errors > MAX_ERRORS:
                    raise
                time.sleep(SECONDS_BETWEEN_LOOKS)
        yield


def _recount(before: tuple[int, int] | None) -> tuple[int, int]:
    """The numbers of slots in use and of slots that unfinished runs take; the first is set to the second.

    It is set only if both were the same `before`, because a run that just began or ended is counted a moment
    later.
    """
    with get_client(sync_client=True) as client:
        taken = count_used_slots(client)
        active = client.read_global_concurrency_limit_by_name(LIMIT_NAME).active_slots
        if active != taken and before == (active, taken):
            get_run_logger().warning(
                "concurrency limit %s: %d slots in use, and runs take %d; correcting",
                LIMIT_NAME,
                active,
                taken,
            )
            client.update_global_concurrency_limit(
                LIMIT_NAME, GlobalConcurrencyLimitUpdate(active_slots=taken)
            )
    return active, taken

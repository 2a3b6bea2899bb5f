"""Slots of the workers that extract models: how many each worker has, and whether its GPUs are free.

A slot is a GPU. On a worker without GPUs, it is a model that runs beside others.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
    WorkerFilter,
    WorkerFilterStatus,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import Abort
from prefect.states import Scheduled

from rlfocal.base.wording import count_noun
from rlfocal.extraction.gpus import Device, Lease, lease_folder, offer_free
from rlfocal.extraction.running.runner import default_jobs, find_gpus_of

HANDED_OVER_TAG = "rlfocal-handed-over"
"""The tag of runs that a regeneration starts on workers."""
GPUS_VARIABLE = "gpus"
"""The job variable with the number of GPUs that a run takes."""
SLOTS_LABEL = "rlfocal.slots"
"""The label of a run that says how many slots the worker that took it has."""
WORKER_LABEL = "prefect.worker.name"
"""Prefect's own label of a run with the name of its worker."""
SECONDS_UNTIL_OFFERED_AGAIN = 20
"""The seconds until a run is offered again after a worker without free GPUs gave it back."""
RUNS_READ = 200
_UNFINISHED_STATES = (
    *(StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING),
    *(StateType.PAUSED, StateType.CANCELLING),
)
_reserved: list[Lease] = []


def take_or_give_back(
    client: SyncPrefectClient, run: FlowRun, devices: Sequence[Device], folder: Path
) -> Lease:
    """A lease on a worker's GPUs for a run that a regeneration started; called before the run begins.

    It also reports how many slots the worker has. `devices` are its GPUs, and `folder` is that of their
    leases. If too few are free, the run is scheduled anew, so that another worker may take it, and Abort ends
    this process.
    """
    slots = len(devices) or default_jobs(str(run.parameters.get("backend", "hf")))
    client.update_flow_run_labels(run.id, {SLOTS_LABEL: slots})
    width = min(_width_of(run), len(devices))
    with offer_free(folder, devices) as offer:
        if (free := len(offer.devices)) >= width:
            return offer.take(offer.devices[:width])
    message = (
        f"it needs {count_noun(width, 'GPU')}, but {free} were free on worker {run.labels.get(WORKER_LABEL)}"
    )
    later = datetime.now(UTC) + timedelta(seconds=SECONDS_UNTIL_OFFERED_AGAIN)
    client.set_flow_run_state(run.id, Scheduled(scheduled_time=later, message=message), force=True)
    raise Abort(message)


def reserve(client: SyncPrefectClient, run: FlowRun) -> None:
    """Takes GPUs for a run in its own process (`take_or_give_back`), until `release_reserved`."""
    devices = find_gpus_of(str(run.parameters.get("backend", "hf")))
    _reserved.append(take_or_give_back(client, run, devices, lease_folder()))


def release_reserved() -> None:
    """Releases the reserved GPUs, because the process that extracts takes a lease of its own."""
    while _reserved:
        _reserved.pop().close()


def _width_of(run: FlowRun) -> int:
    """The number of GPUs that a regeneration's run on a worker takes."""
    return int((run.job_variables or {}).get(GPUS_VARIABLE, 1))


def count_slots(client: SyncPrefectClient, pool: str, unknown: int) -> int:
    """The slots of all workers online, by their last reports; a worker without one counts as `unknown`."""
    filters = FlowRunFilter(tags=FlowRunFilterTags(all_=[HANDED_OVER_TAG]))
    newest = FlowRunSort.EXPECTED_START_TIME_DESC
    runs = client.read_flow_runs(flow_run_filter=filters, sort=newest, limit=RUNS_READ)
    said = {
        run.labels.get(WORKER_LABEL): run.labels[SLOTS_LABEL]
        for run in reversed(runs)
        if SLOTS_LABEL in run.labels
    }
    return sum(int(said.get(name, unknown)) for name in list_online(client, pool))


def count_used_slots(client: SyncPrefectClient) -> int:
    """The number of slots that unfinished runs take."""
    unfinished = FlowRunFilter(
        tags=FlowRunFilterTags(all_=[HANDED_OVER_TAG]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(_UNFINISHED_STATES))),
    )
    return sum(map(_width_of, client.read_flow_runs(flow_run_filter=unfinished)))


def list_online(client: SyncPrefectClient, pool: str) -> list[str]:
    """The names of a work pool's workers that are online."""
    wanted = WorkerFilter(status=WorkerFilterStatus(any_=["ONLINE"]))
    return [worker.name for worker in client.read_workers_for_work_pool(pool, wanted)]

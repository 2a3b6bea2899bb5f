"""Steps of prefect.yaml, for `prefect deploy` and for every deployed run; and the end of dead runs.

The server keeps events in memory until its automations have seen them. If it or its database is killed, the
events of the last seconds are lost, and it may never notice that a heartbeat is overdue. Therefore a
regeneration also checks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from prefect import get_client
from prefect.automations import Automation
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    FlowRunFilterTags,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.events.actions import ChangeFlowRunState, SendNotification
from prefect.events.filters import (
    EventFilter,
    EventNameFilter,
    EventOccurredFilter,
    EventResourceFilter,
)
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import Abort, ObjectNotFound, PrefectHTTPStatusError
from prefect.runtime import deployment, flow_run
from prefect.states import Crashed, Failed

from flows.support.capacity import HANDED_OVER_TAG, reserve
from rlfocal.base.errors import InputError, unknown_name

RUN_TAG = "rlfocal"
"""The tag of every run of rlfocal; prefect.yaml gives it to deployments."""
AUTOMATION_NAME = "rlfocal: a run without a heartbeat has crashed"
UNBEGUN_AUTOMATION = "rlfocal: a run of a process that does not begin has crashed"
NOTIFICATION_NAME = "rlfocal: tell of a run that ended badly"
PROCESS_POOL_TYPE = "process"
"""The type of a work pool whose workers start runs as processes, at once."""
SILENCE_SECONDS = 240
"""The seconds without a heartbeat after which a run counts as dead.

With prefect.yaml's 30 s between heartbeats, a run outlives 3 minutes without a server.
"""
MIN_SILENCE_SECONDS = 60
"""The smallest `SILENCE_SECONDS` that may be set: in this time, a healthy run may send only one heartbeat."""
HEARTBEAT_EVENT = "prefect.flow-run.heartbeat"
_PENDING_EVENTS = {"prefect.flow-run.Pending"}
_BEGIN_EVENTS = {HEARTBEAT_EVENT, "prefect.flow-run.Running"}
_BAD_END_EVENTS = {f"prefect.flow-run.{state}" for state in ("Failed", "Crashed")}
_END_EVENTS = _BAD_END_EVENTS | {f"prefect.flow-run.{state}" for state in ("Completed", "Cancelled")}
_REST_EVENTS = {
    f"prefect.flow-run.{state}" for state in ("Scheduled", "AwaitingRetry", "Paused", "Suspended")
}
EXTRA_WAIT = timedelta(minutes=1)
"""The time that the check here waits beyond the server's automation, which should act first."""
_BEGUN_STATES = (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)


async def crash_silent_runs(seconds: int = SILENCE_SECONDS) -> None:
    """Has the server mark runs as Crashed whose process or host died; a second call changes nothing.

    Otherwise such a run would stay Running, or Pending, forever. `seconds`: the time that a run may go
    without a heartbeat. A pod may be Pending for as long as its image or its node takes; a worker's own
    process may not. Raises InputError for a time of less than two heartbeats.
    """
    if seconds < MIN_SILENCE_SECONDS:
        raise InputError(
            f"prefect.yaml: crash_silent_runs after {seconds} s would crash healthy runs, which send a "
            f"heartbeat every 30 s; give at least {MIN_SILENCE_SECONDS}"
        )
    silence = timedelta(seconds=seconds)
    of_processes = {"prefect.resource.role": "work-pool", "prefect.work-pool.type": PROCESS_POOL_TYPE}
    await _put(_make_crash(AUTOMATION_NAME, silence, _BEGIN_EVENTS, [_make_tag_resource()]))
    await _put(
        _make_crash(
            UNBEGUN_AUTOMATION,
            silence,
            _PENDING_EVENTS,
            [_make_tag_resource(), ResourceSpecification.model_validate(of_processes)],
        )
    )


async def notify(block: str | None = None) -> None:
    """Has the server announce every run that fails or crashes, through a notification block TYPE/NAME.

    Without `block`, it announces none. A second call changes nothing. Raises InputError if the block is
    missing.
    """
    if not block:
        if (there := await _find_automation(NOTIFICATION_NAME)) is not None:
            await there.adelete()
        return
    kind, _, name = block.partition("/")
    async with get_client() as client:
        try:
            document = await client.read_block_document_by_name(name, kind)
        except ObjectNotFound:
            raise InputError(
                f"prefect.yaml: there is no notification block {block!r}; make one on the server's page "
                "Blocks, and name it TYPE/NAME, as in slack-webhook/night (`prefect block ls` lists them)"
            ) from None
    await _put(_make_notification(document.id))


async def _put(wanted: Automation) -> None:
    there = await _find_automation(wanted.name)
    if there is None:
        await wanted.acreate()
    elif there.model_dump(exclude={"id"}) != wanted.model_dump(exclude={"id"}):
        wanted.id = there.id
        await wanted.aupdate()  # the server then forgets which heartbeats it waits for


async def _find_automation(name: str) -> Automation | None:
    try:
        return await Automation.aread(name=name)
    except ValueError:
        return None


def _make_notification(block: UUID) -> Automation:
    send = SendNotification(
        block_document_id=block,
        subject="rlfocal: {{ flow_run.name }} is {{ flow_run.state.name }}",
        body="{{ flow_run.state.message }} {{ flow_run|ui_url }}",
    )
    trigger = EventTrigger(
        match=ResourceSpecification.model_validate({"prefect.resource.id": "prefect.flow-run.*"}),
        match_related=_make_tag_resource(),
        for_each={"prefect.resource.id"},
        expect=_BAD_END_EVENTS,
        posture=Posture.Reactive,
        threshold=1,
        within=timedelta(0),
    )
    return Automation(name=NOTIFICATION_NAME, trigger=trigger, actions=[send])


def _make_tag_resource() -> ResourceSpecification:
    tag = {"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{RUN_TAG}"}
    return ResourceSpecification.model_validate(tag)


def _make_crash(
    name: str, silence: timedelta, begins: set[str], related: Sequence[ResourceSpecification]
) -> Automation:
    crash = ChangeFlowRunState(
        name=None,
        state=StateType.CRASHED,
        message=f"No heartbeat for {silence.total_seconds():.0f} s: its process or its host died. "
        "The next run continues where it stopped.",
        force=False,
    )
    silent = EventTrigger(
        match=ResourceSpecification.model_validate({"prefect.resource.id": "prefect.flow-run.*"}),
        match_related=list(related),
        for_each={"prefect.resource.id"},
        after=begins,
        expect=_BEGIN_EVENTS | _END_EVENTS | _REST_EVENTS
        if begins == _PENDING_EVENTS
        else {HEARTBEAT_EVENT} | _END_EVENTS | _REST_EVENTS,
        posture=Posture.Proactive,
        threshold=1,
        within=silence,
    )
    return Automation(name=name, trigger=silent, actions=[crash])


def enter_checkout() -> dict[str, str]:
    """Prepares a run on a worker: changes to the checkout that RLFOCAL_HOME names, and reserves GPUs.

    Without a checkout, it changes to this package's own, where the flow loads and then fails with a clear
    message. An error here would be buried under tracebacks. The worker also runs this step to call a failed
    run's hooks.
    """
    directory = _find_checkout() or Path(__file__).parents[2]
    os.chdir(directory)
    if flow_run.id is not None:
        with get_client(sync_client=True) as client:
            run = client.read_flow_run(UUID(flow_run.id))
            _end_if_unknown(client, run)
            if HANDED_OVER_TAG in run.tags:
                reserve(client, run)
    return {"directory": str(directory)}


def _end_if_unknown(client: SyncPrefectClient, run: FlowRun) -> None:
    """Fails a run with a parameter that its flow does not have; Prefect would crash with a traceback."""
    if run.deployment_id is None:
        return
    form = client.read_deployment(run.deployment_id).parameter_openapi_schema or {}
    names = form.get("properties", {})
    if others := sorted(run.parameters.keys() - names):
        wrong = str(unknown_name("parameter", others[0], names))
        client.set_flow_run_state(run.id, Failed(message=wrong), force=True)
        raise Abort(wrong)


def check_checkout() -> None:
    """Raises InputError if this process runs a deployment, but RLFOCAL_HOME names no checkout."""
    if deployment.id is None or _find_checkout() is not None:
        return
    home = os.environ.get("RLFOCAL_HOME")
    wrong = f"RLFOCAL_HOME is {home}, which has no rlfocal" if home else "RLFOCAL_HOME is not set"
    raise InputError(
        f"on this worker {wrong}; start it with RLFOCAL_HOME=DIR, the directory of rlfocal's checkout"
    )


def _find_checkout() -> Path | None:
    home = os.environ.get("RLFOCAL_HOME")
    directory = Path(home or ".").expanduser().absolute()
    return directory if home and (directory / "flows" / "regenerate.py").is_file() else None


def end_silent_runs(now: datetime | None = None) -> list[str]:
    """Marks dead runs of rlfocal's deployments as crashed, and returns their names.

    Runs without a deployment may send no heartbeats, and the calling run is alive; both are left out.
    """
    begun = FlowRunFilter(
        tags=FlowRunFilterTags(all_=[RUN_TAG]),
        deployment_id=FlowRunFilterDeploymentId(is_null_=False),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(_BEGUN_STATES))),
    )
    with get_client(sync_client=True) as client:
        others = [run for run in _list_runs(client, begun) if str(run.id) != flow_run.id]
        return [run.name for run in others if end_if_silent(client, run, now)]


def _list_runs(client: SyncPrefectClient, wanted: FlowRunFilter) -> list[FlowRun]:
    """The `wanted` runs, read one by one: one with parameters that are not JSON would hide all others."""
    runs = []
    for offset in range(client.count_flow_runs(flow_run_filter=wanted)):
        with suppress(PrefectHTTPStatusError):
            runs += client.read_flow_runs(
                flow_run_filter=wanted, limit=1, offset=offset, sort=FlowRunSort.ID_DESC
            )
    return runs


def end_if_silent(client: SyncPrefectClient, run: FlowRun, now: datetime | None = None) -> bool:
    """Marks a run as crashed, and returns true, if it has long neither changed state nor sent a heartbeat.

    The time is that of the server's automation (`seconds` of `crash_silent_runs`) and a minute. A Pending run
    that a cluster is to start counts as silent only once it has sent a heartbeat.
    """
    now = now or datetime.now(UTC)
    shortest = timedelta(seconds=MIN_SILENCE_SECONDS)
    if run.state is None or run.state.type not in _BEGUN_STATES or run.state.timestamp > now - shortest:
        return False
    silence = _read_silence_limit(client) + EXTRA_WAIT
    since = now - silence
    if run.state.timestamp > since:
        return False
    if _has_sent_heartbeat(client, run, since, now):
        return False
    is_unbegun = run.state.is_pending() and not _has_sent_heartbeat(client, run, run.state.timestamp, now)
    if is_unbegun and _is_on_cluster(client, run):
        return False
    told = f"No heartbeat for {silence.total_seconds() / 60:g} minutes: its process or its host died."
    client.set_flow_run_state(run.id, Crashed(message=told))
    return True


def _has_sent_heartbeat(client: SyncPrefectClient, run: FlowRun, since: datetime, now: datetime) -> bool:
    heartbeats = EventFilter(
        occurred=EventOccurredFilter.model_validate({"since": since, "until": now}),
        event=EventNameFilter(name=[HEARTBEAT_EVENT]),
        resource=EventResourceFilter(id=[f"prefect.flow-run.{run.id}"]),
    )
    return bool(client.read_events(heartbeats, limit=1).events)


def _is_on_cluster(client: SyncPrefectClient, run: FlowRun) -> bool:
    """Whether a cluster starts the run's process, which may wait for an image or a node."""
    return (
        run.work_pool_name is not None and client.read_work_pool(run.work_pool_name).type != PROCESS_POOL_TYPE
    )


def _read_silence_limit(client: SyncPrefectClient) -> timedelta:
    """The time that the server's automation lets a run be silent; the default if nothing is deployed."""
    for automation in client.read_automations_by_name(AUTOMATION_NAME):
        if isinstance(automation.trigger, EventTrigger):
            return automation.trigger.within
    return timedelta(seconds=SILENCE_SECONDS)

"""Runs whose process or host died, and which the server's automation has missed.

The server keeps events in memory until its automations have seen them. Events in the seconds before it or its
database was killed are lost, so it may never notice that a heartbeat is overdue.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from prefect import get_client
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
from prefect.events.filters import (
    EventFilter,
    EventNameFilter,
    EventOccurredFilter,
    EventResourceFilter,
)
from prefect.events.schemas.automations import EventTrigger
from prefect.exceptions import PrefectHTTPStatusError
from prefect.runtime import flow_run
from prefect.states import Crashed

from flows.support.deploying import AUTOMATION, SHORTEST, SILENCE, TAG

LONGER = timedelta(minutes=1)
"""Than the server's automation waits, which should act first."""
HEARTBEAT = "prefect.flow-run.heartbeat"
_BEGUN = (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)


def end_silent_runs(now: datetime | None = None) -> list[str]:
    """Marks dead runs of rlfocal's deployments as crashed, and returns their names.

    Other runs may be configured to send no heartbeats. The calling run is alive.
    """
    begun = FlowRunFilter(
        tags=FlowRunFilterTags(all_=[TAG]),
        deployment_id=FlowRunFilterDeploymentId(is_null_=False),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(_BEGUN))),
    )
    with get_client(sync_client=True) as client:
        others = [run for run in _list_runs(client, begun) if str(run.id) != flow_run.id]
        return [run.name for run in others if end_if_silent(client, run, now)]


def _list_runs(client: SyncPrefectClient, wanted: FlowRunFilter) -> list[FlowRun]:
    """The runs, one by one: the server can list none beside one whose parameters it cannot write as JSON."""
    runs = []
    for offset in range(client.count_flow_runs(flow_run_filter=wanted)):
        with suppress(PrefectHTTPStatusError):
            runs += client.read_flow_runs(
                flow_run_filter=wanted, limit=1, offset=offset, sort=FlowRunSort.ID_DESC
            )
    return runs


def end_if_silent(client: SyncPrefectClient, run: FlowRun, now: datetime | None = None) -> bool:
    """Marks a run as crashed if it has long neither changed its state nor sent a heartbeat.

    How long is what the server's automation waits (`seconds` of `crash_silent_runs`), and a minute.
    """
    now = now or datetime.now(UTC)
    shortest = timedelta(seconds=SHORTEST)
    if run.state is None or run.state.type not in _BEGUN or run.state.timestamp > now - shortest:
        return False
    silence = _allowed(client) + LONGER
    since = now - silence
    if run.state.timestamp > since:
        return False
    heartbeats = EventFilter(
        occurred=EventOccurredFilter.model_validate({"since": since, "until": now}),
        event=EventNameFilter(name=[HEARTBEAT]),
        resource=EventResourceFilter(id=[f"prefect.flow-run.{run.id}"]),
    )
    if client.read_events(heartbeats, limit=1).events:
        return False
    told = f"No heartbeat for {silence.total_seconds() / 60:g} minutes: its process or its host died."
    client.set_flow_run_state(run.id, Crashed(message=told))
    return True


def _allowed(client: SyncPrefectClient) -> timedelta:
    """How long the server lets a run be silent; the default where nothing is deployed."""
    for automation in client.read_automations_by_name(AUTOMATION):
        if isinstance(automation.trigger, EventTrigger):
            return automation.trigger.within
    return timedelta(seconds=SILENCE)

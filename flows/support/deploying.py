"""What prefect.yaml calls: a step of `prefect deploy`, and one of every deployed run."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from prefect import get_client
from prefect.automations import Automation
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState, SendNotification
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import Abort, ObjectNotFound
from prefect.runtime import deployment, flow_run
from prefect.states import Failed

from rlfocal.base.errors import InputError, unknown

TAG = "rlfocal"
"""Of every run: prefect.yaml gives it to deployments."""
AUTOMATION = "rlfocal: a run without a heartbeat has crashed"
NOTIFICATION = "rlfocal: tell of a run that ended badly"
SILENCE = 240
"""Seconds. With prefect.yaml's 30 s between heartbeats, a run outlives 3 minutes without a server."""
SHORTEST = 60
"""Seconds of silence in which a healthy run may have sent only one heartbeat."""
_BEAT = "prefect.flow-run.heartbeat"
_BEGINS = {_BEAT, "prefect.flow-run.Pending", "prefect.flow-run.Running"}
_BAD_ENDS = {f"prefect.flow-run.{state}" for state in ("Failed", "Crashed")}
_ENDS = _BAD_ENDS | {f"prefect.flow-run.{state}" for state in ("Completed", "Cancelled")}
_RESTS = {f"prefect.flow-run.{state}" for state in ("Scheduled", "AwaitingRetry", "Paused", "Suspended")}


async def crash_silent_runs(seconds: int = SILENCE) -> None:
    """Has the server mark runs as Crashed whose process or host died. A second call changes nothing.

    Without it such a run would stay Running, or Pending, forever. `seconds`: how long a run may go without a
    heartbeat. Raises InputError for less than two heartbeats.
    """
    if seconds < SHORTEST:
        raise InputError(
            f"prefect.yaml: crash_silent_runs after {seconds} s would crash healthy runs, which send a "
            f"heartbeat every 30 s; give at least {SHORTEST}"
        )
    await _put(_crash(timedelta(seconds=seconds)))


async def notify(block: str | None = None) -> None:
    """Has the server announce every run that fails or crashes, through a notification block: TYPE/NAME.

    Without one, nobody is told. A second call changes nothing. Raises InputError if the block is missing.
    """
    if not block:
        if (there := await _there(NOTIFICATION)) is not None:
            await there.adelete()
        return
    kind, _, name = block.partition("/")
    async with get_client() as client:
        try:
            found = await client.read_block_document_by_name(name, kind)
        except ObjectNotFound:
            raise InputError(
                f"prefect.yaml: there is no notification block {block!r}; make one on the server's page "
                "Blocks, and name it TYPE/NAME, as in slack-webhook/night (`prefect block ls` lists them)"
            ) from None
    await _put(_notification(found.id))


async def _put(wanted: Automation) -> None:
    there = await _there(wanted.name)
    if there is None:
        await wanted.acreate()
    elif there.model_dump(exclude={"id"}) != wanted.model_dump(exclude={"id"}):
        wanted.id = there.id
        await wanted.aupdate()  # the server then forgets which heartbeats it waits for


async def _there(name: str) -> Automation | None:
    try:
        return await Automation.aread(name=name)
    except ValueError:
        return None


def _notification(block: UUID) -> Automation:
    send = SendNotification(
        block_document_id=block,
        subject="rlfocal: {{ flow_run.name }} is {{ flow_run.state.name }}",
        body="{{ flow_run.state.message }} {{ flow_run|ui_url }}",
    )
    trigger = EventTrigger(
        match=ResourceSpecification.model_validate({"prefect.resource.id": "prefect.flow-run.*"}),
        match_related=_ours(),
        for_each={"prefect.resource.id"},
        expect=_BAD_ENDS,
        posture=Posture.Reactive,
        threshold=1,
        within=timedelta(0),
    )
    return Automation(name=NOTIFICATION, trigger=trigger, actions=[send])


def _ours() -> ResourceSpecification:
    tag = {"prefect.resource.role": "tag", "prefect.resource.id": f"prefect.tag.{TAG}"}
    return ResourceSpecification.model_validate(tag)


def _crash(silence: timedelta) -> Automation:
    crash = ChangeFlowRunState(
        name=None,
        state=StateType.CRASHED,
        message=f"No heartbeat for {silence.total_seconds():.0f} s: its process or its host died. "
        "The next run continues where it stopped.",
        force=False,
    )
    silent = EventTrigger(
        match=ResourceSpecification.model_validate({"prefect.resource.id": "prefect.flow-run.*"}),
        match_related=_ours(),
        for_each={"prefect.resource.id"},
        after=_BEGINS,
        expect={_BEAT} | _ENDS | _RESTS,
        posture=Posture.Proactive,
        threshold=1,
        within=silence,
    )
    return Automation(name=AUTOMATION, trigger=silent, actions=[crash])


def enter_checkout() -> dict[str, str]:
    """Changes to the checkout that the worker's RLFOCAL_HOME names.

    If it names none, to this package's own: the flow loads there and fails with a clear message. An error
    here would be buried under tracebacks; and the worker also runs this step to call a failed run's hooks.
    """
    directory = _checkout() or Path(__file__).parents[2]
    os.chdir(directory)
    if flow_run.id is not None:
        _end_if_unknown(UUID(flow_run.id))
    return {"directory": str(directory)}


def _end_if_unknown(run: UUID) -> None:
    """Fails a run that was given a parameter that its flow has not; Prefect would crash, with a traceback."""
    with get_client(sync_client=True) as client:
        asked = client.read_flow_run(run)
        if asked.deployment_id is None:
            return
        form = client.read_deployment(asked.deployment_id).parameter_openapi_schema or {}
        known = form.get("properties", {})
        if others := sorted(asked.parameters.keys() - known):
            wrong = str(unknown("parameter", others[0], known))
            client.set_flow_run_state(run, Failed(message=wrong), force=True)
            raise Abort(wrong)


def check_checkout() -> None:
    """Raises InputError if this process runs a deployment, but RLFOCAL_HOME names no checkout."""
    if deployment.id is None or _checkout() is not None:
        return
    home = os.environ.get("RLFOCAL_HOME")
    wrong = f"RLFOCAL_HOME is {home}, which has no rlfocal" if home else "RLFOCAL_HOME is not set"
    raise InputError(
        f"on this worker {wrong}; start it with RLFOCAL_HOME=DIR, the directory of rlfocal's checkout"
    )


def _checkout() -> Path | None:
    home = os.environ.get("RLFOCAL_HOME")
    directory = Path(home or ".").expanduser().absolute()
    return directory if home and (directory / "flows" / "regenerate.py").is_file() else None

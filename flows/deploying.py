"""What prefect.yaml calls: a step of `prefect deploy`, and one of every deployed run."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from prefect.automations import Automation
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.runtime import deployment

from rlfocal.errors import InputError

AUTOMATION = "rlfocal: a regeneration without a heartbeat has crashed"
SILENCE = timedelta(seconds=240)
"""With prefect.yaml's 30 s between heartbeats, a run outlives 3 minutes without a server."""
_BEAT = "prefect.flow-run.heartbeat"
_BEGINS = {_BEAT, "prefect.flow-run.Pending", "prefect.flow-run.Running"}
_ENDS = {f"prefect.flow-run.{state}" for state in ("Completed", "Failed", "Crashed", "Cancelled")}
_RESTS = {f"prefect.flow-run.{state}" for state in ("Scheduled", "AwaitingRetry", "Paused", "Suspended")}


async def crash_silent_runs() -> None:
    """Has the server mark regenerations as Crashed whose process or host died. Called again, changes nothing.

    Without it such a run would stay Running, or Pending, for good.
    """
    wanted = _automation()
    try:
        there = await Automation.aread(name=AUTOMATION)
    except ValueError:
        await wanted.acreate()
        return
    if there.model_dump(exclude={"id"}) != wanted.model_dump(exclude={"id"}):
        wanted.id = there.id
        await wanted.aupdate()  # the server then forgets which heartbeats it waits for


def _automation() -> Automation:
    crash = ChangeFlowRunState(
        name=None,
        state=StateType.CRASHED,
        message=f"No heartbeat for {SILENCE.seconds // 60} minutes: its process or its host died. "
        "The next run goes on where it stopped.",
        force=False,
    )
    regenerations = {"prefect.resource.role": "flow", "prefect.resource.name": "regenerate"}
    silence = EventTrigger(
        match=ResourceSpecification.model_validate({"prefect.resource.id": "prefect.flow-run.*"}),
        match_related=ResourceSpecification.model_validate(regenerations),
        for_each={"prefect.resource.id"},
        after=_BEGINS,
        expect={_BEAT} | _ENDS | _RESTS,
        posture=Posture.Proactive,
        threshold=1,
        within=SILENCE,
    )
    return Automation(name=AUTOMATION, trigger=silence, actions=[crash])


def enter_checkout() -> dict[str, str]:
    """Goes to the checkout that the worker's RLFOCAL_HOME names.

    If it names none, to this package's own: the flow loads there and fails with a clear message. An error
    here would be buried under tracebacks; and the worker runs this step too, to call a failed run's hooks.
    """
    directory = _checkout() or Path(__file__).parents[1]
    os.chdir(directory)
    return {"directory": str(directory)}


def check_checkout() -> None:
    """Raises InputError where this process runs a deployment, but RLFOCAL_HOME names no checkout."""
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

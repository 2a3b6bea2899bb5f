"""The Prefect server, asked over plain HTTP: whether it answers, and whether runs start when due."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from rlfocal.base.failures import without_secrets
from rlfocal.upkeep.doctor import Finding

FLOW = "regenerate"
PATIENCE_SECONDS = 3
LONGER_PATIENCE_SECONDS = 20
"""For answers that the server reads from its database."""
LATE = timedelta(minutes=5)
NEW = timedelta(seconds=100)
"""How long a server may take to plan a deployment's first run."""
HEARTBEAT = "prefect.flow-run.heartbeat"


def check_server(url: str | None = None) -> Iterator[Finding]:
    """Whether a Prefect server answers at `url`, or else $PREFECT_API_URL, and what it says of its runs."""
    address = (url or os.environ.get("PREFECT_API_URL", "")).rstrip("/")
    if not address:
        yield Finding("server", "note", "PREFECT_API_URL is not set: `regenerate` starts its own server")
        return
    named = without_secrets(address)
    try:
        with urlopen(Request(f"{address}/health", headers=_headers()), timeout=PATIENCE_SECONDS):
            yield Finding("server", "ok", f"Prefect answers at {named}")
        yield from check_schedules(address)
    except HTTPError as error:
        yield _unreachable(f"the Prefect server at {named} answers with status {error.code}")
    except (URLError, OSError, ValueError) as error:
        reason = without_secrets(str(getattr(error, "reason", error)))
        yield _unreachable(f"the Prefect server at {named} does not answer ({reason})")


def check_schedules(address: str, now: datetime | None = None) -> Iterator[Finding]:
    """Schedules without a planned run, overdue runs, and running ones without a sign of life."""
    now = now or datetime.now(UTC)
    flow = {"flows": {"name": {"any_": [FLOW]}}}
    unfinished = {"state": {"type": {"any_": ["SCHEDULED", "PENDING", "RUNNING"]}}}
    deployments = _ask(address, "deployments/filter", flow)
    asked = flow | {"flow_runs": unfinished, "sort": "EXPECTED_START_TIME_ASC"}
    runs = _ask(address, "flow_runs/filter", asked)
    planned = [run for run in runs if run["state_type"] == "SCHEDULED"]
    for deployment in deployments:
        active = not deployment["paused"] and any(one["active"] for one in deployment["schedules"])
        if active and now - _time(deployment["updated"]) > NEW:
            yield _next_run(deployment, [run for run in planned if _time(run["expected_start_time"]) > now])
    for run in planned:
        due = _time(run["expected_start_time"])
        if now - due > LATE:
            what = f"run {run['name']!r} was due at {due:%Y-%m-%d %H:%M} UTC and has not started"
            pool = run["work_pool_name"] or "NAME"
            yield Finding("schedule", "fault", what, f"prefect worker start --pool {pool}")
    started = [run for run in runs if run not in planned and now - _time(run["state"]["timestamp"]) > LATE]
    for run in started:
        if not _is_alive(address, run["id"], now):
            what = f"run {run['name']!r} is {run['state_name']}, but has sent no heartbeat for 5 minutes"
            yield Finding(
                "schedule", "fault", what, f"prefect deploy --all; prefect flow-run delete {run['id']}"
            )


def _next_run(deployment: Mapping[str, Any], to_come: list[Any]) -> Finding:
    name = f"deployment {FLOW}/{deployment['name']}"
    times = [run["expected_start_time"] for run in to_come if run["deployment_id"] == deployment["id"]]
    if times:
        return Finding("schedule", "ok", f"{name} runs next at {_time(min(times)):%Y-%m-%d %H:%M} UTC")
    what = f"{name} has a schedule, but its server has planned no run"
    return Finding("schedule", "fault", what, "pip install 'sqlalchemy<2.1' for the server, and restart it")


def _is_alive(address: str, run: str, now: datetime) -> bool:
    """Whether the run has lately shown a sign of life."""
    wanted = {
        "occurred": {"since": (now - LATE).isoformat(), "until": now.isoformat()},
        "event": {"name": [HEARTBEAT]},
        "resource": {"id": [f"prefect.flow-run.{run}"]},
    }
    return bool(_ask(address, "events/filter", {"filter": wanted, "limit": 1})["events"])


def _ask(address: str, path: str, body: Mapping[str, Any]) -> Any:
    request = Request(f"{address}/{path}", data=json.dumps(body).encode(), headers=_headers(), method="POST")
    with urlopen(request, timeout=LONGER_PATIENCE_SECONDS) as answer:
        return json.load(answer)


def _headers() -> dict[str, str]:
    """With $PREFECT_API_AUTH_STRING, `user:password`, where the server asks for it."""
    headers = {"Content-Type": "application/json"}
    if auth := os.environ.get("PREFECT_API_AUTH_STRING"):
        headers["Authorization"] = f"Basic {b64encode(auth.encode()).decode()}"
    return headers


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _unreachable(message: str) -> Finding:
    return Finding("server", "note", message, "prefect server start, or unset PREFECT_API_URL")

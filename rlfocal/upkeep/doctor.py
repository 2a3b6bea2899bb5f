"""Checks the installation, a warehouse and a Prefect server, and says how to fix what is wrong."""

from __future__ import annotations

import json
import os
import shutil
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from ctypes import CDLL
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, Literal
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from packaging.requirements import Requirement

from rlfocal.base.errors import InputError, RunError, without_secrets
from rlfocal.base.wording import count_noun
from rlfocal.extraction.engines.tokenizers import misread_models
from rlfocal.extraction.gpus import driver_fault
from rlfocal.extraction.recording import tied_models
from warehouse import open_warehouse
from warehouse.connecting import MissingWarehouseError
from warehouse.integrity import Integrity, KeyFault, OnProgress, Repair, examine, repair
from warehouse.limits import DiskFullError
from warehouse.locations import Location, locate
from warehouse.opening import needs_upgrade

Level = Literal["ok", "note", "fault"]


@dataclass(frozen=True)
class DoctorCheck:
    """One check of `rlfocal doctor`, with its result."""

    check: str
    level: Level
    """The gravity of the result. At `note`, nothing is broken, but it is worth knowing."""
    message: str
    fix: str | None = None
    """The command to run, or what else to do; None if there is nothing to do."""


FLOW_NAME = "regenerate"
PATIENCE_SECONDS = 3
LONGER_PATIENCE_SECONDS = 20
"""The seconds that the doctor waits for responses that the server reads from its database."""
NOT_FOUND, METHOD_NOT_ALLOWED = 404, 405
LATE_AFTER = timedelta(minutes=5)
NEW_DEPLOYMENT_AGE = timedelta(seconds=100)
"""The time that a Prefect server may take to plan a deployment's first run."""
HEARTBEAT_EVENT = "prefect.flow-run.heartbeat"


def check_server(url: str | None = None) -> Iterator[DoctorCheck]:
    """Checks whether a Prefect server responds at `url`, else at $PREFECT_API_URL, and what it reports on its
    runs."""
    address = (url or os.environ.get("PREFECT_API_URL", "")).rstrip("/")
    if not address:
        yield DoctorCheck("server", "note", "PREFECT_API_URL is not set: `regenerate` starts its own server")
        return
    named = without_secrets(address)
    try:
        if not _is_api(address):
            if not address.endswith("/api") and _is_api(f"{address}/api"):
                what = f"PREFECT_API_URL={named} is the page of a Prefect server, whose API is at {named}/api"
                yield DoctorCheck("server", "fault", what, f"export PREFECT_API_URL={named}/api")
            else:
                yield _make_unreachable(
                    f"what answers at {named} is no Prefect API, which often ends in /api"
                )
            return
        yield DoctorCheck("server", "ok", f"Prefect answers at {named}")
        yield from check_schedules(address)
    except HTTPError as error:
        yield _make_unreachable(f"the Prefect server at {named} answers with status {error.code}")
    except (URLError, OSError, ValueError) as error:
        reason = without_secrets(str(getattr(error, "reason", error)))
        yield _make_unreachable(f"the Prefect server at {named} does not answer ({reason})")


def check_schedules(address: str, now: datetime | None = None) -> Iterator[DoctorCheck]:
    """Checks a Prefect server for schedules without a planned run, overdue runs, and running ones without a
    heartbeat."""
    now = now or datetime.now(UTC)
    flow = {"flows": {"name": {"any_": [FLOW_NAME]}}}
    unfinished = {"state": {"type": {"any_": ["SCHEDULED", "PENDING", "RUNNING"]}}}
    deployments = _ask(address, "deployments/filter", flow)
    asked = flow | {"flow_runs": unfinished, "sort": "EXPECTED_START_TIME_ASC"}
    runs = _ask(address, "flow_runs/filter", asked)
    planned = [run for run in runs if run["state_type"] == "SCHEDULED"]
    for deployment in deployments:
        active = not deployment["paused"] and any(schedule["active"] for schedule in deployment["schedules"])
        if active and now - _time(deployment["updated"]) > NEW_DEPLOYMENT_AGE:
            yield _check_run(deployment, [run for run in planned if _time(run["expected_start_time"]) > now])
    for run in planned:
        due = _time(run["expected_start_time"])
        if now - due > LATE_AFTER:
            what = f"run {run['name']!r} was due at {due:%Y-%m-%d %H:%M} UTC and has not started"
            pool = run["work_pool_name"] or "NAME"
            yield DoctorCheck("schedule", "fault", what, f"prefect worker start --pool {pool}")
    started = [
        run for run in runs if run not in planned and now - _time(run["state"]["timestamp"]) > LATE_AFTER
    ]
    for run in started:
        if not _is_alive(address, run["id"], now):
            what = f"run {run['name']!r} is {run['state_name']}, but has sent no heartbeat for 5 minutes"
            yield DoctorCheck(
                "schedule", "fault", what, f"prefect deploy --all; prefect flow-run delete {run['id']}"
            )


def _check_run(deployment: Mapping[str, Any], to_come: list[Any]) -> DoctorCheck:
    name = f"deployment {FLOW_NAME}/{deployment['name']}"
    times = [run["expected_start_time"] for run in to_come if run["deployment_id"] == deployment["id"]]
    if times:
        return DoctorCheck("schedule", "ok", f"{name} runs next at {_time(min(times)):%Y-%m-%d %H:%M} UTC")
    what = f"{name} has a schedule, but its server has planned no run"
    return DoctorCheck(
        "schedule", "fault", what, "pip install 'sqlalchemy<2.1' for the server, and restart it"
    )


def _is_alive(address: str, run: str, now: datetime) -> bool:
    """Whether the run has sent a heartbeat in the last five minutes."""
    wanted = {
        "occurred": {"since": (now - LATE_AFTER).isoformat(), "until": now.isoformat()},
        "event": {"name": [HEARTBEAT_EVENT]},
        "resource": {"id": [f"prefect.flow-run.{run}"]},
    }
    return bool(_ask(address, "events/filter", {"filter": wanted, "limit": 1})["events"])


def _ask(address: str, path: str, body: Mapping[str, Any]) -> Any:
    request = Request(f"{address}/{path}", data=json.dumps(body).encode(), headers=_headers(), method="POST")
    with urlopen(request, timeout=LONGER_PATIENCE_SECONDS) as answer:
        return json.load(answer)


def _is_api(address: str) -> bool:
    """Whether the API of a Prefect server is at the address, and not a page. Raises URLError if nothing
    responds there."""
    try:
        with urlopen(Request(f"{address}/health", headers=_headers()), timeout=PATIENCE_SECONDS) as answer:
            return bool(answer.read(16).strip() == b"true")
    except HTTPError as error:
        if error.code in (NOT_FOUND, METHOD_NOT_ALLOWED):
            return False
        raise
    except HTTPException:
        return False


def _headers() -> dict[str, str]:
    """The headers of requests to the Prefect server. They include $PREFECT_API_AUTH_STRING (`user:password`)
    if it is set."""
    headers = {"Content-Type": "application/json"}
    if auth := os.environ.get("PREFECT_API_AUTH_STRING"):
        headers["Authorization"] = f"Basic {b64encode(auth.encode()).decode()}"
    return headers


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _make_unreachable(message: str) -> DoctorCheck:
    return DoctorCheck("server", "note", message, "prefect server start, or unset PREFECT_API_URL")


_EVALUATE_ADVICE = "run the evaluation again: it computes what is missing"
_EXTRACT_ADVICE = "run the extraction or import again: it adds what is missing"
_REPAIR_ADVICE = "rlfocal doctor --repair drops the task's; the next model extracted on it stores them again"


def diagnose(
    location: str | Path | None = None, *, fix: bool = False, on_progress: OnProgress | None = None
) -> list[DoctorCheck]:
    """Checks the versions of packages, the GPU, the server and the warehouse at `location`. With `fix`,
    repairs the warehouse first.

    `on_progress` is called with the share of the warehouse's files that have been read.
    """
    place = locate(location)
    findings = [*check_versions(), _check_gpu(), *check_server()]
    return [*findings, *check_warehouse(place, fix=fix, on_progress=on_progress)]


def check_versions() -> Iterator[DoctorCheck]:
    """Checks whether the installed packages have the versions that rlfocal needs."""
    faults = []
    n = 0
    for line in requires("rlfocal") or ():
        wanted = Requirement(line)
        is_optional = wanted.marker is not None and "extra" in str(wanted.marker)
        try:
            installed = version(wanted.name)
        except PackageNotFoundError:
            if not is_optional:
                faults.append(f"{wanted.name} is not installed")
            continue
        n += 1
        if not wanted.specifier.contains(installed, prereleases=True):
            faults.append(f"{wanted.name} is {installed}, but {wanted.specifier} is needed")
    faults += _find_mismatched_extensions()
    for fault in faults:
        yield DoctorCheck("versions", "fault", fault, "pip install --constraint constraints.txt rlfocal")
    if not faults:
        shown = ", ".join(f"{name} {version(name)}" for name in ("rlfocal", "duckdb", "torch", "lm_eval"))
        yield DoctorCheck("versions", "ok", f"{n} packages have the right versions: {shown}")


def _check_gpu() -> DoctorCheck:
    """Checks which GPUs engines would run on."""
    if not _has_driver():
        return DoctorCheck("gpu", "note", "no GPU: models run on the CPU")
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return DoctorCheck(
            "gpu", "ok", f"{count_noun(len(names), 'GPU')}: {', '.join(names)}, CUDA {torch.version.cuda}"
        )
    if shutil.which("nvidia-smi"):
        why = f"an NVIDIA driver is installed, but torch {torch.__version__} finds no GPU"
        fix = driver_fault() or "check CUDA_VISIBLE_DEVICES"
        return DoctorCheck("gpu", "fault", why, fix)
    return DoctorCheck("gpu", "note", "no GPU: models run on the CPU")


def _has_driver() -> bool:
    """Whether a GPU driver is installed. This spares machines without one the seconds of importing torch."""
    if Path("/dev/kfd").exists() or shutil.which("nvidia-smi"):
        return True
    try:
        CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def check_warehouse(
    place: Location, *, fix: bool = False, on_progress: OnProgress | None = None
) -> Iterator[DoctorCheck]:
    """Compares the warehouse's files and rows with its catalogue. With `fix`, repairs the warehouse first."""
    try:
        with open_warehouse(place, read_only=not fix, create=False) as opened:
            if fix:
                yield from _report_repair(repair(opened))
            if needs_upgrade(opened):
                older = f"{place.name} was created by an older rlfocal; upgrade it to have it checked"
                upgrade = "rlfocal doctor --repair, or any command that writes"
                yield DoctorCheck("warehouse", "note", older, upgrade)
                return
            integrity = examine(opened, on_progress)
            misread, tied = list(misread_models(opened)), tied_models(opened)
    except MissingWarehouseError as error:
        yield DoctorCheck("warehouse", "note", str(error))
        return
    except (InputError, DiskFullError) as error:  # says what to do
        yield DoctorCheck("warehouse", "fault", str(error))
        return
    except RunError as error:
        yield DoctorCheck(
            "warehouse", "fault", str(error), "give --warehouse, or restore the catalogue's backup"
        )
        return
    yield from _report_faults(place, integrity)
    for model, n, why in misread:
        what = f"{count_noun(n, 'partition')} of {model} may be of misread prompts: {why}"
        again = f"rlfocal extract --pool POOL --models {model} asks for them again"
        yield DoctorCheck("tokenizer", "fault", what, again)
    yield from (DoctorCheck("ties", "note", sentence) for sentence in tied)
    yield from _report_leftovers(place, fix=fix)


def _report_repair(result: Repair) -> Iterator[DoctorCheck]:
    """Yields the results of a repair as checks."""
    for file in result.files:
        yield DoctorCheck("repair", "note", f"dropped {file.path} of {file.table}: it {file.reason}")
    for task in result.tasks:
        what, fix = ("documents", _EXTRACT_ADVICE) if task.is_other else ("prompts", None)
        altered = f"dropped the {what} of {task.benchmark}/{task.task}, which had been altered"
        yield DoctorCheck("repair", "note", altered, fix)
    for p in result.partitions:
        dropped = f"dropped {p.model} on {p.benchmark}/{p.task}: it {p.reason}"
        yield DoctorCheck("repair", "note", dropped, _EXTRACT_ADVICE)
    for key in result.keys:
        yield DoctorCheck("repair", "note", f"{'removed rows' if key.n else 'named'}: {_show(key)}")
    for run in result.runs:
        yield DoctorCheck(
            "repair", "note", f"dropped run {run.run_id}: {run.task} had {run.reason}", _EVALUATE_ADVICE
        )
    if result.deleted:
        yield DoctorCheck("repair", "note", f"deleted {count_noun(result.deleted, 'file')} that nothing uses")


def _report_faults(place: Location, integrity: Integrity) -> Iterator[DoctorCheck]:
    fix = "rlfocal doctor --repair, then " + _EXTRACT_ADVICE
    for kind, faults in (
        ("files", [f"{file.path} of {file.table} {file.reason}" for file in integrity.current_files]),
        ("rows", [f"{p.model} on {p.benchmark}/{p.task} {p.reason}" for p in integrity.partitions or ()]),
        ("keys", [_show(key) for key in integrity.keys or ()]),
        ("runs", [f"{run.run_id} has {run.reason} ({run.task})" for run in integrity.runs or ()]),
    ):
        yield from (DoctorCheck(kind, "fault", fault, fix) for fault in faults)
    for task in integrity.tasks or ():
        for is_so, what, advice in (
            (
                task.without_label,
                f"has {count_noun(task.without_label, 'document')} with neither label nor gold answer",
                "rlfocal correct-labels FILE, or import the task again",
            ),
            (task.is_other, "has been altered: its documents are not those that were written", fix),
            (
                task.other_prompts and not task.is_other,
                f"has {count_noun(task.other_prompts, 'prompt')} missing or altered after being stored",
                _REPAIR_ADVICE,
            ),
            (
                task.n_duplicates,
                f"has {count_noun(task.n_duplicates, 'duplicate document')}",
                "import it again",
            ),
        ):
            if is_so:
                yield DoctorCheck("documents", "fault", f"{task.benchmark}/{task.task} {what}", advice)
    if lost := [file for file in integrity.files if file.last is not None]:
        spans = sorted({(file.first, file.last) for file in lost})
        shown = ", ".join(f"{first} to {last}" for first, last in spans)
        what = f"{count_noun(len(lost), 'file')} missing that only earlier snapshots need ({shown})"
        yield DoctorCheck("history", "note", what, "rlfocal compact --older-than AGE deletes those snapshots")
    if integrity.other_writers:
        written = _join_spans(integrity.other_writers)
        what = f"another client than rlfocal wrote or deleted rows in snapshots {written}"
        yield DoctorCheck("history", "note", what, "rlfocal diff shows what changed in answers")
    if integrity.orphans or integrity.overdue:
        n = len(integrity.orphans) + len(integrity.overdue)
        what = f"{count_noun(n, 'file')} that no snapshot needs, left by interrupted or running writes"
        yield DoctorCheck("leftovers", "note", what, "rlfocal doctor --repair deletes them")
    if integrity.is_sound:
        files = count_noun(integrity.n_files, "file")
        whole = f"{files} and {count_noun(integrity.n_partitions, 'partition')} intact"
        yield DoctorCheck("warehouse", "ok", f"{place.name}: {whole}")


def _join_spans(numbers: Iterable[int]) -> str:
    """Ascending numbers as text, such as "3, 5 to 9"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][-1] == number - 1:
            spans[-1][1:] = [number]
        else:
            spans.append([number])
    return ", ".join(" to ".join(map(str, span)) for span in spans)


def _show(fault: KeyFault) -> str:
    key = "/".join("NULL" if value is None else value for value in fault.key)
    if not fault.n:
        return f"{fault.table} {key} has no row, but answers"
    what = "has no whole key" if fault.is_partial else "is there more than once"
    return f"{fault.table} {key} {what} ({count_noun(fault.n, 'row')})"


def _report_leftovers(place: Location, *, fix: bool) -> Iterator[DoctorCheck]:
    """Checks what interrupted extractions and exports left on this machine. With `fix`, deletes what exports
    left."""
    shards = list(place.shards.glob("*/*.arrow"))
    if shards:
        what = f"{len(shards):,} shards of partitions that are not committed yet, in {place.shards}"
        yield DoctorCheck("leftovers", "note", what, "the next `rlfocal extract` continues from them")
    folders = {Path.cwd(), place.folder.absolute().parent}
    stopped = [path for folder in folders for path in folder.glob(".*.*.partial") if not _is_running(path)]
    for path in sorted(stopped):
        what = f"{path}, left by an interrupted export"
        if fix:
            shutil.rmtree(path, ignore_errors=True)
            yield DoctorCheck("repair", "note", f"deleted {what}")
        else:
            yield DoctorCheck("leftovers", "note", what, "rlfocal doctor --repair")


def _is_running(stage: Path) -> bool:
    """Whether the process that is named in a folder `.DIR.PID.partial` still runs."""
    number = stage.name.split(".")[-2]
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return not number.isdigit()
    except PermissionError:
        return True
    return True


def _find_mismatched_extensions() -> Iterator[str]:
    wanted = version("duckdb")
    for name in ("ducklake", "httpfs", "sqlite-scanner", "postgres-scanner"):
        with suppress(PackageNotFoundError):
            installed = version(f"duckdb-extension-{name}")
            if installed != wanted:
                yield f"duckdb-extension-{name} is {installed}, but DuckDB is {wanted}"

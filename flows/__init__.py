"""Prefect flows: a regeneration and its steps, which a server starts, watches and schedules as runs."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from rlfocal.base import options
from rlfocal.base.errors import InputError
from rlfocal.base.request import check
from rlfocal.extraction import PoolRequest
from warehouse.locations import locate

REPORT_FILE = Path(".rlfocal") / "report.html"
"""The file of the default warehouse's report."""

PREFECT_SETTINGS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",  # telemetry fails noisily without a network
    "PREFECT_LOGGING_LEVEL": "WARNING",  # progress bars must stay readable
    "PREFECT_LOGGING_ROOT_LEVEL": "ERROR",  # other libraries' warnings, which Prefect would print
    "PREFECT_LOGGING_LOGGERS_PREFECT_FLOW_RUNS_LEVEL": "CRITICAL",  # the summary reports failures
    "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "CRITICAL",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",  # seconds, as in prefect.yaml: a server may wait for them
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",  # whatever is stored, nothing is ever unpickled
}


@dataclass(frozen=True)
class RegenerationRequest(PoolRequest):
    """A request for a regeneration: a pool to extract, to train and evaluate on, and to report."""

    location: str | Path | None = None
    """The warehouse's directory or URI; None: the default one."""
    _: KW_ONLY
    minutes_per_model: options.Minutes = None
    stop_if_slower: options.StopIfSlower = False
    gpu_hours: options.GPUHours = None
    seeds: options.Seeds = 3
    report: options.Report = None

    def __post_init__(self) -> None:
        check(type(self), vars(self))


def report_path(warehouse: str | Path | None) -> Path:
    """The default file of a warehouse's report, beside the warehouse."""
    place = locate(warehouse)
    if place.catalog == locate(None).catalog:
        return REPORT_FILE
    if place.directory is None:
        return place.local / "report.html"
    return place.directory.with_name(f"{place.directory.name}-report.html")


def quieten() -> None:
    """Sets Prefect's logging for a run on a terminal, unless the user chose a level; call it before importing
    Prefect.

    Raises InputError if Prefect has no writable folder for the database of its temporary server.
    """
    for name, value in PREFECT_SETTINGS.items():
        os.environ.setdefault(name, value)
    home = Path(os.path.expanduser(os.environ.get("PREFECT_HOME") or "~/.prefect"))  # noqa: PTH111 - an unknown ~ stays
    if not os.environ.get("PREFECT_API_URL") and not _is_writable(home if home.exists() else home.parent):
        raise InputError(
            f"Prefect cannot keep its database in {home}, which this user cannot create or write to: "
            "set PREFECT_HOME (or HOME, from which its default comes) to a folder that this user can write to"
        )


def _is_writable(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK)

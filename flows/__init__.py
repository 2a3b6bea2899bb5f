"""Prefect flows: the main job as something that can be run, watched and scheduled."""

from __future__ import annotations

import os
from pathlib import Path

REPORT = Path(".rlfocal") / "report.html"
"""The report's default path."""

SETTINGS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",  # telemetry fails noisily without a network
    "PREFECT_LOGGING_LEVEL": "WARNING",  # progress bars must stay readable
    "PREFECT_LOGGING_ROOT_LEVEL": "ERROR",  # other libraries' warnings, which Prefect would print
    "PREFECT_LOGGING_LOGGERS_PREFECT_FLOW_RUNS_LEVEL": "CRITICAL",  # the summary reports failures
    "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "CRITICAL",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",  # seconds, as in prefect.yaml: a server may wait for them
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",  # whatever is stored, nothing is ever unpickled
}


def quieten() -> None:
    """Settings for a run on a terminal, where the user chose none; call it before Prefect is imported."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)

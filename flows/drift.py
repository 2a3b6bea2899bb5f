"""What a regeneration does about drift: compares, shows, marks the run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.objects import State
from prefect.states import Completed

from rlfocal.upkeep.drift import LISTED, Drift, drift_since, headline, table, upgrades
from warehouse import open_warehouse

if TYPE_CHECKING:
    from flows.support.pages import Summary

NAME = "Drifted"
"""Of the final state of a run whose answers drifted.

It is a completed one: everything was extracted and stored, so that there is nothing to run again, and
automations for failures stay quiet. Others can wait for the event `prefect.flow-run.Drifted`.
"""
Location = str | Path | None


def newest_snapshot(location: Location) -> int:
    with open_warehouse(location) as warehouse:
        return warehouse.snapshot()


def measure_drift(location: Location, snapshot: int) -> Drift:
    """How answers differ from those of a snapshot; what is beyond the limits is shown as an artifact."""
    with open_warehouse(location) as warehouse:
        drift = drift_since(warehouse, snapshot)
    if drift.beyond or any(one.change == "removed" for one in drift.difference.partitions):
        lines = [
            headline(drift),
            "",
            *table(drift, LISTED).markdown(),
            "",
            *(f"- {n}" for n in upgrades(drift)),
        ]
        create_markdown_artifact(key="regenerate-drift", markdown="\n".join(lines))
    return drift


def mark_drifted(summary: Summary) -> Summary | State[Summary]:
    """The summary, in a state named Drifted where answers are beyond the limits."""
    if summary.drift is None or not summary.drift.beyond:
        return summary
    places = [f"{key.model} on {key.benchmark}/{key.task}" for key in summary.drift.beyond]
    message = " · ".join([headline(summary.drift), *places[:5], *(["..."] if len(places) > 5 else [])])
    return Completed(name=NAME, message=message, data=summary)

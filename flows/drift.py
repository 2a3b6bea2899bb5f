"""What a regeneration does about drift: compares, shows, marks the run, keeps training off it if asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from prefect.artifacts import create_markdown_artifact
from prefect.client.schemas.objects import State
from prefect.states import Completed
from pydantic import BaseModel, ConfigDict, Field

from rlfocal.base.request import LARGEST
from rlfocal.upkeep.drift import LISTED, Drift, Thresholds, drift_since, headline, table, upgrades
from warehouse import open_warehouse
from warehouse.store import Committed, PartitionKey

if TYPE_CHECKING:
    from flows.support.pages import Summary

NAME = "Drifted"
"""Of the final state of a run whose answers drifted.

It is a completed one: everything was extracted and stored, so that there is nothing to run again, and
automations for failures stay quiet. Others can wait for the event `prefect.flow-run.Drifted`.
"""
Location = str | Path | None
Share = Annotated[float, Field(ge=0, le=1)]


class DriftLimits(BaseModel):
    """When answers that differ from the stored ones count as drift; see docs/snapshots.md."""

    model_config = ConfigDict(extra="forbid")

    logprob: Annotated[float, Field(ge=0, le=LARGEST)] | None = Field(
        default=None,
        description="By how much the log-prob of a token may differ. Default: 0.001; 0.1 in 16 bits.",
    )
    flipped: Share | None = Field(
        default=None, description="Share of predictions that may flip. Default: 0.01; 0.05 in 16 bits."
    )
    accuracy: Share | None = Field(
        default=None, description="By how much an accuracy may change, as a fraction. Default: 0.01."
    )
    keep_training: bool = Field(
        default=False,
        description="Train and evaluate drifted benchmarks on the answers from before the run.",
    )

    def thresholds(self) -> Thresholds:
        return Thresholds().changed(self.logprob, self.flipped, self.accuracy)


def newest_snapshot(location: Location) -> int:
    with open_warehouse(location) as warehouse:
        return warehouse.snapshot()


def measure_drift(location: Location, snapshot: int, limits: DriftLimits) -> Drift:
    """How answers differ from those of a snapshot; what is beyond the limits is shown as an artifact."""
    with open_warehouse(location) as warehouse:
        drift = drift_since(warehouse, snapshot, limits.thresholds())
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


def rows_to_train_on(
    drift: Drift | None, limits: DriftLimits, benchmark: str, before: Mapping[PartitionKey, Committed]
) -> tuple[int | None, set[str] | None]:
    """The snapshot to train on, and the models that answered at it (None: the newest, and all)."""
    if drift is None or not limits.keep_training:
        return None, None
    if benchmark not in {key.benchmark for key in drift.beyond}:
        return None, None
    tasks = {key.task for key in before if key.benchmark == benchmark}
    models = {key.model for key in before if key.benchmark == benchmark}
    whole = {m for m in models if all(PartitionKey(m, benchmark, task) in before for task in tasks)}
    return drift.difference.before, whole


def mark_drifted(summary: Summary) -> Summary | State[Summary]:
    """The summary, in a state named Drifted where answers are beyond the limits."""
    if summary.drift is None or not summary.drift.beyond:
        return summary
    places = [f"{key.model} on {key.benchmark}/{key.task}" for key in summary.drift.beyond]
    message = " · ".join([headline(summary.drift), *places[:5], *(["..."] if len(places) > 5 else [])])
    return Completed(name=NAME, message=message, data=summary)

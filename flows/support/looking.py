"""Checks that a regeneration makes beside its own work: drifted answers, and broken promises."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact

from flows.support.pages import report_progress
from rlfocal.evaluation.promising import (
    PROMISE_LEGEND,
    PromiseRecord,
    look_again,
    table_of,
    warnings_of,
    withdrawn_since,
)
from rlfocal.new_model.asking_again import Recheck
from rlfocal.upkeep.drift import (
    MAX_ROWS_LISTED,
    Drift,
    drift_since,
    find_last_reported_snapshot,
    have_answers_changed,
    headline,
    store_look,
    table,
    upgrades,
)
from warehouse import Warehouse, open_warehouse
from warehouse.locations import locate

Location = str | Path | None


def begin_look(warehouse: Warehouse) -> int:
    """The snapshot since which drift and promises are to be checked. The first check of a warehouse stores
    it, so that a run that dies before it reports loses nothing."""
    since = find_last_reported_snapshot(warehouse)
    if warehouse.rows("SELECT 1 FROM extractions LIMIT 1") and not warehouse.rows("FROM drift_looks LIMIT 1"):
        store_look(warehouse, since)
    return since


def measure_drift(location: Location, since: int) -> tuple[Drift | None, int]:
    """The drift of answers since a snapshot, and the present snapshot.

    The drift is None if no answers were written since. Drift beyond the limits is shown as an artifact.
    """
    with open_warehouse(location) as warehouse:
        now = warehouse.snapshot()
        if not have_answers_changed(warehouse, since):
            return None, now
        drift = drift_since(warehouse, since)
    if drift.exceeded_limits or any(
        partition.change == "removed" for partition in drift.difference.partitions
    ):
        lines = [
            headline(drift),
            "",
            *table(drift, MAX_ROWS_LISTED).markdown(),
            "",
            *(f"- {n}" for n in upgrades(drift)),
        ]
        create_markdown_artifact(key="regenerate-drift", markdown="\n".join(lines))
    return drift, now


def look_at_promises(location: Location, since: int) -> tuple[PromiseRecord, ...]:
    """Tests all promises on answers and labels that changed since their last test, and shows them as an
    artifact. Returns those that were withdrawn after the snapshot `since`, by any run."""
    with open_warehouse(location) as warehouse:
        looked = look_again(warehouse, report_progress)
        withdrawn = withdrawn_since(warehouse, since)
    for reason in looked.untested:
        get_run_logger().warning("a promise cannot be tested: %s", reason)
    if looked.promises:
        lines = ["# Promises", "", *table_of(looked.promises).markdown(), "", PROMISE_LEGEND]
        lines += [f"\n{warning}" for warning in warnings_of(looked.promises)]
        create_markdown_artifact(key="regenerate-promises", markdown="\n".join(lines))
    return withdrawn


def ask_anew(changed: Sequence[Recheck], pool: str, location: Location) -> list[str]:
    """Commands that delete the answers that services no longer give, and one that asks for them again."""
    of_model = defaultdict(list)
    for recheck in changed:
        of_model[recheck.model].append(recheck.benchmark)
    place = ["--warehouse", locate(location).name]
    commands = [
        ["rlfocal", "remove-model", model, "--benchmarks", ",".join(benchmarks), *place]
        for model, benchmarks in of_model.items()
    ]
    again = shlex.join(["rlfocal", "regenerate", "--pool", pool, *place])
    return [*(f"`{shlex.join(command)}`" for command in commands), f"then `{again}` asks only these anew"]

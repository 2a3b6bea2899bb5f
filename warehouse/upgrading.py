"""Repairs of what earlier versions stored. Every function works inside the upgrade's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import duckdb
import pyarrow as pa

from warehouse import columns
from warehouse.scripts import script

_NAMED_THEN = pa.schema([("run_id", pa.string()), ("then_of", pa.map_(pa.string(), pa.string()))])


class _Rename(NamedTuple):
    old: str
    new: str
    at: datetime


class _Run(NamedTuple):
    run_id: str
    models: frozenset[str]
    """Those that its decisions name."""
    created_at: datetime | None
    read: int | None
    """The snapshot that it read."""


def mark_impossible(connection: duckdb.DuckDBPyConnection) -> None:
    """Marks partitions with impossible scores, which versions before schema 10 committed."""
    connection.execute(script("writes/impossible"))
    connection.execute(script("upgrades/mark_impossible"))


def key_rounds_by_model(connection: duckdb.DuckDBPyConnection) -> None:
    """Lets `decisions.rounds` of schema 7 to 9 name its models; it stood in the order of `pool`.

    A rename sorted `pool` anew, and not `rounds`: the order it had follows from the names of that time. Where
    these cannot be known, `rounds` becomes NULL.
    """
    if not columns.has(connection, "decisions", "rounds", "INTEGER[]"):
        return
    named = pa.Table.from_pylist(_names_then(connection), schema=_NAMED_THEN)
    connection.register("named_then_rows", named)
    connection.execute("CREATE OR REPLACE TEMP TABLE named_then AS FROM named_then_rows")
    connection.unregister("named_then_rows")
    connection.execute(script("upgrades/rounds_by_model"))


def _names_then(connection: duckdb.DuckDBPyConnection) -> list[dict[str, object]]:
    """Runs that a rename has touched: each model's name when the run was written, by its name now."""
    renames = [
        _Rename(*row)
        for row in connection.execute(
            "SELECT old, new, renamed_at FROM renames ORDER BY renamed_at"
        ).fetchall()
    ]
    if not renames:
        return []
    snapshots = connection.execute("SELECT snapshot_id, snapshot_time FROM warehouse.snapshots()").fetchall()
    runs = connection.execute(script("upgrades/decided_runs")).fetchall()
    found: list[dict[str, object]] = []
    for run in (_Run(run_id, frozenset(models), *about) for run_id, models, *about in runs):
        then = _then_of(run, renames, snapshots)
        if then is None or any(name != was for name, was in then.items()):
            found.append({"run_id": run.run_id, "then_of": None if then is None else list(then.items())})
    return found


def _then_of(
    run: _Run, renames: Sequence[_Rename], snapshots: Sequence[tuple[int, datetime]]
) -> dict[str, str] | None:
    """Each model's name when the run was written; None where that is not known."""
    then = {model: model for model in run.models}
    for rename in reversed(renames):
        if rename.new not in then.values():
            continue
        was_later = _was_later(rename, run, snapshots)
        if was_later is None:
            return None
        if was_later:
            then = {now: rename.old if was == rename.new else was for now, was in then.items()}
    return then


def _was_later(rename: _Rename, run: _Run, snapshots: Sequence[tuple[int, datetime]]) -> bool | None:
    """Whether a model was renamed after the run read its answers; None where that is not known."""
    if run.created_at is None or run.read is None:
        return None
    # A run that is asked for again gets a new `created_at`, but never an older one.
    if run.created_at < rename.at or any(n >= run.read and time < rename.at for n, time in snapshots):
        return True
    return False if any(n <= run.read and time >= rename.at for n, time in snapshots) else None

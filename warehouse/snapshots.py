"""Snapshots, one for every commit: lists them, and compares two of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from warehouse.connecting import attach
from warehouse.errors import unknown_name
from warehouse.locations import Location
from warehouse.opening import check_tables, open_warehouse
from warehouse.scripts import script
from warehouse.store import PartitionKey, Warehouse

_Record = Mapping[str, str | None]
QUANTILE_LEVELS = (0.01, 0.25, 0.5, 0.75, 0.99)
"""The levels of `Logprobs.quantiles`."""


class RowChange(NamedTuple):
    """The numbers of rows of a table that a commit added, deleted and updated."""

    table: str
    added: int
    removed: int
    updated: int


class PartitionChange(NamedTuple):
    """A commit's change to a partition: `added`, `removed` or `replaced`."""

    change: str
    model: str
    benchmark: str
    task: str


@dataclass(frozen=True)
class Snapshot:
    """One commit, and what it changed."""

    id: int
    time: datetime
    message: str | None
    kinds: tuple[str, ...]
    """DuckLake's names of the commit's changes, such as `tables_inserted_into`."""
    rows: tuple[RowChange, ...]
    """The changes of rows by table; a table with a lost file is left out."""
    partitions: tuple[PartitionChange, ...]


class Logprobs(NamedTuple):
    """The distribution of differences in choices' log-probs, after minus before, in nats."""

    n: int
    """The number of choices compared."""
    n_moved: int
    """The number of choices whose log-prob differs at all."""
    n_beyond: int
    """The number of choices whose log-prob differs by more than the allowed amount."""
    mean: float
    quantiles: tuple[float, ...]
    """The quantiles of the differences at QUANTILE_LEVELS."""
    largest: float
    """The largest absolute difference."""


class SampledTexts(NamedTuple):
    """The number of sampled texts compared, and of those that differ."""

    n: int
    n_changed: int


@dataclass(frozen=True)
class PartitionDifference:
    """How one partition changed between two snapshots, over the documents that are the same in both."""

    change: str
    """The kind of change of the partition.

    It was `added`, `removed`, `replaced` (extracted or imported again), `rewritten` (other answers under the
    same record), or `relabelled` (the same answers, other labels).
    """
    model: str
    benchmark: str
    task: str
    low_precision: bool
    """Whether either model computed in 16 bits, was quantised, or was served at an unknown precision."""
    logprobs: Logprobs | None
    """The changes of log-probs; None unless the partition has choices that were answered anew."""
    texts: SampledTexts | None
    """The changes of sampled texts; None unless the partition has samples that were drawn anew."""
    n_before: int
    n_after: int
    n_shared: int
    """The number of documents that are the same in both snapshots."""
    flipped: int
    """The number of shared documents with another prediction."""
    became_right: int
    """The number of shared documents whose answer became right. Both answers are judged by the later labels,
    unless labels alone changed."""
    became_wrong: int
    accuracy_before: float | None
    """The accuracy of the earlier partition, by the labels of that time; None if there was none."""
    accuracy_after: float | None
    ran: dict[str, tuple[Any, Any]]
    """The changes in backend, settings and versions, as {name: (before, after)}."""

    @property
    def key(self) -> PartitionKey:
        return PartitionKey(self.model, self.benchmark, self.task)

    @property
    def is_moved(self) -> bool:
        """Whether any log-prob or sampled text of the shared documents differs."""
        return bool((self.logprobs and self.logprobs.n_moved) or (self.texts and self.texts.n_changed))


@dataclass(frozen=True)
class SnapshotDifference:
    """How two snapshots differ, partition by partition."""

    before: int
    after: int
    unchanged: int
    """The number of partitions that are the same in both snapshots."""
    partitions: tuple[PartitionDifference, ...]
    """The partitions that differ, by benchmark, task and model."""


def snapshots(warehouse: Warehouse, last: int | None = None) -> list[Snapshot]:
    """The existing snapshots, oldest first; with `last`, only so many of the newest."""
    with warehouse.hold_snapshot():
        return _snapshots(warehouse, last)


def diff(
    location: str | Path | Location | None,
    before: int,
    after: int,
    benchmark: str | None = None,
    *,
    full: float = 0.0,
    low: float = 0.0,
) -> SnapshotDifference:
    """The changes from snapshot `before` to snapshot `after`, on one benchmark or all.

    Answers are compared, not their records. `full` and `low` are the most nats by which the log-prob of a
    one-token choice may differ, at full and at low precision; of n tokens, √n times as much. Raises
    InputError for a snapshot that does not exist or has no tables, and for an unknown benchmark.
    """
    with _both_snapshots(location, before, after) as opened:
        if benchmark is not None:
            either = "SELECT benchmark FROM before.docs UNION SELECT benchmark FROM warehouse.docs"
            benchmarks = [name for (name,) in opened.rows(either)]
            if benchmark not in benchmarks:
                raise unknown_name("benchmark", benchmark, benchmarks, f"snapshots {before} and {after}")
        given = {"benchmark": benchmark, "full": full, "low": low}
        macro, compare = opened.connection.extract_statements(script("snapshots/changed_partitions"))
        opened.connection.execute(script("snapshots/comparison"))
        opened.connection.execute(macro)
        opened.connection.execute(compare, given)
        unchanged = opened.rows("SELECT count(*) FROM temp.changed WHERE change = 'same'")[0][0]
        differences = opened.query(script("snapshots/differences")).to_pylist()
    return SnapshotDifference(before, after, unchanged, tuple(map(_difference, differences)))


@contextmanager
def _both_snapshots(location: str | Path | Location | None, before: int, after: int) -> Iterator[Warehouse]:
    """Yields the warehouse at snapshot `after`, with itself at snapshot `before` attached as `before`."""
    with open_warehouse(location, snapshot=after) as opened:
        attach(
            opened.connection, opened.location, name="before", read_only=True, create=False, snapshot=before
        )
        check_tables(opened.connection, opened.location, before)
        opened.connection.execute("USE warehouse")
        yield opened


def _snapshots(warehouse: Warehouse, last: int | None) -> list[Snapshot]:
    ids = [number for (number,) in warehouse.rows("SELECT snapshot_id FROM warehouse.snapshots() ORDER BY 1")]
    span = {"first": ids[-last if last is not None and last < len(ids) else 0], "last": ids[-1]}
    connection = warehouse.connection
    # Digests derive from documents and decisions, which are listed themselves.
    tables = warehouse.rows(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = 'warehouse' "
        "AND table_name NOT IN ('doc_digests', 'run_digests') ORDER BY table_name"
    )
    rows: dict[int, list[RowChange]] = {}
    for (table,) in tables:
        counted = _row_changes(warehouse, span | {"table": table})
        for number, *counts in counted:
            rows.setdefault(number, []).append(RowChange(table, *counts))
    partitions: dict[int, list[PartitionChange]] = {}
    for number, *change in connection.execute(script("snapshots/partition_changes"), span).fetchall():
        partitions.setdefault(number, []).append(PartitionChange(*change))
    commits = connection.execute(script("snapshots/commits"), {"first": span["first"]}).fetchall()
    for number, *_, kinds in commits:
        if "rewrite_delete" in kinds:  # files written anew without the rows that others had deleted
            rows.pop(number, None)
            partitions.pop(number, None)
    return [
        Snapshot(
            id=number,
            time=time,
            message=message,
            kinds=tuple(kinds),
            rows=tuple(rows.get(number, ())),
            partitions=tuple(partitions.get(number, ())),
        )
        for number, time, message, kinds in commits
    ]


def _row_changes(warehouse: Warehouse, span: dict[str, Any]) -> list[tuple[int, ...]]:
    """The numbers of added, removed and updated rows of one table, by snapshot; empty if a file is lost."""
    # On its own connection, because an error ends the caller's transaction.
    with closing(warehouse.connection.cursor()) as cursor:
        try:
            return cursor.execute(script("snapshots/row_changes"), span).fetchall()
        except (duckdb.IOException, duckdb.InvalidInputException):
            return []


def _settings(record: _Record | None) -> dict[str, Any]:
    if record is None:
        return {}
    parsed: dict[str, Any] = json.loads(record["settings"] or "{}") | json.loads(record["versions"] or "{}")
    return parsed | {"backend": record["backend"]}


def _difference(row: dict[str, Any]) -> PartitionDifference:
    was, now = _settings(row.pop("ran_before")), _settings(row.pop("ran_after"))
    names = sorted(was.keys() | now.keys())
    ran = {name: (was.get(name), now.get(name)) for name in names if was.get(name) != now.get(name)}
    logprobs, texts = row.pop("logprobs"), row.pop("texts")
    return PartitionDifference(
        logprobs=logprobs and Logprobs(**logprobs | {"quantiles": tuple(logprobs["quantiles"])}),
        texts=texts and SampledTexts(**texts),
        ran=ran if row["change"] == "replaced" else {},
        **row,
    )

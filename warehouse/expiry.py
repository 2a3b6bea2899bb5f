"""Frees space: expires snapshots, deletes files that no snapshot needs, merges small files."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from warehouse.errors import InputError
from warehouse.scripts import script
from warehouse.store import Warehouse

GRACE_PERIOD = timedelta(hours=24)
"""How long a file that no snapshot needs is kept: queries that began before may still read it."""


class Expiry(NamedTuple):
    """The snapshots and files that an expiry deletes, or would delete in a dry run."""

    snapshots: tuple[int, ...]
    """The numbers of the deleted snapshots."""
    evaluated: tuple[int, ...]
    """The snapshots that stay only because evaluations, training runs or drift refer to them."""
    files: int
    """The number of Parquet files that only the deleted snapshots need."""
    bytes: int


class Merge(NamedTuple):
    """The numbers of files in the newest snapshot, before and after a merge of small files."""

    files_before: int
    files_after: int
    rewritten: int
    """The number of files that were written anew to leave out deleted rows."""


def expire(
    warehouse: Warehouse,
    *,
    keep: int | None = None,
    older_than: timedelta | None = None,
    evaluated: bool = False,
    training_snapshots: Collection[int] = (),
    dry_run: bool = False,
    grace: timedelta = GRACE_PERIOD,
) -> Expiry:
    """Deletes old snapshots; `_delete_needless` deletes files that no other snapshot needs `grace` later.

    A snapshot is old if it is not among the `keep` newest and is older than `older_than`, as far as these are
    given. The newest always stays. Unless `evaluated`, so do those that evaluations read, the
    `training_snapshots`, and the one from which drift is measured. An expired snapshot cannot be opened.
    Raises InputError if neither limit is given, `keep` is below 1 or `older_than` negative.
    """
    if keep is None and older_than is None:
        raise InputError(
            "say which snapshots to delete: all but the newest N (--keep), or old ones (--older-than)"
        )
    if (keep is not None and keep < 1) or (older_than is not None and older_than < timedelta(0)):
        raise InputError("the newest snapshot is always kept: keep at least 1, and give an age of 0 or more")
    with warehouse.upkeep():
        expiry = _choose(
            warehouse, keep, older_than, () if evaluated else _read(warehouse) | set(training_snapshots)
        )
        if expiry.snapshots and not dry_run:
            call = "CALL ducklake_expire_snapshots('warehouse', versions => ?::UBIGINT[])"
            warehouse.rows(call, [list(expiry.snapshots)])
            _delete_needless(warehouse, grace)
    return expiry


def merge(warehouse: Warehouse, grace: timedelta = GRACE_PERIOD) -> Merge:
    """Merges small files of each table into larger ones; every snapshot still shows the same rows.

    The small files are deleted by the first call at least `grace` later, because running queries read them.
    Files with replaced or removed rows are first written anew without these. Models that were imported
    together share a file, which no expiry could delete otherwise.
    """
    count = "SELECT coalesce(sum(file_count), 0)::BIGINT FROM ducklake_table_info('warehouse')"
    before = int(warehouse.rows(count)[0][0])
    with warehouse.transaction("merge small files"):  # unsigned, it would look like somebody else's
        rewrite = "CALL ducklake_rewrite_data_files('warehouse', delete_threshold => 0.0)"
        rewritten = sum(files for _, _, files, _ in warehouse.rows(rewrite))
    with warehouse.transaction("merge small files"):
        warehouse.rows("CALL ducklake_merge_adjacent_files('warehouse')")
    with warehouse.upkeep():
        _delete_needless(warehouse, grace)
    return Merge(before, int(warehouse.rows(count)[0][0]), rewritten)


def find_orphans(warehouse: Warehouse) -> list[str]:
    """The paths of Parquet files in the data folder that no snapshot knows, such as those of a killed write.

    Files of a write in progress are among them.
    """
    return _list_paths(warehouse, script("upkeep/orphans"))


def find_overdue_files(warehouse: Warehouse, grace: timedelta = GRACE_PERIOD) -> list[str]:
    """The paths of files that no snapshot has needed for longer than `grace`."""
    query = "SELECT path FROM deletable_files($data) WHERE since < $before ORDER BY path"
    return _list_paths(warehouse, query, before=datetime.now(UTC) - grace)


def delete_leftovers(warehouse: Warehouse) -> int:
    """Deletes files that no snapshot knows or needs (`find_orphans`, `find_overdue_files`); returns how many.
    The caller must hold the write lock."""
    if paths := find_orphans(warehouse):
        # ducklake_delete_orphaned_files would delete every file where a store spells paths in another way.
        warehouse.connection.execute(script("upkeep/schedule_orphans"), {"paths": paths})
    return _delete_needless(warehouse)


def _delete_needless(warehouse: Warehouse, grace: timedelta = GRACE_PERIOD) -> int:
    """Deletes `find_overdue_files`; returns how many. The caller must hold the write lock."""
    call = "CALL ducklake_cleanup_old_files('warehouse', older_than => ?::TIMESTAMPTZ)"
    return len(warehouse.rows(call, [datetime.now(UTC) - grace]))


def _choose(
    warehouse: Warehouse, keep: int | None, older_than: timedelta | None, needed: Collection[int]
) -> Expiry:
    there = warehouse.rows("SELECT snapshot_id, snapshot_time FROM warehouse.snapshots() ORDER BY 1 DESC")
    before = datetime.now(UTC) - (older_than or timedelta(0))
    old = [number for number, time in there[max(keep or 1, 1) :] if older_than is None or time < before]
    going = sorted(number for number in old if number not in needed)
    staying = [number for number, _ in there if number not in going]
    warehouse.connection.execute(script("upkeep/files"))
    needless = warehouse.connection.execute(script("upkeep/needless_files"), {"staying": staying})
    (files, size) = needless.fetchone() or (0, 0)
    return Expiry(tuple(going), tuple(sorted(set(old) - set(going))), files, size)


def _read(warehouse: Warehouse) -> set[int]:
    needed = "SELECT DISTINCT snapshot FROM evaluations UNION SELECT max(snapshot) FROM drift_looks"
    return {number for (number,) in warehouse.rows(needed) if number is not None}


def _list_paths(warehouse: Warehouse, query: str, **more: object) -> list[str]:
    warehouse.connection.execute(script("upkeep/files"))
    files = warehouse.connection.execute(query, {"data": warehouse.data_path(), **more}).fetchall()
    return [path for (path,) in files]

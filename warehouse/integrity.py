"""Checks files against the catalogue, and rows against records and keys; repairs faults where it can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import duckdb

from warehouse import writing
from warehouse.alignment import prompt_hash
from warehouse.expiry import delete_leftovers, find_orphans, find_overdue_files
from warehouse.locations import without_password
from warehouse.scripts import script
from warehouse.store import Warehouse

TABLE_KEYS: dict[str, tuple[str, ...]] = {
    "models": ("model",),
    "benchmarks": ("benchmark",),
    "tasks": ("benchmark", "task"),
    "docs": ("benchmark", "task", "doc_id"),
    "prompts": ("benchmark", "task", "doc_id", "model"),
    "choice_logprobs": ("benchmark", "task", "doc_id", "model", "choice"),
    "answer_passes": ("benchmark", "task", "doc_id", "model", "pass"),
    "traces": ("benchmark", "task", "doc_id", "model", "trace"),
    "extractions": ("benchmark", "task", "model"),
    "probe_answers": ("probe_id", "benchmark", "task", "doc_id"),
    "probe_estimates": ("probe_id", "benchmark", "metric", "other"),
    "doc_digests": ("benchmark", "task"),
    "corrections": ("benchmark", "task", "doc_id"),
    "evaluations": ("run_id", "task"),
    "decisions": ("run_id", "benchmark", "task", "doc_id"),
    "run_digests": ("run_id",),
    "training_history": ("run_id", "benchmark", "task", "phase", "episode"),
    "renames": ("old", "new", "renamed_at"),
    "ruled_out": ("run_id", "data"),
    "promise_looks": ("run_id", "target", "look"),
}
"""By table, the columns of its key: none is NULL, and no two rows have the same key."""
_PARTITION_COLUMNS = {
    "docs": ("benchmark", "task"),
    "prompts": ("benchmark", "task"),
    "choice_logprobs": ("benchmark", "task", "model"),
    "answer_passes": ("benchmark", "task", "model"),
    "traces": ("benchmark", "task", "model"),
    "decisions": ("benchmark", "task"),
}
TABLE_FOLDERS: dict[str, tuple[str, ...]] = {
    table: _PARTITION_COLUMNS.get(table, ())
    for table in ("docs", *(table for table in TABLE_KEYS if table != "docs"))
}
"""By exported table, the columns that become folders in its plain Parquet format."""
_COMPARED_BY_DIGEST = ("docs", "choice_logprobs", "answer_passes", "traces")
"""The tables with too many rows to compare keys; a digest shows their duplicates."""


class KeyFault(NamedTuple):
    """A fault of a table's key: an incomplete key, a key of several rows, or a model without a row."""

    table: str
    key: tuple[str | None, ...]
    """The values of the key's columns, as texts; None for NULL."""
    n: int
    """The number of rows with this key; 0 if no row of `models` has it, although other tables name it."""

    @property
    def is_partial(self) -> bool:
        """Whether a column of the key is NULL."""
        return None in self.key


def _key_faults(warehouse: Warehouse) -> Iterator[KeyFault]:
    """Yields every key with a NULL, every key of several rows, and every model that `models` lacks."""
    for table in TABLE_KEYS:
        names, partial = _describe_key(table)
        several = "" if table in _COMPARED_BY_DIGEST else " OR count(*) > 1"
        rows = f"WHERE {partial}" if table in _COMPARED_BY_DIGEST else ""
        query = (
            f"SELECT {names}, count(*) FROM {table} {rows} "
            f"GROUP BY {names} HAVING {partial}{several} ORDER BY ALL"
        )
        for *key, n in warehouse.rows(query):
            yield KeyFault(table, tuple(None if value is None else str(value) for value in key), n)
    for model in warehouse.rows(
        "SELECT DISTINCT model FROM extractions ANTI JOIN models USING (model) ORDER BY 1"
    ):
        yield KeyFault("models", model, 0)


def _remove_faulty_keys(warehouse: Warehouse) -> tuple[KeyFault, ...]:
    """Deletes rows with a NULL in their key, and all but one row of each key; returns the faults.

    Models without a row get one with their name alone. Duplicates in tables that a digest covers are left to
    checks of partitions and tasks. Needs a transaction.
    """
    faults = tuple(_key_faults(warehouse))
    writing.name_models(warehouse.connection, (str(fault.key[0]) for fault in faults if not fault.n))
    for table in dict.fromkeys(fault.table for fault in faults if fault.n):
        names, partial = _describe_key(table)
        warehouse.connection.execute(f"DELETE FROM {table} WHERE {partial}")
        if any(fault.table == table and fault.n > 1 and not fault.is_partial for fault in faults):
            twice = f"SELECT {names} FROM {table} GROUP BY {names} HAVING count(*) > 1"
            warehouse.connection.execute(
                f"CREATE OR REPLACE TEMP TABLE one_each AS SELECT DISTINCT ON ({names}) * FROM {table} "
                f"WHERE ({names}) IN ({twice})"
            )
            warehouse.connection.execute(f"DELETE FROM {table} WHERE ({names}) IN ({twice})")
            warehouse.connection.execute(f"INSERT INTO {table} BY NAME FROM temp.one_each")
    return faults


def _describe_key(table: str) -> tuple[str, str]:
    """The columns of a table's key in SQL, and the condition that one of them is NULL."""
    return ", ".join(TABLE_KEYS[table]), " OR ".join(f"{name} IS NULL" for name in TABLE_KEYS[table])


OnProgress = Callable[[float], None]
_FILES_PER_QUERY = 64  # files in one query: opening each costs more than reading it
_PROMPTS_AT_ONCE = 1000  # each is as long as its few-shot examples


class FileFault(NamedTuple):
    """A file of the catalogue that is missing, cannot be read, or differs from the file that was written."""

    id: int
    """The id of the data file."""
    table: str
    holds_rows: bool
    """Whether the file holds rows; if not, it lists deleted rows of the data file `id`."""
    path: str
    reason: str
    first: int
    """The first snapshot that needs the file."""
    last: int | None
    """The last snapshot that needs the file; None if the newest does."""


class PartitionFault(NamedTuple):
    """A partition whose rows do not match its record in `extractions`."""

    model: str
    benchmark: str
    task: str
    reason: str


class RunFault(NamedTuple):
    """A run whose figures do not follow from its decisions, or whose decisions were altered."""

    run_id: str
    task: str
    reason: str


class TaskFault(NamedTuple):
    """A task with faulty documents or prompts.

    Its documents lack both label and gold answer, are duplicated or altered, or their prompts are not those
    that models were asked.
    """

    benchmark: str
    task: str
    without_label: int
    n_duplicates: int
    is_other: bool
    """Whether the task's documents differ from those that were written."""
    other_prompts: int = 0
    """The number of prompts that are missing, or differ from those that models were asked."""


@dataclass(frozen=True)
class Integrity:
    """The result of an examination of a warehouse."""

    n_files: int
    n_partitions: int
    files: tuple[FileFault, ...]
    partitions: tuple[PartitionFault, ...] | None
    """The faulty partitions; None if rows cannot be read, because a file of the newest snapshot is faulty."""
    tasks: tuple[TaskFault, ...] | None
    keys: tuple[KeyFault, ...] | None
    runs: tuple[RunFault, ...] | None
    other_writers: tuple[int, ...]
    """The numbers of snapshots in which another client than rlfocal wrote or deleted rows."""
    orphans: tuple[str, ...]
    """The paths of files in the data folder that no snapshot knows."""
    overdue: tuple[str, ...]
    """The paths of files that no snapshot has needed for longer than the grace period."""

    @property
    def current_files(self) -> tuple[FileFault, ...]:
        """The faulty files that the newest snapshot needs."""
        return tuple(file for file in self.files if file.last is None)

    @property
    def is_sound(self) -> bool:
        """Whether everything in the newest snapshot is intact; leftover files do not count."""
        return not (self.current_files or self.partitions or self.tasks or self.keys or self.runs)


class Repair(NamedTuple):
    """The faults that a repair removed, and the number of files that it deleted."""

    files: tuple[FileFault, ...]
    """The files that were dropped from the newest snapshot."""
    tasks: tuple[TaskFault, ...]
    """The tasks whose damaged documents were dropped with their partitions, or whose prompts were dropped."""
    partitions: tuple[PartitionFault, ...]
    """The dropped partitions, which the next extraction or import fills again."""
    keys: tuple[KeyFault, ...]
    """The faulty keys: their surplus or incomplete rows were deleted, and models without a row got one."""
    runs: tuple[RunFault, ...]
    """The dropped runs, which the next evaluation computes again."""
    deleted: int
    """The number of deleted files that no snapshot knows or needs."""


def examine(warehouse: Warehouse, on_progress: OnProgress | None = None) -> Integrity:
    """Reads every file in full, and compares files, rows and records with each other.

    `on_progress` is called with the share of files read, from 0 to 1.
    """
    n_files, files = _examine_files(warehouse, on_progress)
    partitions = tasks = keys = runs = None
    n_partitions = 0
    if all(file.last is not None for file in files):
        with warehouse.hold_snapshot():
            partitions = _find_partition_faults(warehouse)
            tasks = _find_task_faults(warehouse)
            keys = tuple(_key_faults(warehouse))
            runs = _find_run_faults(warehouse)
            n_partitions = len(warehouse.committed_partitions())
    return Integrity(
        n_files=n_files,
        n_partitions=n_partitions,
        files=tuple(files),
        partitions=partitions,
        tasks=tasks,
        keys=keys,
        runs=runs,
        other_writers=tuple(n for (n,) in warehouse.rows(script("upkeep/other_writers"))),
        orphans=tuple(find_orphans(warehouse)),
        overdue=tuple(find_overdue_files(warehouse)),
    )


def repair(warehouse: Warehouse) -> Repair:
    """Drops unreadable files and faulty partitions, tasks, keys and runs; deletes files that are not needed.

    Each step is a new snapshot; earlier ones still name the lost files. A lost file of models or runs loses
    its rows. One of documents loses all of its task, with the partitions that answered them.
    """
    with warehouse.upkeep():
        lost = tuple(file for file in _examine_files(warehouse)[1] if file.last is None)
        if lost:
            _drop_files(warehouse, lost)
    with warehouse.transaction("doctor: drop partitions that are not whole"):
        keys = _remove_faulty_keys(warehouse)
        damaged = tuple(task for task in _find_task_faults(warehouse) if task.is_other or task.other_prompts)
        if other := [task[:2] for task in damaged if task.is_other]:
            writing.drop_documents(warehouse.connection, other)
        if unasked := [task[:2] for task in damaged if not task.is_other]:
            writing.forget_prompts(warehouse.connection, unasked)
        faults = _find_partition_faults(warehouse)
        if faults:
            writing.drop_partitions(warehouse.connection, [fault[:3] for fault in faults])
        runs = _find_run_faults(warehouse)
        for table in ("evaluations", "decisions", "run_digests", "training_history") if runs else ():
            delete = f"DELETE FROM {table} WHERE list_contains(?, run_id)"
            warehouse.connection.execute(delete, [[run.run_id for run in runs]])
    with warehouse.upkeep():
        deleted = delete_leftovers(warehouse)
    return Repair(lost, damaged, faults, keys, runs, deleted)


def _examine_files(
    warehouse: Warehouse, on_progress: OnProgress | None = None
) -> tuple[int, list[FileFault]]:
    """The number of files that the catalogue names, and the faulty ones."""
    warehouse.connection.execute(script("upkeep/files"))
    files = (
        "SELECT id, table_name, wide, path, n_rows, size, begin_snapshot, end_snapshot - 1 "
        "FROM catalogue_files(?) ORDER BY table_name, id, wide"
    )
    listed = warehouse.rows(files, [warehouse.data_path()])
    alike: dict[tuple[str, bool], list[str]] = {}
    for _, table, holds_rows, path, *_ in listed:
        alike.setdefault((table, holds_rows), []).append(path)
    counts: dict[str, int | str] = {}
    for paths in alike.values():
        for start in range(0, len(paths), _FILES_PER_QUERY):
            counts |= _count_rows(warehouse, paths[start : start + _FILES_PER_QUERY])
            if on_progress is not None:
                on_progress(len(counts) / len(listed))
    faults = []
    for number, table, holds_rows, path, n_rows, size, first, last in listed:
        reason = _find_file_fault(path, n_rows, size, counts[path])
        if reason is not None:
            faults.append(FileFault(number, table, holds_rows, path, reason, first, last))
    return len(listed), faults


def _count_rows(warehouse: Warehouse, paths: Sequence[str]) -> dict[str, int | str]:
    """The number of rows of each file after a full read, or a phrase that says why it cannot be read."""
    # Only a hash of every value decodes every page.
    read = (
        "SELECT filename, count(*), bit_xor(hash(COLUMNS(* EXCLUDE filename))) "
        "FROM read_parquet(?, filename := true, union_by_name := true) GROUP BY filename"
    )
    try:
        counted = {path: n for path, n, *_ in warehouse.rows(read, [list(paths)])}
        if len(paths) == 1:
            return {paths[0]: sum(counted.values())}
        if not counted.keys() <= set(paths):  # an object store may spell paths differently
            return {path: n for each in paths for path, n in _count_rows(warehouse, [each]).items()}
    except duckdb.Error as error:  # and not RunError: of a store that refuses, nothing is known of the files
        if len(paths) > 1:  # one of them is at fault
            return {path: n for each in paths for path, n in _count_rows(warehouse, [each]).items()}
        return dict.fromkeys(paths, f"cannot be read: {without_password(str(error)).strip().splitlines()[0]}")
    return {path: counted.get(path, 0) for path in paths}


def _find_file_fault(path: str, n_rows: int, size: int, counted: int | str) -> str | None:
    """A phrase that names the fault of a file, or None; `counted` is what `_count_rows` gave for it."""
    if "://" not in path:
        file = Path(path)
        if not file.is_file():
            return "is missing"
        if file.stat().st_size != size:
            return f"has {file.stat().st_size:,} bytes, expected {size:,}"
    if isinstance(counted, str):
        return counted
    return None if counted == n_rows else f"has {counted:,} rows, expected {n_rows:,}"


def _find_partition_faults(warehouse: Warehouse) -> tuple[PartitionFault, ...]:
    warehouse.connection.execute(script("writes/digests"))
    warehouse.connection.execute(script("writes/impossible"))
    return tuple(PartitionFault(*row) for row in warehouse.rows(script("upkeep/partition_faults")))


def _find_run_faults(warehouse: Warehouse) -> tuple[RunFault, ...]:
    warehouse.connection.execute(script("writes/digests"))
    return tuple(RunFault(*row) for row in warehouse.rows(script("upkeep/run_faults")))


def _find_task_faults(warehouse: Warehouse) -> tuple[TaskFault, ...]:
    warehouse.connection.execute(script("writes/digests"))
    faults = {row[:2]: TaskFault(*row) for row in warehouse.rows(script("upkeep/document_faults"))}
    for place, n in _count_other_prompts(warehouse).items():
        faults[place] = faults.get(place, TaskFault(*place, 0, 0, False))._replace(other_prompts=n)
    return tuple(fault for _, fault in sorted(faults.items()))


def _count_other_prompts(warehouse: Warehouse) -> Counter[tuple[str, str]]:
    """By task, the number of prompts that are missing or do not match their documents' `prompt_hash`."""
    altered: Counter[tuple[str, str]] = Counter()
    rows = warehouse.connection.execute(script("upkeep/prompts"))
    while some := rows.fetchmany(_PROMPTS_AT_ONCE):
        for benchmark, task, digest, prompt, messages, continuations in some:
            chat = messages and [(message["role"], message["content"]) for message in messages]
            if digest != prompt_hash(prompt, chat, continuations):
                altered[benchmark, task] += 1
    return altered


def _drop_files(warehouse: Warehouse, files: Iterable[FileFault]) -> None:
    """Drops data files from the catalogue, as a snapshot of its own; DuckLake itself would have to read
    them."""
    parameters = {
        "newest": warehouse.snapshot(),
        "message": "doctor: drop unreadable files",
        "ids": sorted({file.id for file in files}),
    }
    connection = warehouse.connection
    connection.execute("BEGIN")
    try:
        for statement in connection.extract_statements(script("upkeep/drop_files")):
            connection.execute(
                statement, {n: v for n, v in parameters.items() if n in statement.named_parameters}
            )
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise

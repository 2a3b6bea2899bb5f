"""Implements `import tables`, which copies the files of `export tables` into another warehouse, complete and
checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from rlfocal.base.errors import InputError
from rlfocal.base.wording import count_noun
from rlfocal.exchange.imports.stored import import_lock
from warehouse import Warehouse, writing
from warehouse.integrity import TABLE_FOLDERS, TABLE_KEYS
from warehouse.scripts import quote, script
from warehouse.store import PartitionKey

_RUN_TABLES = ("evaluations", "decisions", "run_digests", "training_history", "ruled_out", "promise_looks")
_NEVER_REPLACED = ("models", "benchmarks", "tasks", "corrections")
"""Tables whose stored rows an import never replaces."""
_IDENTIFIED_BY: dict[str, tuple[str, ...]] = {
    **TABLE_KEYS,
    **dict.fromkeys(_RUN_TABLES, ("run_id",)),
}
"""The columns that identify a row, by table."""


@dataclass(frozen=True)
class TablesReport:
    """The outcome of an import of tables."""

    rows: dict[str, int]
    """The number of rows written into each table."""
    n_written: int
    """The number of written partitions."""
    n_unchanged: int
    """The number of partitions that were in the warehouse already."""

    def __str__(self) -> str:
        lines = [f"{count_noun(self.n_written, 'partition')} written, {self.n_unchanged:,} already there"]
        return "\n".join(
            [*lines, *(f"  {table}: {count_noun(n, 'row')}" for table, n in self.rows.items() if n)]
        )


def check_tables(folder: Path) -> None:
    """Raises InputError if `folder` is no export of `rlfocal export tables`."""
    if not any((folder / "docs").glob("**/*.parquet")) or not any(
        (folder / "doc_digests").glob("**/*.parquet")
    ):
        raise InputError(
            f"{folder} is not an export of tables: it has no docs/ and doc_digests/ with Parquet files; give "
            "a folder that `rlfocal export tables DIR` wrote"
        )


def import_tables(warehouse: Warehouse, folder: str | Path) -> TablesReport:
    """Writes every row that an export of tables has and the warehouse lacks, in one transaction.

    Stored rows stay, so repeating it writes nothing. Record ids, times and snapshot numbers stay as they were
    exported. Raises InputError for a folder or file that is no such export, or was altered. Raises InputError
    for an export without the texts of confidential documents, and for documents that differ from the stored
    ones. It also does if the warehouse holds a partition with other rows.
    """
    path = Path(folder)
    check_tables(path)
    connection = warehouse.connection
    with _stage_tables(connection, path), import_lock(warehouse):
        _check_digests(connection, path)
        stored = _find_stored(warehouse, path)
        records = connection.execute("FROM temp.given_extractions").to_arrow_table().to_pylist()
        new = [r for r in records if _make_key(r) not in stored]
        before = _count_rows(warehouse)
        if new or any(
            connection.execute(f"FROM ({_query_missing(table)}) LIMIT 1").fetchone()
            for table in TABLE_FOLDERS
        ):
            with warehouse.transaction(f"import tables of {count_noun(len(new), 'partition')}"):
                _write(connection, new)
        after = _count_rows(warehouse)
    return TablesReport({t: after[t] - before[t] for t in TABLE_FOLDERS}, len(new), len(records) - len(new))


@contextmanager
def _stage_tables(connection: duckdb.DuckDBPyConnection, folder: Path) -> Iterator[None]:
    """Creates temp.given_TABLE for each table, with the rows of its files in the warehouse's types."""
    try:
        for table in TABLE_FOLDERS:
            connection.execute(f"CREATE OR REPLACE TEMP TABLE given_{table} AS FROM {table} LIMIT 0")
            if not any((folder / table).glob("**/*.parquet")):
                continue
            files = quote(str(folder / table / "**" / "*.parquet"))
            hive = "hive_partitioning = true, hive_types_autocast = false"
            read = f"read_parquet({files}, {hive}, union_by_name = true)"
            kept = "COLUMNS(name -> name <> 'source_id')" if table == "decisions" else "*"  # docs has it
            try:
                connection.execute(f"INSERT INTO temp.given_{table} BY NAME SELECT {kept} FROM {read}")
            except duckdb.Error as error:
                reason = str(error).strip().splitlines()[0]
                raise InputError(f"{folder / table} cannot be imported: {reason}") from None
        yield
    finally:
        for table in TABLE_FOLDERS:
            connection.execute(f"DROP TABLE IF EXISTS temp.given_{table}")


def _check_digests(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    connection.execute(script("writes/digests"))
    altered = connection.execute(script("imports/altered_tables")).fetchone()
    if altered is not None:
        benchmark, task, model = altered
        if task == "*":
            what = f"figures and decisions of run {model} on {benchmark}"
        else:
            what = f"{'the documents of' if model is None else f'{model} on'} {benchmark}/{task}"
        raise InputError(
            f"{folder}: {what} are not what was exported: files were changed or are missing, or the texts of "
            "confidential documents stayed out (`rlfocal export tables DIR --questions` writes them)"
        )


def _find_stored(warehouse: Warehouse, folder: Path) -> set[PartitionKey]:
    """The given partitions that are stored already. Raises InputError for one that is stored with other
    rows."""
    stored = warehouse.rows(
        "SELECT model, benchmark, task, g.digest = e.digest "
        "FROM temp.given_extractions AS g JOIN extractions AS e USING (model, benchmark, task) ORDER BY ALL"
    )
    others = [row[:3] for row in stored if not row[3]]
    if others:
        model, benchmark, task = others[0]
        more = list(dict.fromkeys(other for other, _, _ in others if other != model))
        also = f", and likewise for {', '.join(more)}," if more else ""
        remove = f"rlfocal remove-model {model} --benchmarks {','.join(sorted({row[1] for row in others}))}"
        raise InputError(
            f"{folder}: {model} on {benchmark}/{task} is in the warehouse with other rows; first run "
            f"`{remove}`{also} or import into another warehouse"
        )
    return {PartitionKey(*row[:3]) for row in stored}


def _write(connection: duckdb.DuckDBPyConnection, new: list[dict[str, object]]) -> None:
    for table in _NEVER_REPLACED:  # before documents, which would give benchmarks and tasks rows of their own
        connection.execute(f"INSERT INTO {table} BY NAME {_query_missing(table)}")
    writing.put_docs(connection, connection.execute("FROM temp.given_docs").to_arrow_table())
    for table in _NEVER_REPLACED:
        connection.execute(f"INSERT INTO {table} BY NAME {_query_missing(table)}")
    for table in ("choice_logprobs", "answer_passes"):
        for benchmark in sorted({str(record["benchmark"]) for record in new}):
            chosen = [record for record in new if record["benchmark"] == benchmark]
            rows, traces = (
                connection.execute(
                    f"FROM temp.given_{name} ANTI JOIN warehouse.extractions USING (benchmark, task, model) "
                    f"WHERE (task, model) IN (SELECT (task, model) FROM temp.given_{table} "
                    f"WHERE benchmark = $1) AND benchmark = $1 ORDER BY {', '.join(TABLE_KEYS[name])}",
                    [benchmark],
                ).to_arrow_table()
                for name in (table, "traces")
            )
            answered = set(zip(rows["model"].to_pylist(), rows["task"].to_pylist(), strict=True))
            records = [r for r in chosen if (r["model"], r["task"]) in answered]
            if records:
                writing.put_partitions(connection, rows, records, traces)
    for table in ("prompts", "renames", "probe_estimates", *_RUN_TABLES):
        connection.execute(f"INSERT INTO {table} BY NAME {_query_missing(table)}")
    with writing.into_files(connection):
        connection.execute(f"INSERT INTO probe_answers BY NAME {_query_missing('probe_answers')}")
    # Earlier versions exported no digests of runs.
    undigested = "temp.given_decisions ANTI JOIN warehouse.run_digests USING (run_id)"
    writing.digest_runs(connection, f"run_id IN (SELECT run_id FROM {undigested})")
    connection.execute(
        f"INSERT INTO extractions BY NAME {_query_missing('extractions')}"
    )  # those without a row


def _query_missing(table: str) -> str:
    """The SQL of the given rows that the warehouse lacks."""
    columns = ", ".join(_IDENTIFIED_BY[table])
    return f"SELECT * FROM temp.given_{table} ANTI JOIN warehouse.{table} USING ({columns})"


def _count_rows(warehouse: Warehouse) -> dict[str, int]:
    return {table: warehouse.rows(f"SELECT count(*) FROM warehouse.{table}")[0][0] for table in TABLE_FOLDERS}


def _make_key(record: dict[str, object]) -> PartitionKey:
    return PartitionKey(*(str(record[name]) for name in PartitionKey._fields))

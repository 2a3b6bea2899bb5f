"""Exports the warehouse's tables as plain Parquet, or as files that `import predictions` reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from rlfocal.base.atomic import replace_path
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.base.request import Progress
from rlfocal.pool import load_benchmarks
from warehouse import Warehouse
from warehouse.integrity import TABLE_FOLDERS, TABLE_KEYS
from warehouse.limits import writing_to
from warehouse.locations import expand_path
from warehouse.scripts import quote, script

Format = Literal["parquet", "predictions"]


@dataclass(frozen=True)
class ExportedTable:
    """The name of one exported table, and its numbers of rows, files and bytes."""

    table: str
    rows: int
    files: int
    bytes: int


@dataclass(frozen=True)
class ExportReport:
    """The outcome of an export: its folder, snapshot and tables."""

    path: Path
    format: Format
    snapshot: int
    """The number of the snapshot that was exported."""
    withheld: int
    """The number of confidential documents whose texts are not in the export."""
    tables: tuple[ExportedTable, ...]
    """The exported tables that have rows."""


def export(
    warehouse: Warehouse,
    target: str | Path,
    *,
    format: Format = "parquet",
    benchmarks: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    tables: Sequence[str] | None = None,
    questions: bool = False,
    on_progress: Progress | None = None,
) -> ExportReport:
    """Writes tables of one snapshot into the new or empty folder `target`, all or nothing.

    `parquet` writes TABLE/benchmark=B/task=T/[model=M/]*.parquet. A column that a folder's name contains is
    not in its files. `predictions` writes docs.parquet, scores.parquet and models.parquet, which `import
    predictions` reads, and no other table. With `models`, runs that also used other models are left out.
    Texts of confidential documents are left out unless `questions` is set. These are questions, choices, gold
    answers, the models' texts and the choices' token ids.

    Raises InputError for an unknown name, and for a target that is not empty. Raises DiskFullError if the
    disk is full.
    """
    if format not in get_args(Format):
        raise unknown_name("format", format, get_args(Format))
    folder = expand_path(target)
    exportable = TABLE_FOLDERS if format != "predictions" else ("docs", "scores", "models")
    names = _select_names("table", tables, exportable)
    with _use_one_thread(warehouse), _stage_folder(warehouse, folder) as stage:
        withheld = _prepare(warehouse, benchmarks, models, questions=questions)
        written: list[ExportedTable] = []
        for name in names:
            if on_progress is not None:
                on_progress(name, 0)
            rows = _WRITERS[format](warehouse, name, stage)
            if rows:
                files = sorted(stage.rglob(f"{name}/**/*.parquet")) or [stage / f"{name}.parquet"]
                written.append(ExportedTable(name, rows, len(files), sum(f.stat().st_size for f in files)))
            if on_progress is not None:
                on_progress(name, 1)
        if not written:
            raise InputError("nothing to export: the warehouse has no rows that match")
        return ExportReport(folder, format, warehouse.snapshot(), withheld, tuple(written))


@contextmanager
def _stage_folder(warehouse: Warehouse, target: Path) -> Iterator[Path]:
    """Yields a folder that becomes `target` at the end of the block. In the block, the warehouse shows one
    snapshot.

    `rlfocal doctor` finds the folder that a killed export leaves. Raises InputError for a target that exists
    and is not an empty folder. Raises DiskFullError if the disk is full.
    """
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise InputError(f"{target} exists and is not an empty folder; give a new folder, or remove it")
    with ExitStack() as stack:
        try:
            stage = stack.enter_context(replace_path(target.absolute(), suffix=".partial"))
            stage.mkdir()
        except OSError as error:
            raise InputError(f"cannot write {target}: {error.strerror}") from None
        stack.enter_context(warehouse.hold_snapshot())
        stack.enter_context(writing_to(stage))
        yield stage


@contextmanager
def _use_one_thread(warehouse: Warehouse) -> Iterator[None]:
    """Makes DuckDB write files with one thread. With several, the order of a folder's files would vary."""
    [(threads,)] = warehouse.rows("SELECT current_setting('threads')")
    warehouse.connection.execute("SET threads = 1")
    try:
        yield
    finally:
        warehouse.connection.execute(f"SET threads = {threads}")


def _prepare(
    warehouse: Warehouse, benchmarks: Sequence[str] | None, models: Sequence[str] | None, *, questions: bool
) -> int:
    """Makes temporary views of the rows to export. Returns the number of documents whose texts are left
    out."""
    in_docs = warehouse.rows("SELECT benchmark FROM docs UNION SELECT benchmark FROM evaluations")
    answering = warehouse.rows("SELECT model FROM models UNION SELECT model FROM extractions")
    chosen = {
        "benchmarks": _select_names("benchmark", benchmarks, (name for (name,) in in_docs)),
        "models": _select_names("model", models, (name for (name,) in answering)),
    }
    connection = warehouse.connection
    for name, value in chosen.items():
        connection.execute(f"SET VARIABLE {name} = ?::VARCHAR[]", [value])
    connection.execute("SET VARIABLE whole_pool = ?", [models is None])
    confidential = [benchmark.name for benchmark in load_benchmarks().values() if benchmark.confidential]
    connection.execute("SET VARIABLE confidential = ?::VARCHAR[]", [confidential])
    connection.execute("SET VARIABLE with_questions = ?", [questions])
    connection.execute(script("exports/withheld"))
    connection.execute(script("exports/views"))
    # Where an older warehouse lacks a table, the connection has an empty one in its place.
    lacking = warehouse.rows("SELECT table_name FROM duckdb_tables() WHERE database_name = 'temp'")
    for table in ("traces", "run_digests", "probe_answers"):
        if (table,) not in lacking:
            connection.execute(script(f"exports/{table}"))
    count = "SELECT count(*) FROM temp.withheld SEMI JOIN temp.kept_benchmarks USING (benchmark)"
    return int(warehouse.rows(count)[0][0])


def _select_names(kind: str, choice: Sequence[str] | None, existing: Iterable[str]) -> list[str]:
    """The names in `choice`, each once; all existing names if it is None. Raises InputError for a name that
    does not exist."""
    names = list(existing)
    for name in choice or ():
        if name not in names:
            raise unknown_name(kind, name, names, "the warehouse")
    return names if choice is None else list(dict.fromkeys(choice))


def _write_folders(warehouse: Warehouse, table: str, stage: Path) -> int:
    """Writes a table to TABLE/benchmark=B/task=T/..., one benchmark at a time. Returns its number of rows."""
    folder = stage / table
    partitions = TABLE_FOLDERS[table]
    if not partitions:
        return _copy(warehouse, f"FROM temp.{table} ORDER BY {_make_order(table)}", folder / "data.parquet")
    options = f"PARTITION_BY ({', '.join(partitions)}), OVERWRITE_OR_IGNORE"
    benchmarks = warehouse.rows(f"SELECT DISTINCT benchmark FROM temp.{table} ORDER BY 1")
    return sum(
        _copy(
            warehouse,
            f"FROM temp.{table} WHERE benchmark = {quote(name)} ORDER BY {_make_order(table)}",
            folder,
            options,
        )
        for (name,) in benchmarks
    )


def _make_order(table: str) -> str:
    """The ORDER BY of a table. It makes equal tables equal files."""
    return ", ".join(TABLE_KEYS.get(table, ("ALL",)))


def _write_file(warehouse: Warehouse, table: str, stage: Path) -> int:
    """Writes TABLE.parquet in the form that `import predictions` reads. Returns the number of rows."""
    return _copy(warehouse, f"FROM temp.imported_{table} ORDER BY ALL", stage / f"{table}.parquet")


_WRITERS: dict[Format, Callable[[Warehouse, str, Path], int]] = {
    "parquet": _write_folders,
    "predictions": _write_file,
}


def _copy(warehouse: Warehouse, query: str, path: Path, options: str = "") -> int:
    """Writes the rows of a query to Parquet, if it has any. Returns their number."""
    if not warehouse.rows(f"SELECT 1 FROM ({query}) LIMIT 1"):
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    how = ", ".join(filter(None, ("FORMAT parquet", "COMPRESSION zstd", options)))
    return int(warehouse.rows(f"COPY ({query}) TO {quote(str(path))} ({how})")[0][0])

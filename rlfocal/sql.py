"""`rlfocal sql`: one read-only SELECT over the warehouse, in a DuckDB that can reach nothing else."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from rlfocal.errors import InputError, unknown
from warehouse import Warehouse, open_warehouse
from warehouse.connecting import METADATA
from warehouse.locations import without_password

Row = tuple[Any, ...]
Select = Callable[[str], tuple[list[str], list[Row]]]

# Any other table function could read files or change the catalogue; the warehouse's macros come on top.
_TABLE_FUNCTIONS = frozenset(
    {
        *("range", "generate_series", "unnest", "summary", "show_tables"),
        *("snapshots", "current_snapshot", "table_changes", "table_insertions", "table_deletions"),
        *("duckdb_tables", "duckdb_views", "duckdb_columns", "duckdb_functions"),
    }
)

# What shows a Postgres catalogue's password, or that database's other tables.
_SECRETIVE = frozenset({METADATA, "duckdb_databases", "pragma_database_list"})


def run_sql(
    location: str | Path | None, statement: str, output: str = "table", *, snapshot: int | None = None
) -> str:
    """The result of one SELECT (also FROM, WITH, DESCRIBE, SHOW, SUMMARIZE) as a table, CSV or JSON objects.

    Raises InputError for several statements, one that writes or changes settings, one that reads anything but
    the warehouse, and whatever DuckDB refuses.
    """
    writers = {"table": _table, "csv": _csv, "json": _json}
    if output not in writers:
        raise unknown("format", output, writers)
    with sandbox(location, snapshot=snapshot) as select:
        return writers[output](*select(statement))


@contextmanager
def sandbox(location: str | Path | None, *, snapshot: int | None = None) -> Iterator[Select]:
    """A function from one SELECT to its column names and rows, over a warehouse that nothing can change."""
    with open_warehouse(location, read_only=True, snapshot=snapshot) as warehouse:
        _lock(warehouse)
        yield partial(_select, warehouse)


def _select(warehouse: Warehouse, statement: str) -> tuple[list[str], list[Row]]:
    try:
        _check(warehouse, statement)
        result = warehouse.connection.execute(statement)
        return [column[0] for column in result.description or ()], result.fetchall()
    except duckdb.Error as error:
        raise InputError(f"SQL: {without_password(str(error)).strip()}") from None


def _check(warehouse: Warehouse, statement: str) -> None:
    """Raises InputError unless the statement is one SELECT that calls known table functions only."""
    statements = warehouse.connection.extract_statements(statement)
    if len(statements) != 1:
        raise InputError(f"SQL: give one SELECT statement; these are {len(statements)}")
    parsed = json.loads(warehouse.rows("SELECT json_serialize_sql(?)", [statement])[0][0])
    if parsed["error"]:
        kind = statements[0].type.name.replace("_", " ")
        what = "this statement" if kind == "SELECT" else kind
        raise InputError(f"SQL: {what} is refused: only SELECT reads, and `rlfocal sql` only reads")
    macros = warehouse.rows(
        "SELECT function_name FROM duckdb_functions() WHERE database_name = 'warehouse' AND NOT internal"
    )
    known = _TABLE_FUNCTIONS | {name for (name,) in macros}
    for name in _called_tables(parsed):
        if name.lower() not in known:
            raise InputError(
                f"SQL: the table function {name} is refused: `rlfocal sql` reads the warehouse only"
            )
    for name in _named_tables(parsed):
        if name.lower() in _SECRETIVE:
            raise InputError(f"SQL: {name} is refused: `rlfocal sql` reads the warehouse only")


def _called_tables(node: Any) -> Iterator[str]:
    """Names of the table functions anywhere in a parsed statement."""
    if isinstance(node, dict):
        if node.get("type") == "TABLE_FUNCTION":
            yield node["function"]["function_name"]
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from _called_tables(child)


def _named_tables(node: Any) -> Iterator[str]:
    """Names of tables, views, schemas and catalogues anywhere in a parsed statement."""
    if isinstance(node, dict):
        if "table_name" in node:
            yield from (str(node.get(part, "")) for part in ("catalog_name", "schema_name", "table_name"))
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from _named_tables(child)


def _lock(warehouse: Warehouse) -> None:
    """Leaves DuckDB the warehouse's Parquet files, and nothing that could undo that."""
    for setting in (
        f"allowed_directories = [{_literal(warehouse.data_path())}]",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        warehouse.connection.execute(f"SET {setting}")


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _table(names: Sequence[str], rows: Sequence[Row]) -> str:
    cells = [[_shown(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    numeric = [all(isinstance(v, int | float | None) for v in column) for column in zip(*rows, strict=True)]
    right = numeric or [False] * len(names)
    lines = [names, ["-" * width for width in widths], *cells]
    return "\n".join(
        "  ".join(
            c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def _shown(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value).replace("\n", "\\n")


def _csv(names: Sequence[str], rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(
        [json.dumps(v, default=str) if isinstance(v, list | dict) else v for v in row] for row in rows
    )
    return text.getvalue().rstrip("\n")


def _json(names: Sequence[str], rows: Sequence[Row]) -> str:
    objects = [dict(zip(names, map(_plain, row), strict=True)) for row in rows]
    return json.dumps(objects, indent=2, default=str, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value

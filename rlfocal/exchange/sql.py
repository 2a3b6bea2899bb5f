"""Implements `rlfocal sql`: it runs one read-only statement over the warehouse, in a DuckDB that can reach
nothing else."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

import duckdb

from rlfocal.base.errors import InputError, RunError, damage, unknown_name
from warehouse import Warehouse, open_warehouse
from warehouse.connecting import METADATA_SCHEMA
from warehouse.limits import explain_memory
from warehouse.locations import without_password
from warehouse.scripts import quote

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
_SECRET_TABLES = frozenset({METADATA_SCHEMA, "duckdb_databases", "pragma_database_list"})

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_EXPLAIN_STATEMENT = re.compile(r"\s*EXPLAIN(\s+ANALYZE)?\s", re.IGNORECASE)
_ERROR_POSITION = re.compile(r"\s+LINE (\d+): .*", re.DOTALL)  # and the line, with a caret below it
_ONE_STATEMENT = (
    "give one read-only statement: SELECT, FROM, WITH, PIVOT, DESCRIBE, SUMMARIZE, SHOW or EXPLAIN"
)
# Levels of a parsed statement; DuckDB's time doubles with each subquery, which counts as many.
_MAX_DEPTH = 400
_SUBQUERY = 20
_TOO_DEEP = "the statement is nested too deeply; split it up, for example using WITH"


def run_sql(
    location: str | Path | None,
    statement: str,
    output: str = "table",
    *,
    snapshot: int | datetime | None = None,
) -> str:
    """The result of one read-only statement, as a table, CSV or JSON objects.

    The statement is a SELECT, FROM, WITH, PIVOT, UNPIVOT, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN. Raises
    InputError for several statements, and for one that writes, changes settings or reads anything but the
    warehouse. It also raises InputError for anything that DuckDB refuses.
    """
    if output not in WRITERS:
        raise unknown_name("format", output, WRITERS)
    with sandbox(location, snapshot=snapshot) as select:
        names, rows = select(statement)
        try:
            return WRITERS[output](names, rows)
        except RecursionError:
            raise InputError("SQL: the result is nested too deeply to be shown") from None


@contextmanager
def sandbox(location: str | Path | None, *, snapshot: int | datetime | None = None) -> Iterator[Select]:
    """Opens a warehouse read-only. Yields a function that runs a statement and returns its column names and
    rows."""
    with open_warehouse(location, read_only=True, snapshot=snapshot) as warehouse:
        _lock(warehouse)
        yield partial(_select, warehouse)


def _select(warehouse: Warehouse, statement: str) -> tuple[list[str], list[Row]]:
    try:
        _check_text(statement)
        explained = _EXPLAIN_STATEMENT.match(statement)
        _check(warehouse, statement[explained.end() :] if explained else statement, is_part=bool(explained))
        result = warehouse.connection.execute(statement)
        rows = result.fetchmany(MAX_ROWS + 1)
        if len(rows) > MAX_ROWS:
            raise InputError(
                f"SQL: the result has more than {MAX_ROWS:,} rows, too many to show: add LIMIT, or "
                "aggregate (`rlfocal export tables` writes whole tables)"
            )
        return [column[0] for column in result.description or ()], rows
    except duckdb.Error as error:
        refused = RunError if damage(error) else InputError
        raise refused(f"SQL: {_explain(error, statement)}") from None
    except RecursionError:
        raise InputError(f"SQL: {_TOO_DEEP}") from None


def _explain(error: duckdb.Error, statement: str) -> str:
    """DuckDB's message on one line, with the number of the faulty line if the statement has several."""
    if "Max expression depth" in str(error):
        return _TOO_DEEP
    if (too_large := explain_memory(error)) is not None:
        return too_large
    place = r" (line \1)" if "\n" in statement.strip() else ""
    return " ".join(_ERROR_POSITION.sub(place, without_password(str(error))).split()) + damage(error)


def _check_text(statement: str) -> None:
    """Raises InputError for a text that DuckDB cannot read, or would read only in part."""
    try:
        statement.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"SQL: character {error.start + 1} is not valid Unicode; leave it out") from None
    if "\0" in statement:
        raise InputError(f"SQL: character {statement.index(chr(0)) + 1} is a NUL; leave it out")


def _check(warehouse: Warehouse, statement: str, *, is_part: bool) -> None:
    """Raises InputError unless the statement is read-only and calls only known table functions. `is_part`
    says whether it follows EXPLAIN."""
    statements = warehouse.connection.extract_statements(statement)
    if is_part and len(statements) > 1:
        raise InputError("SQL: EXPLAIN takes one read-only statement, a PIVOT only with IN (...)")
    if _is_dynamic_pivot(statements):
        named = set(re.findall(r"\w+", statement.lower()))
        called = named & _list_table_functions(warehouse)
    else:
        if len(statements) != 1:
            raise InputError(f"SQL: {_ONE_STATEMENT}; got {len(statements) or 'none'}")
        parsed = json.loads(warehouse.rows("SELECT json_serialize_sql(?)", [statement])[0][0])
        if parsed["error"]:
            kind = statements[0].type.name.replace("_", " ")
            what = "this statement" if kind == "SELECT" else kind
            raise InputError(f"SQL: {what} is refused: `rlfocal sql` only reads; {_ONE_STATEMENT}")
        called, named = _collect_names(parsed)
    for name in sorted(called - _list_known_functions(warehouse)):
        raise InputError(f"SQL: the table function {name} is refused: `rlfocal sql` reads the warehouse only")
    for name in sorted(named & _SECRET_TABLES):
        raise InputError(f"SQL: {name} is refused: `rlfocal sql` reads the warehouse only")


def _is_dynamic_pivot(statements: Sequence[duckdb.Statement]) -> bool:
    """Whether DuckDB made the statements from one PIVOT without IN: ENUMs of the values that it found, then
    the SELECT.

    Such statements have no text and cannot be serialised, so the words of the original text are checked.
    """
    enums = statements[:-1]
    return (
        len(enums) > 0
        and all(enum.type == duckdb.StatementType.CREATE and not enum.query for enum in enums)
        and statements[-1].type == duckdb.StatementType.SELECT
    )


def _list_known_functions(warehouse: Warehouse) -> frozenset[str]:
    """The table functions that a statement may call, and all macros, including those of older warehouses."""
    macros = "duckdb_functions() WHERE database_name IN ('warehouse', 'temp') AND NOT internal"
    return _TABLE_FUNCTIONS | {name for (name,) in warehouse.rows(f"SELECT function_name FROM {macros}")}


def _list_table_functions(warehouse: Warehouse) -> set[str]:
    kinds = "('table', 'table_macro', 'pragma')"
    listed = f"SELECT lower(function_name) FROM duckdb_functions() WHERE function_type IN {kinds}"
    return {name for (name,) in warehouse.rows(listed)}


def _collect_names(parsed: Any) -> tuple[set[str], set[str]]:
    """The lower-case names in a parsed statement: the table functions that it calls, and its tables with
    their schemas. Raises InputError for subqueries that are nested too deeply."""
    called: set[str] = set()
    named: set[str] = set()
    rest = [(parsed, 0)]
    while rest:
        node, depth = rest.pop()
        if isinstance(node, dict):
            if node.get("type") == "TABLE_FUNCTION":
                called.add(node["function"]["function_name"].lower())
            if "table_name" in node:
                places = ("catalog_name", "schema_name", "table_name")
                named.update(str(node.get(place, "")).lower() for place in places)
            depth += _SUBQUERY if node.get("class") == "SUBQUERY" else 0
            node = list(node.values())
        if depth > _MAX_DEPTH:
            raise InputError(f"SQL: {_TOO_DEEP}")
        if isinstance(node, list):
            rest += [(child, depth + 1) for child in node]
    return called, named


def _lock(warehouse: Warehouse) -> None:
    """Restricts DuckDB to the warehouse's Parquet files, for good."""
    for setting in (
        f"allowed_directories = [{quote(warehouse.data_path())}]",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        warehouse.connection.execute(f"SET {setting}")


def _format_table(names: Sequence[str], rows: Sequence[Row]) -> str:
    cells = [[_show_value(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    if tuple(names) == ("explain_key", "explain_value"):
        return "\n".join(str(plan) for _, plan in rows)
    numeric = [all(isinstance(v, int | float | None) for v in column) for column in zip(*rows, strict=True)]
    right = numeric or [False] * len(names)
    lines = [names, ["-" * width for width in widths], *cells]
    return "\n".join(
        "  ".join(
            c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def _show_value(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"{value:.6g}"
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], str(value))  # a model's text could be anything


def _format_csv(names: Sequence[str], rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(
        [json.dumps(_to_json_value(v), default=str) if isinstance(v, list | dict) else v for v in row]
        for row in rows
    )
    return text.getvalue().rstrip("\n")


def _format_json(names: Sequence[str], rows: Sequence[Row]) -> str:
    keys = _tell_apart(names)
    objects = [dict(zip(keys, map(_to_json_value, row), strict=True)) for row in rows]
    return json.dumps(objects, indent=2, default=str, ensure_ascii=False)


def _tell_apart(names: Sequence[str]) -> list[str]:
    """The names with a number after each that was there before, as DuckDB names a subquery's columns.

    >>> _tell_apart(["a", "a_1", "a"])
    ['a', 'a_1', 'a_2']
    """
    told: list[str] = []
    for name in names:
        numbered = (f"{name}_{number}" for number in count(1))
        told.append(next(each for each in chain([name], numbered) if each not in told))
    return told


def _to_json_value(value: Any) -> Any:
    """A value that JSON can represent: NaN and infinity become null, keys texts, and decimals floats."""
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list | tuple):
        return [_to_json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _to_json_value(item) for key, item in value.items()}
    return value


MAX_ROWS = 5_000_000
"""The most rows of a result, all of which are in memory."""
WRITERS = {"table": _format_table, "csv": _format_csv, "json": _format_json}

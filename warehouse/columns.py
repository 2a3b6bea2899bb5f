"""What tables of older versions lack beside `sql/tables.sql`: added by an upgrade, or lent to a reader."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import duckdb

from warehouse.scripts import script

_OLDER: dict[tuple[str, str, str], dict[str, str]] = {
    ("evaluations", "variant", "VARCHAR"): {
        "method": "method_of(method, variant)",
        "study": "study_of(variant)",
        "settings": "settings_of(variant)",
    },
    ("training_history", "variant", "VARCHAR"): {
        "method": "method_of(method, variant)",
        "phase": "phase_of(phase, variant)",
    },
    ("decisions", "rounds", "INTEGER[]"): {"rounds": "rounds_by_model(pool, rounds)"},
    ("decisions", "prediction", "VARCHAR"): {
        "prediction": "CASE WHEN has_choices(benchmark) THEN TRY_CAST(prediction AS INT) END",
        "answer": "CASE WHEN NOT has_choices(benchmark) THEN prediction END",
    },
}
"""A column, and its type, that tells an older form of a table; and how columns of today are read from it."""


class _Column(NamedTuple):
    type: str
    is_nullable: bool


_Tables = dict[str, dict[str, _Column]]


def add(connection: duckdb.DuckDBPyConnection) -> None:
    """Adds the columns that tables lack. Needs a transaction."""
    there = _there(connection)
    for table, columns in _wanted().items():
        for name, column in columns.items():
            if table in there and name not in there[table]:
                connection.execute(f"ALTER TABLE {table} ADD COLUMN {name} {column.type}")


def lend(connection: duckdb.DuckDBPyConnection) -> None:
    """Gives this connection alone every table as it is today; what the warehouse's own lacks is NULL."""
    there, wanted = _there(connection), _wanted()
    for table in wanted.keys() - there.keys():
        _lend(connection, table, "WHERE false", {n: f"NULL::{c.type}" for n, c in wanted[table].items()})
    connection.execute(script("upgrades/read_older"))  # reads them
    for table, own in there.items():
        read = {
            name: name if name in own else f"NULL::{column.type}"
            for name, column in wanted.get(table, {}).items()
        }
        for (older, name, kind), expressions in _OLDER.items():
            if older == table and has(connection, table, name, kind):
                read |= expressions
        if any(name != value for name, value in read.items()):
            _lend(connection, table, f"FROM warehouse.{table}", read)


def _lend(connection: duckdb.DuckDBPyConnection, table: str, source: str, values: dict[str, str]) -> None:
    read = ", ".join(f"{value} AS {name}" for name, value in values.items())
    connection.execute(f"CREATE OR REPLACE TEMP VIEW {table} AS SELECT {read} {source}")


def has(connection: duckdb.DuckDBPyConnection, table: str, name: str, kind: str = "VARCHAR") -> bool:
    """Whether a table of the warehouse has this column, of this type."""
    own = _there(connection).get(table, {})
    return name in own and own[name].type == kind


def drop_empty_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Drops tables without rows that lack a NOT NULL, to be made again: DuckLake cannot add one to them."""
    for table in dict.fromkeys(table for table, _ in _lacking(connection)):
        if connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is None:
            connection.execute(f"DROP TABLE {table}")


def require(connection: duckdb.DuckDBPyConnection) -> None:
    """Adds each NOT NULL that is lacking, in a transaction of its own: DuckLake takes no more in one.

    A column that has a NULL is left as it is: `rlfocal doctor` names its rows.
    """
    for table, column in _lacking(connection):
        with suppress(duckdb.CatalogException):
            connection.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET NOT NULL")


def _lacking(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    """(table, column) of each NOT NULL that tables of today have and the warehouse's own have not."""
    there = _there(connection)
    return [
        (table, name)
        for table, columns in _wanted().items()
        for name, column in columns.items()
        if not column.is_nullable and name in there.get(table, {}) and there[table][name].is_nullable
    ]


def _wanted() -> _Tables:
    """The tables as they are made now, as a database of its own shows them."""
    with duckdb.connect() as as_new:
        as_new.execute(script("tables"))
        return _tables(as_new, "memory")


def _there(connection: duckdb.DuckDBPyConnection) -> _Tables:
    return _tables(connection, "warehouse")


def _tables(connection: duckdb.DuckDBPyConnection, database: str) -> _Tables:
    found: _Tables = {}
    listed = connection.execute(
        "SELECT table_name, column_name, data_type, is_nullable "
        "FROM duckdb_columns() JOIN duckdb_tables() USING (database_name, table_name) "
        "WHERE database_name = ? ORDER BY column_index",
        [database],
    )
    for table, name, *column in listed.fetchall():
        found.setdefault(table, {})[name] = _Column(*column)
    return found

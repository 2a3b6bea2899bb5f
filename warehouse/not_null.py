"""NOT NULL in tables that older versions made without it, as `sql/tables.sql` has it now."""

from __future__ import annotations

from contextlib import suppress

import duckdb

from warehouse.scripts import script


def drop_empty_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Drops tables without rows that lack a NOT NULL, to be made again: DuckLake cannot add one to them."""
    for table in dict.fromkeys(table for table, _ in _lacking(connection)):
        if connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is None:
            connection.execute(f"DROP TABLE {table}")


def require(connection: duckdb.DuckDBPyConnection) -> None:
    """Adds what is lacking. A column that has a NULL is left as it is: `rlfocal doctor` names its rows."""
    for table, column in _lacking(connection):
        with suppress(duckdb.CatalogException):  # DuckLake takes one a transaction
            connection.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET NOT NULL")


def _lacking(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    """(table, column), as a database of its own shows that has the tables as they are made now."""
    with duckdb.connect() as as_new:
        as_new.execute(script("tables"))
        wanted = as_new.execute(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT is_nullable"
        ).fetchall()
    nullable = connection.execute(
        "SELECT table_name, column_name FROM duckdb_columns() "
        "WHERE database_name = 'warehouse' AND is_nullable"
    ).fetchall()
    return sorted(set(wanted) & set(nullable))

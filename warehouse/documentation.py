"""What tables, views, macros and columns mean, from documentation.toml."""

from __future__ import annotations

import tomllib
from importlib import resources
from typing import NamedTuple

import duckdb

from warehouse.scripts import Definition, definitions, quoted


class Meaning(NamedTuple):
    """A row of the view `documentation`."""

    kind: str
    """As in `Definition`."""
    name: str
    parameters: str
    column_name: str | None
    """None: the table, view or macro as a whole."""
    comment: str


DOCUMENTATION = Definition("view", "documentation", "")
"""The view of all meanings, which this module makes."""


def defined() -> list[Definition]:
    """All tables, views and macros."""
    return [*definitions(), DOCUMENTATION]


def meanings(columns: list[tuple[str, str]]) -> list[Meaning]:
    """What everything defined means, then each of `columns`: the name of a table or view, and its own.

    Another client's are left out.
    """
    text = (resources.files("warehouse") / "documentation.toml").read_text(encoding="utf-8")
    known: dict[str, dict[str, str]] = tomllib.loads(text)
    whose = {what.name: what for what in defined()}
    found = [
        Meaning(*whose[name], None, comment)
        for section in ("tables", "views", "macros")
        for name, comment in known[section].items()
    ]
    for name, column in columns:
        comment = known.get(name, {}).get(column) or known["columns"].get(column)
        if name in whose and comment is not None:
            found.append(Meaning(*whose[name], column, comment))
    return found


def document(connection: duckdb.DuckDBPyConnection) -> None:
    """Comments on tables, views and tables' columns, and makes the view `documentation` of all meanings.

    DuckLake 1.5.5 takes no comment on macros and the columns of views. Needs a transaction.
    """
    named = ", ".join(f"NULL::VARCHAR AS {name}" for name in Meaning._fields)
    connection.execute(f"CREATE OR REPLACE VIEW documentation AS SELECT {named} WHERE false")
    columns = connection.execute(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = 'warehouse' "
        "AND schema_name = 'main' AND NOT internal ORDER BY table_name, column_index"
    ).fetchall()
    found = meanings(columns)
    rows = ",\n".join("(" + ", ".join(map(_literal, meaning)) + ")" for meaning in found)
    connection.execute(
        f"CREATE OR REPLACE VIEW documentation AS FROM (VALUES\n{rows}\n) AS d({', '.join(Meaning._fields)})"
    )
    tables = {what.name for what in defined() if what.kind == "table"}
    for meaning in found:
        what = meaning.kind.upper() + " " + meaning.name
        if meaning.column_name is not None:
            what = f"COLUMN {meaning.name}.{meaning.column_name}"
        if meaning.name in tables or (meaning.kind == "view" and meaning.column_name is None):
            connection.execute(f"COMMENT ON {what} IS {quoted(meaning.comment)}")


def _literal(value: str | None) -> str:
    return "NULL" if value is None else quoted(value)

"""The package's SQL files, and the comments on tables, views, macros and columns from documentation.toml."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import NamedTuple

import duckdb

SCHEMA_FILES = (
    "tables",
    "views",
    "probes",
    "accuracy_norm",
    "statistics",
    "promises",
    "words",
    "numbered_answers",
    "pairwise_diversity",
    "pool_documents",
    "pool_diversity",
    "all_pools",
    "pool_diversity_over_time",
    "agreement",
    "consensus",
    "model_scores",
    "compare_models",
    "pass_at_k",
    "best_partner",
    "ceiling",
    "calibration",
    "risk_coverage",
    "cost",
    "current_evaluations",
    "sql_digest",
)
"""The names of the SQL files that make up the schema, in the order in which they run."""

_DEFINITION_PATTERN = re.compile(
    r"^CREATE (?:OR REPLACE )?(TABLE|VIEW|MACRO) (?:IF NOT EXISTS )?(\w+)(\([^)]*\))?(?: AS (TABLE))?",
    re.MULTILINE,
)


class Definition(NamedTuple):
    """A table, view, macro or function that the SQL files define."""

    kind: str
    """The kind: `table`, `view`, `macro` (a table macro) or `function` (a scalar macro)."""
    name: str
    parameters: str
    """The parameters of a macro or function, such as `(benchmark, task := '*')`; else empty."""


def definitions() -> list[Definition]:
    """All tables, views, macros and functions of the schema, in the order of its files."""
    defined_names = []
    for kind, name, parameters, is_table in _DEFINITION_PATTERN.findall("\n".join(map(script, SCHEMA_FILES))):
        if kind == "MACRO":
            defined_names.append(
                Definition("macro" if is_table else "function", name, parameters.replace('"', ""))
            )
        else:
            defined_names.append(Definition(kind.lower(), name, ""))
    return defined_names


@cache
def schema_digest() -> str:
    """The sha256 over the texts of all files of the schema."""
    return sha256("\0".join(map(script, SCHEMA_FILES)).encode()).hexdigest()


def schema_script(name: str) -> str:
    """The text of a file of the schema, with the schema's digest filled in."""
    return script(name).replace("$digest", schema_digest())


def script(name: str) -> str:
    """The text of sql/<name>.sql."""
    return (resources.files("warehouse") / "sql" / f"{name}.sql").read_text(encoding="utf-8")


def quote(text: str) -> str:
    """`text` as a SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


class DocumentationRow(NamedTuple):
    """A row of the view `documentation`."""

    kind: str
    """The kind of what is documented, as in `Definition`."""
    name: str
    parameters: str
    column_name: str | None
    """The column's name; None for the table, view or macro as a whole."""
    comment: str


DOCUMENTATION_VIEW = Definition("view", "documentation", "")
"""The view of all comments, which `document` creates."""


def list_definitions() -> list[Definition]:
    """All tables, views, macros and functions, with the view `documentation`."""
    return [*definitions(), DOCUMENTATION_VIEW]


def meanings(columns: list[tuple[str, str]]) -> list[DocumentationRow]:
    """The rows of the view `documentation`: all definitions, then each of `columns`, pairs (table or view,
    column). Tables, views and columns that only another client defined are left out."""
    text = (resources.files("warehouse") / "documentation.toml").read_text(encoding="utf-8")
    comments: dict[str, dict[str, str]] = tomllib.loads(text)
    whose = {what.name: what for what in list_definitions()}
    collected = [
        DocumentationRow(*whose[name], None, comment)
        for section in ("tables", "views", "macros")
        for name, comment in comments[section].items()
    ]
    for name, column in columns:
        comment = comments.get(name, {}).get(column) or comments["columns"].get(column)
        if name in whose and comment is not None:
            collected.append(DocumentationRow(*whose[name], column, comment))
    return collected


def document(connection: duckdb.DuckDBPyConnection) -> None:
    """Writes comments on tables, views and tables' columns, and creates the view `documentation` of all
    comments.

    DuckLake 1.5.5 takes no comment on macros and the columns of views. Needs a transaction.
    """
    named = ", ".join(f"NULL::VARCHAR AS {name}" for name in DocumentationRow._fields)
    connection.execute(f"CREATE OR REPLACE VIEW documentation AS SELECT {named} WHERE false")
    columns = connection.execute(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = 'warehouse' "
        "AND schema_name = 'main' AND NOT internal ORDER BY table_name, column_index"
    ).fetchall()
    documented = meanings(columns)
    rows = ",\n".join(
        "(" + ", ".join("NULL" if cell is None else quote(cell) for cell in meaning) + ")"
        for meaning in documented
    )
    names = ", ".join(DocumentationRow._fields)
    connection.execute(f"CREATE OR REPLACE VIEW documentation AS FROM (VALUES\n{rows}\n) AS d({names})")
    tables = {what.name for what in list_definitions() if what.kind == "table"}
    for meaning in documented:
        what = meaning.kind.upper() + " " + meaning.name
        if meaning.column_name is not None:
            what = f"COLUMN {meaning.name}.{meaning.column_name}"
        if meaning.name in tables or (meaning.kind == "view" and meaning.column_name is None):
            connection.execute(f"COMMENT ON {what} IS {quote(meaning.comment)}")

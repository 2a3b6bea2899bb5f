"""The SQL files of the package."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import NamedTuple

SCHEMA = (
    "tables",
    "views",
    "accuracy_norm",
    "statistics",
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
    "calibration",
    "cost",
    "current_evaluations",
    "sql_digest",
)
"""The files that make up the schema, in order."""

_DEFINITION = re.compile(
    r"^CREATE (?:OR REPLACE )?(TABLE|VIEW|MACRO) (?:IF NOT EXISTS )?(\w+)(\([^)]*\))?(?: AS (TABLE))?",
    re.MULTILINE,
)


class Definition(NamedTuple):
    """Something that the SQL files define."""

    kind: str
    """`table`, `view`, `macro` (a table macro) or `function` (a macro of a value)."""
    name: str
    parameters: str
    """Parameters of a macro or function: `(benchmark, task := '*')`."""


def definitions() -> list[Definition]:
    """All definitions of the schema, in the order of its files."""
    found = []
    for kind, name, parameters, is_table in _DEFINITION.findall("\n".join(map(script, SCHEMA))):
        if kind == "MACRO":
            found.append(Definition("macro" if is_table else "function", name, parameters.replace('"', "")))
        else:
            found.append(Definition(kind.lower(), name, ""))
    return found


@cache
def schema_digest() -> str:
    """sha256 over the files of the schema."""
    return sha256("\0".join(map(script, SCHEMA)).encode()).hexdigest()


def schema_script(name: str) -> str:
    """The text of a file of the schema, with the digest of all."""
    return script(name).replace("$digest", schema_digest())


def script(name: str) -> str:
    """The text of sql/<name>.sql."""
    return (resources.files("warehouse") / "sql" / f"{name}.sql").read_text(encoding="utf-8")


def quoted(text: str) -> str:
    """`text` as a SQL string literal."""
    return "'" + text.replace("'", "''") + "'"

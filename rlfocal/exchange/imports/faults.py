"""Collects all faults of the rows that an import has read, and reports one of each kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import duckdb
import pyarrow as pa

from warehouse.comparison import Rule
from warehouse.scripts import script


def add_faults(
    scratch: duckdb.DuckDBPyConnection, step: int, file: str, faults: Sequence[tuple[int, str]]
) -> None:
    """Adds (row, reason) to the faults of `docs` or `scores`, as `file` says. Row 0 stands for the whole
    table.

    `step` is the number of the check, whose faults are all of one kind. If a row has several faults, only the
    one of the lowest step is reported.
    """
    if faults:
        rows, reasons = zip(*faults, strict=True)
        scratch.register("found", pa.table({"row": rows, "reason": reasons}))
        scratch.execute(f"INSERT INTO faults SELECT {step}, '{file}', row, reason FROM found")
        scratch.unregister("found")


def list_faults(scratch: duckdb.DuckDBPyConnection, place: Callable[[int, str], str]) -> list[str]:
    """The first fault of each kind, and the number of rows with one. `place` names a row of a table in
    words."""
    kinds = scratch.execute(
        """SELECT file, min(row), arg_min(reason, row), count(DISTINCT row)
        FROM (
            FROM faults
            QUALIFY row = 0 OR row_number() OVER (PARTITION BY file, row ORDER BY step, reason) = 1
        )
        GROUP BY step, file, CASE WHEN row = 0 THEN reason WHEN step = 1 THEN split_part(reason, ' ', 1) END
        ORDER BY step, 2, file DESC, 3"""
    ).fetchall()
    more = " (the first of {:,} such rows)"
    told = [
        f"{place(row, file)}: {reason}{more.format(n) if n > 1 else ''}" for file, row, reason, n in kinds
    ]
    return list(dict.fromkeys(told))


def count(scratch: duckdb.DuckDBPyConnection, sql: str) -> int:
    """The single number that an SQL query returns."""
    row = scratch.execute(sql).fetchone()
    return int(row[0]) if row else 0


def list_names(scratch: duckdb.DuckDBPyConnection, column: str) -> tuple[str, ...]:
    """The different values of a column of `scores`, in order."""
    named = f"SELECT DISTINCT {column} FROM scores WHERE {column} IS NOT NULL ORDER BY 1"
    return tuple(name for (name,) in scratch.execute(named).fetchall())


def make_canonical_answers(scratch: duckdb.DuckDBPyConnection, make: Callable[[str], str | None]) -> None:
    """Creates the table `canonical` of answers and gold answers, each with the form in which it is
    compared."""
    answers = "SELECT answer FROM scores UNION SELECT gold FROM docs WHERE label IS NULL"
    given = [a for (a,) in scratch.execute(f"FROM ({answers}) WHERE answer IS NOT NULL").fetchall()]
    canonical = pa.table(
        {
            "answer": pa.array(given, pa.string()),
            "canonical": pa.array(map(make, given), pa.string()),
        }
    )
    scratch.register("forms", canonical)
    scratch.execute("CREATE TEMP TABLE canonical AS FROM forms")
    scratch.unregister("forms")


def keep_other_units(scratch: duckdb.DuckDBPyConnection, rule: Rule) -> None:
    """Creates the table `other_units` of answers that state the gold's number in another unit: (given,
    answer, canonical)."""
    scratch.execute(
        "CREATE OR REPLACE TEMP TABLE other_units (given VARCHAR, answer VARCHAR, canonical VARCHAR)"
    )
    if rule is not Rule.DEFAULT:
        return
    rows = []
    for gold, answer in scratch.execute(script("imports/equal_numbers")).fetchall():
        form = rule.canonical(answer, gold)
        if form != rule.canonical(answer):
            rows.append((gold, answer, form))
    if rows:
        scratch.executemany("INSERT INTO other_units VALUES (?, ?, ?)", rows)


def check_golds(scratch: duckdb.DuckDBPyConnection, rule: Rule) -> None:
    """Adds a fault for each gold answer that no answer can equal."""
    as_is = "" if rule is Rule.EXACT else "; --comparison exact takes answers as they stand"
    scratch.execute(
        "INSERT INTO faults SELECT 90, 'docs', row, format('gold ''{}'' holds no answer to compare{}', "
        "gold, $1) FROM docs JOIN canonical ON answer = gold WHERE label IS NULL AND canonical IS NULL",
        [as_is],
    )


def check_coverage(scratch: duckdb.DuckDBPyConnection) -> None:
    """Adds a fault for each model that lacks documents of a benchmark, unless an earlier check (a step below
    50) found faults."""
    scratch.execute(
        """INSERT INTO faults
        SELECT 91, 'docs', min(row), format(
            'model {} has no row for document {} of {}/{}, which others have; {:,} such documents in all. '
            'Add them, or record the gap with --allow-missing',
            model, arg_min(doc_id, row), benchmark, arg_min(task, row), count(*))
        FROM gaps
        WHERE model IS NOT NULL AND NOT EXISTS (FROM faults AS f WHERE f.step < 50)
        GROUP BY benchmark, model"""
    )

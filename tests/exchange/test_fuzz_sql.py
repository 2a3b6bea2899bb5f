"""Statements of any content are answered or refused in one line, and the warehouse is never changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fuzzing import FUZZ, check_message, ends_well, spliced

from rlfocal.base.errors import InputError
from rlfocal.exchange.sql import WRITERS, Select

STATEMENTS = [
    "SELECT model, price FROM models WHERE family = 'a' ORDER BY price DESC LIMIT 3",
    "FROM models SELECT family, avg(price) AS mean GROUP BY ALL",
    "WITH x AS (FROM models) SELECT (SELECT count(*) FROM x), [1, {a: 'b'}], MAP {'k': 1.5}",
    "PIVOT models ON family USING sum(price) GROUP BY revision",
    "FROM (PIVOT models ON family IN ('a', 'b') USING count(*)) ORDER BY ALL",
    "UNPIVOT models ON price, params_b INTO NAME what VALUE number",
    "SUMMARIZE models",
    "DESCRIBE SELECT 1 AS one, DATE '2020-01-01' AS two",
    "SHOW ALL TABLES",
    "EXPLAIN ANALYZE FROM models",
    "FROM accuracy JOIN models USING (model)",
    "SELECT * FROM range(3) AS r(i), unnest([1, 2]) AS u(j)",
    "SELECT 1::UTINYINT, 'a'::BLOB, INTERVAL 3 DAYS, now(), TIME '12:00', 1e300::DECIMAL(38, 2), uuid()",
    "FROM pairwise_diversity('lab-mmlu')",
    "VALUES (1, 'a'), (2, NULL)",
]
PIECES = [
    *(
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ";",
        "'",
        '"',
        "$$",
        "--",
        "/*",
        "*/",
        "::",
        "::JSON",
        "[]",
        "?",
        "\\",
    ),
    *(
        " NOT ",
        " UNION ALL ",
        " FROM ",
        "SELECT ",
        " PIVOT ",
        " ON ",
        " USING ",
        "DESCRIBE ",
        "EXPLAIN ",
        "*",
    ),
    *(
        "read_csv('/etc/passwd')",
        "'/etc/passwd'",
        "COPY models TO 'stolen'",
        "DROP TABLE models;",
        "query('x')",
    ),
    *(
        "infinity::DATE",
        "'-infinity'::TIMESTAMP",
        "'nan'::FLOAT",
        "9" * 400,
        "MAP {[1]: {a: 2}}",
        "NULL",
        "$1",
    ),
    *("'290000-01-01'::DATE", "'4000-01-01 BC'::TIMESTAMP", "'99999999 days'::INTERVAL", "'24:00:00'::TIME"),
    *("(SELECT ", "abs(", "CASE WHEN true THEN ", "[" * 90, "(" * 300, "NOT " * 300, "1+" * 90, "{a:" * 90),
]
DEPTH = 400
NESTED = {
    "lists": "SELECT " + "[" * DEPTH + "1" + "]" * DEPTH,
    "types": "SELECT NULL::INT" + "[]" * DEPTH,
    "structs": "SELECT " + "{a:" * DEPTH + "1" + "}" * DEPTH,
    "calls": "SELECT " + "abs(" * DEPTH + "1" + ")" * DEPTH,
    "negations": "SELECT " + "NOT " * 40 * DEPTH + "true",
    "sums": "SELECT 1" + "+1" * 40 * DEPTH,
    "brackets": "SELECT " + "(" * 40 * DEPTH + "1" + ")" * 40 * DEPTH,
    "subqueries": "SELECT " + "(SELECT " * DEPTH + "1" + ")" * DEPTH,
    "sources": "SELECT * FROM " + "(SELECT * FROM " * DEPTH + "models" + ")" * DEPTH,
    "cases": "SELECT " + "CASE WHEN true THEN " * DEPTH + "1" + " END" * DEPTH,
    "unions": "SELECT 1" + " UNION ALL SELECT 1" * DEPTH,
}


def files(folder: Path) -> dict[Path, bytes]:
    """What the warehouse consists of, but for what SQLite keeps beside a catalogue that is open."""
    paths = [p for p in folder.rglob("*") if p.is_file() and not p.name.endswith(("-shm", "-wal"))]
    return {path: path.read_bytes() for path in paths}


@FUZZ
@given(st.sampled_from(STATEMENTS).flatmap(lambda statement: spliced(statement, PIECES)))
def test_statements(location: Path, select: Select, statement: str) -> None:
    before = files(location)
    with ends_well():
        names, rows = select(statement)
        for write in WRITERS.values():
            write(names, rows)
    assert files(location) == before
    assert not Path("stolen").exists()
    assert select("SELECT count(*) FROM models")[1] == [(40,)]


@pytest.mark.parametrize("kind", NESTED)
def test_deep_statements_end(location: Path, select: Select, kind: str) -> None:
    with ends_well():
        names, rows = select(NESTED[kind])
        for write in WRITERS.values():
            write(names, rows)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT '\ud800'", "character 9 is not valid Unicode"),
        ("SELECT 1\0; DROP TABLE models", "character 9 is a NUL"),
        ("\0", "character 1 is a NUL"),
        ("", "got none"),
        ("SELECT\n  nothing\nFROM models", r'column "nothing" not found.* \(line 2\)$'),
        *((NESTED[kind], "nested too deeply") for kind in ("subqueries", "calls", "sums", "structs")),
        ("SELECT " + "(SELECT " * 25 + "1" + ")" * 25, "nested too deeply"),
        ("SELECT " + "x" * 5000, "not found"),
        ("PIVOT models ON family; DROP TABLE models", "got 3"),
        ("CREATE TEMP TABLE x AS PIVOT models ON family", "give one read-only statement"),
        ("CREATE TYPE x AS ENUM ('a'); PIVOT models ON family", "got 3"),
        ("PIVOT (FROM read_csv('/etc/passwd')) ON column0", "table function read_csv is refused"),
        ("PIVOT (FROM \"READ_text\"/**/('/etc/passwd')) ON content", "table function read_text is refused"),
        ("PIVOT (FROM duckdb_databases) ON path", "duckdb_databases is refused"),
        ("EXPLAIN ANALYZE COPY models TO '{data}/planted.parquet'", "COPY is refused"),
        ("EXPLAIN ANALYZE DELETE FROM models", "DELETE is refused"),
        ("EXPLAIN FROM read_csv('/etc/passwd')", "table function read_csv is refused"),
        ("EXPLAIN PIVOT models ON family", r"PIVOT only with IN"),
    ],
)
def test_refused_in_one_line(location: Path, select: Select, statement: str, message: str) -> None:
    before = files(location)
    with pytest.raises(InputError, match=message) as caught:
        select(statement.format(data=location / "data") if "{data}" in statement else statement)
    check_message(caught.value)
    assert files(location) == before

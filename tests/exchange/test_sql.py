"""`rlfocal sql`: what it prints; statements of any content are answered or refused, and change nothing."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli import Cli
from support.fuzzing import FUZZ, check_message, ends_well, spliced
from support.sql import N_MODELS

from rlfocal.base.errors import InputError
from rlfocal.exchange.sql import WRITERS, Select, run_sql


def test_the_command_prints_json_as_others_do(cli: Cli, location: Path) -> None:
    said = cli("sql", "SELECT 1 AS x", "--json", "--warehouse", str(location))
    assert (said.code, json.loads(said.out)) == (0, [{"x": 1}])


def test_formats(location: Path) -> None:
    statement = "SELECT model, price, NULL AS nothing, ['a', 'b'] AS list FROM models ORDER BY model LIMIT 2"
    table = run_sql(location, statement).splitlines()
    assert [line.split() for line in table] == [
        ["model", "price", "nothing", "list"],
        ["-----", "--------", "-------", "----------"],
        ["m00", "0", "NULL", "['a',", "'b']"],
        ["m01", "0.333333", "NULL", "['a',", "'b']"],
    ]
    rows = list(csv.reader(io.StringIO(run_sql(location, statement, "csv"))))
    assert rows[0] == ["model", "price", "nothing", "list"]
    assert float(rows[2][1]) == 1 / 3
    assert json.loads(run_sql(location, statement, "json"))[1] == {
        "model": "m01",
        "price": 1 / 3,
        "nothing": None,
        "list": ["a", "b"],
    }
    assert json.loads(run_sql(location, "SELECT 'nan'::DOUBLE AS x", "json")) == [{"x": None}]
    assert run_sql(location, "SELECT 1 AS x WHERE false", "json") == "[]"
    assert run_sql(location, "SELECT 1 AS x WHERE false").splitlines() == ["x", "-"]
    with pytest.raises(InputError, match="'jsonl'"):
        run_sql(location, statement, "jsonl")


def test_json_keeps_columns_of_one_name(location: Path) -> None:
    """As a join of two tables with the same columns has them."""
    assert json.loads(run_sql(location, "SELECT 1 AS a, 2 AS a, 3 AS a", "json")) == [
        {"a": 1, "a_1": 2, "a_2": 3}
    ]


def test_what_a_model_wrote_cannot_steer_the_terminal(location: Path) -> None:
    table = run_sql(location, "SELECT 'a\tb' || chr(27) || '[2J' || chr(13) || chr(155) AS é")
    assert table.splitlines() == ["é", "-" * 17, r"a\tb\x1b[2J\r\x9b"]


READS = [
    "FROM models",
    "SELECT model, price FROM models WHERE family = 'a' ORDER BY price DESC LIMIT 3",
    "FROM models SELECT family, avg(price) AS mean GROUP BY ALL",
    "WITH x AS (SELECT * FROM models) SELECT count(*) FROM x;",
    "WITH x AS (FROM models) SELECT (SELECT count(*) FROM x), [{a: 'b'}], MAP {'k': 1.5}",
    "DESCRIBE docs",
    "DESC accuracy",
    "DESCRIBE SELECT 1 AS one, DATE '2020-01-01' AS two",
    "SUMMARIZE models",
    "SUMMARIZE SELECT price FROM models",
    "SHOW TABLES",
    "SHOW docs",
    "SHOW ALL TABLES",
    "FROM (SHOW TABLES) WHERE name = 'docs'",
    "PIVOT models ON family",
    "PIVOT models ON family USING sum(price) GROUP BY revision;",
    "WITH x AS (PIVOT models ON family, revision USING max(price)) FROM x",
    "FROM (PIVOT models ON family) JOIN (PIVOT models ON family) USING (model)",
    "FROM (PIVOT models ON family IN ('a', 'b') USING count(*)) ORDER BY ALL",
    "UNPIVOT models ON price, params_b INTO NAME what VALUE number",
    "EXPLAIN FROM models",
    " explain ANALYZE FROM models",
    "FROM accuracy JOIN models USING (model)",
    "FROM warehouse.snapshots()",
    "SELECT count(*) FROM models AT (VERSION => 2)",
    "SELECT * FROM range(3) AS r(i), unnest([1, 2]) AS u(j)",
    "SELECT 1::UTINYINT, 'a'::BLOB, INTERVAL 3 DAYS, now(), TIME '12:00', 1e30::DECIMAL(38, 2), uuid()",
    "VALUES (1, 'a'), (2, NULL)",
]


@pytest.mark.parametrize("statement", READS)
def test_reads(select: Select, statement: str) -> None:
    names, _ = select(statement)
    assert names


def test_pivot_turns_what_is_there_into_columns(location: Path) -> None:
    statement = "PIVOT (SELECT model, price < 1 AS cheap FROM models) ON cheap GROUP BY model"
    for output in ("table", "csv", "json"):
        assert "true" in run_sql(location, statement, output)
    statement = "PIVOT (SELECT price < 1 AS cheap, 1 AS one FROM models) ON cheap USING sum(one)"
    assert json.loads(run_sql(location, statement, "json")) == [{"false": 37, "true": 3}]
    assert run_sql(location, statement, "csv").splitlines() == ["false,true", "37,3"]


def test_only_the_warehouse_is_shown(location: Path) -> None:
    shown = {row["name"] for row in json.loads(run_sql(location, "SHOW TABLES", "json"))}
    assert {"models", "docs", "choice_logprobs", "accuracy", "predictions"} <= shown
    everywhere = json.loads(run_sql(location, "SHOW ALL TABLES", "json"))
    assert {row["database"] for row in everywhere} == {"warehouse"}


WORDS = ("NOT", "UNION ALL", "FROM", "SELECT", "PIVOT", "ON", "USING", "DESCRIBE", "EXPLAIN")
PIECES = [
    *"()[]{},;'\"?*\\",
    *("$$", "--", "/*", "*/", "::", "::JSON", "[]", "NULL", "$1", "abs(", "infinity::DATE"),
    *(f" {word} " for word in WORDS),
    *("read_csv('/etc/passwd')", "'/etc/passwd'", "COPY models TO 'stolen'", "DROP TABLE models;"),
    *("query('x')", "'-infinity'::TIMESTAMP", "'nan'::FLOAT", "9" * 400, "MAP {[1]: {a: 2}}"),
    *("'290000-01-01'::DATE", "'4000-01-01 BC'::TIMESTAMP", "'99999999 days'::INTERVAL", "'24:00:00'::TIME"),
    *("(SELECT ", "CASE WHEN true THEN ", "[" * 90, "(" * 300, "NOT " * 300, "1+" * 90, "{a:" * 90),
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
@given(st.sampled_from(READS).flatmap(lambda statement: spliced(statement, PIECES)))
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


REFUSED = [
    "INSERT INTO models (model) VALUES ('x')",
    "DELETE FROM models RETURNING *",
    "UPDATE models SET price = 0",
    "DROP TABLE models",
    "CREATE TEMP TABLE x AS FROM models",
    "CREATE MACRO f() AS 1",
    "COPY models TO '{tmp}/stolen.csv'",
    "COPY models TO '{warehouse}/data/planted.parquet'",
    "EXPORT DATABASE '{tmp}/stolen'",
    "ATTACH '{tmp}/other.db'",
    "DETACH warehouse",
    "USE memory",
    "SET enable_external_access = true",
    "RESET lock_configuration",
    "PRAGMA version",
    "PRAGMA table_info('models')",
    "CALL ducklake_expire_snapshots('warehouse', older_than => now())",
    "FROM ducklake_cleanup_old_files('warehouse', cleanup_all => true)",
    "FROM ducklake_delete_orphaned_files('warehouse', cleanup_all => true)",
    "FROM ducklake_add_data_files('warehouse', 'models', '{tmp}/secret.parquet')",
    "INSTALL httpfs",
    "LOAD httpfs",
    "CHECKPOINT",
    "BEGIN",
    "PREPARE p AS SELECT 1",
    "SELECT 1; DROP TABLE models",
    "SELECT 1; SELECT 2",
    "FROM read_text('{tmp}/secret.txt')",
    "FROM read_csv('{tmp}/secret.txt')",
    "FROM read_parquet('{tmp}/secret.parquet')",
    "FROM '{tmp}/secret.parquet'",
    "FROM '{tmp}/secret.txt'",
    "FROM glob('/*')",
    "WITH x AS (SELECT * FROM read_blob('{tmp}/secret.txt')) SELECT (SELECT count(*) FROM x)",
    "SELECT (SELECT content FROM read_text('{tmp}/secret.txt'))",
    "FROM sqlite_scan('{warehouse}/catalog.sqlite', 'ducklake_table')",
    "FROM sqlite_query('__ducklake_metadata_warehouse', 'SELECT 1')",
    "FROM query('SELECT * FROM models')",
    "FROM query_table(['models'])",
    "FROM duckdb_databases",
    "SELECT (SELECT path FROM system.main.DUCKDB_DATABASES LIMIT 1)",
    "FROM pragma_database_list",
    "FROM __ducklake_metadata_warehouse.ducklake_snapshot",
    "SHOW TABLES FROM __ducklake_metadata_warehouse",
    "SELECT nothing FROM models",
    "SELEC 1",
    "",
    "-- nothing",
    "SELECT '\ud800'",
    "SELECT 1\0; DROP TABLE models",
    "SELECT\n  nothing\nFROM models",
    "SELECT " + "(SELECT " * 25 + "1" + ")" * 25,
    "SELECT " + "x" * 5000,
    "PIVOT models ON family; DROP TABLE models",
    "CREATE TEMP TABLE x AS PIVOT models ON family",
    "CREATE TYPE x AS ENUM ('a'); PIVOT models ON family",
    "PIVOT (FROM read_csv('/etc/passwd')) ON column0",
    "PIVOT (FROM \"READ_text\"/**/('/etc/passwd')) ON content",
    "PIVOT (FROM duckdb_databases) ON path",
    "EXPLAIN ANALYZE COPY models TO '{warehouse}/data/planted.parquet'",
    "EXPLAIN ANALYZE DELETE FROM models",
    "EXPLAIN FROM read_csv('/etc/passwd')",
    "EXPLAIN PIVOT models ON family",
    *(NESTED[kind] for kind in ("subqueries", "calls", "sums", "structs")),
]


@pytest.mark.parametrize("statement", REFUSED)
def test_refuses(location: Path, select: Select, tmp_path: Path, statement: str) -> None:
    (tmp_path / "secret.txt").write_text("a secret")
    source = next((location / "data").rglob("*.parquet"))
    (tmp_path / "secret.parquet").write_bytes(source.read_bytes())
    inside, outside = files(location), sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match="SQL: ") as refusal:
        select(statement.replace("{tmp}", str(tmp_path)).replace("{warehouse}", str(location)))
    check_message(refusal.value)
    assert "a secret" not in str(refusal.value)
    assert files(location) == inside
    assert sorted(tmp_path.iterdir()) == outside
    assert select("SELECT count(*) FROM models")[1] == [(N_MODELS,)]

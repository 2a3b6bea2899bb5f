"""`rlfocal sql`: what it prints, and everything it must refuse."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from support.cli import Cli
from support.sql import N_MODELS

from rlfocal.base.errors import InputError
from rlfocal.exchange.sql import Select, run_sql


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
    with pytest.raises(InputError, match="unknown format 'jsonl'; did you mean 'json'"):
        run_sql(location, statement, "jsonl")


@pytest.mark.parametrize(
    "statement",
    [
        "FROM models",
        "WITH x AS (SELECT * FROM models) SELECT count(*) FROM x;",
        "DESCRIBE docs",
        "SHOW TABLES",
        "SUMMARIZE models",
        "SUMMARIZE SELECT price FROM models",
        "DESCRIBE SELECT 1 AS x",
        "DESC accuracy",
        "SHOW docs",
        "SHOW ALL TABLES",
        "FROM (SHOW TABLES) WHERE name = 'docs'",
        "PIVOT models ON family",
        "PIVOT models ON family USING sum(price) GROUP BY revision;",
        "WITH x AS (PIVOT models ON family, revision USING max(price)) FROM x",
        "FROM (PIVOT models ON family) JOIN (PIVOT models ON family) USING (model)",
        "PIVOT models ON family IN ('a') USING sum(price)",
        "UNPIVOT models ON price",
        "EXPLAIN FROM models",
        " explain ANALYZE FROM models",
        "FROM accuracy",
        "FROM warehouse.snapshots()",
        "SELECT count(*) FROM models AT (VERSION => 2)",
        "SELECT i FROM range(3) AS r(i), unnest([1, 2])",
    ],
)
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


def test_tables_are_shown_and_described(location: Path) -> None:
    shown = {row["name"] for row in json.loads(run_sql(location, "SHOW TABLES", "json"))}
    assert {"models", "docs", "choice_logprobs", "accuracy", "predictions"} <= shown
    everywhere = json.loads(run_sql(location, "SHOW ALL TABLES", "json"))
    assert {row["database"] for row in everywhere} == {"warehouse"}
    columns = [row["column_name"] for row in json.loads(run_sql(location, "DESCRIBE docs", "json"))]
    assert columns[:3] == ["benchmark", "task", "doc_id"]
    summary = {row["column_name"]: row for row in json.loads(run_sql(location, "SUMMARIZE models", "json"))}
    assert summary["price"]["max"] == "13.0"
    assert "DUCKLAKE_SCAN" in run_sql(location, "EXPLAIN FROM models").splitlines()[1]


@pytest.mark.parametrize("macro", ["pairwise_diversity('b')", "all_pools('b', 3)"])
def test_the_diversity_of_no_models_is_an_error(location: Path, macro: str) -> None:
    with pytest.raises(InputError, match="no benchmark b"):
        run_sql(location, f"FROM {macro}")


def test_snapshot(location: Path) -> None:
    assert json.loads(run_sql(location, "SELECT count(*) AS n FROM models", "json", snapshot=1)) == [{"n": 0}]


@pytest.mark.parametrize(
    "statement",
    [
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
        "EXPLAIN ANALYZE DELETE FROM models",
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
    ],
)
def test_refuses(location: Path, select: Select, tmp_path: Path, statement: str) -> None:
    (tmp_path / "secret.txt").write_text("a secret")
    source = next((location / "data").rglob("*.parquet"))
    (tmp_path / "secret.parquet").write_bytes(source.read_bytes())
    inside, outside = sorted(location.rglob("*.parquet")), sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match="SQL: ") as refusal:
        select(statement.format(tmp=tmp_path, warehouse=location))
    assert "a secret" not in str(refusal.value)
    assert sorted(location.rglob("*.parquet")) == inside
    assert sorted(tmp_path.iterdir()) == outside
    assert select("SELECT count(*) FROM models")[1] == [(N_MODELS,)]


def test_a_missing_warehouse_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no warehouse at"):
        run_sql(tmp_path / "absent", "SELECT 1")
    assert not (tmp_path / "absent").exists()

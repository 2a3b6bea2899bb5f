"""The schema in a plain DuckDB, how each macro is called, and a sandbox for statements of a user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from rlfocal.exchange.sql import Select, sandbox
from warehouse import open_warehouse
from warehouse.scripts import SCHEMA_FILES, script

N_MODELS = 40
MACROS = {
    "pairwise_diversity": "{benchmark}, task := {task}, split := {split}, models := {models}",
    "agreement": "{benchmark}, task := {task}, split := {split}, models := {models}",
    "best_partner": "{benchmark}, {models}[1], task := {task}, split := {split}",
    "all_pools": "{benchmark}, 4, task := {task}, split := {split}, models := {models}",
    "pool_diversity": "{benchmark}, {models}, task := {task}, split := {split}",
    "pool_documents": "{benchmark}, {models}, {task}, {split}",
    "pool_diversity_over_time": "{benchmark}, {models}, 3, task := {task}",
    "calibration": "{benchmark}, task := {task}, split := {split}, models := {models}",
    "model_scores": "{benchmark}, task := {task}, split := {split}, models := {models}",
    "compare_models": "{benchmark}, {models}[1], {models}[2], task := {task}, split := {split}",
    "flipped_by_models": "{benchmark}, {models}[1], {models}[2], task := {task}, split := {split}",
    "ceiling": "{benchmark}, {models}, task := {task}, split := {split}",
    "pass_at_k": "{benchmark}, 1, task := {task}, split := {split}, models := {models}",
}
"""Every macro of a benchmark, and how it is called."""


KNOWN = {"benchmark": "'b'", "task": "'*'", "split": "'*'", "models": "['m00', 'm01']"}


def rounded(found: list[tuple[object, ...]]) -> list[list[object]]:
    """The rows in one order: sums of floats differ in their last digit, by who is added first."""
    values = [[round(value, 9) if isinstance(value, float) else value for value in row] for row in found]
    return sorted(values, key=repr)


@pytest.fixture(scope="module")
def sql() -> duckdb.DuckDBPyConnection:
    """The tables, views and macros in a plain DuckDB: without commits, a fill takes milliseconds."""
    return plain_database()


def plain_database() -> duckdb.DuckDBPyConnection:
    """One in memory with the warehouse's tables, views and macros, and no rows."""
    connection = duckdb.connect()
    connection.execute("ATTACH ':memory:' AS warehouse; USE warehouse")
    for name in SCHEMA_FILES:
        connection.execute(script(name))
    return connection


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse whose `models` are a Parquet file, not rows inlined in the catalogue."""
    path = tmp_path_factory.mktemp("warehouse")
    with open_warehouse(path) as warehouse, warehouse.transaction("models"):
        names = [f"m{i:02}" for i in range(N_MODELS)]
        prices = [i / 3 for i in range(N_MODELS)]
        rows = {"model": names, "family": ["a", "b"] * (N_MODELS // 2), "price": prices}
        warehouse.append("models", pa.table(rows))
    assert list((path / "data").rglob("*.parquet"))
    return path


@pytest.fixture(scope="module")
def select(location: Path) -> Iterator[Select]:
    """One sandbox for every statement: what one of them broke, a later one would show."""
    with sandbox(location) as opened:
        yield opened

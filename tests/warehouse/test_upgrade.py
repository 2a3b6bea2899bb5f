"""Warehouses of older schemas are upgraded or refused; what a new one is made of."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.basics import run_python
from support.rows import choice_rows, docs, extraction, put

from rlfocal.exchange.exports import export
from rlfocal.exchange.imports.tables import import_tables
from warehouse import Warehouse, open_warehouse, opening
from warehouse.connecting import attach, connect
from warehouse.errors import InputError
from warehouse.integrity import examine
from warehouse.locations import locate
from warehouse.opening import FIRST_RELEASED_VERSION, BenchmarkCopy

Fresh = Callable[[Path], Path]


def test_an_edited_macro_counts_at_the_next_write_and_for_its_own_readers_at_once(
    fresh: Fresh, tmp_path: Path
) -> None:
    """In a checkout: nobody raises a version to try a formula."""
    place = fresh(tmp_path / "w")
    with open_warehouse(place) as warehouse, warehouse.transaction("models"):
        warehouse.append("models", pa.table({"model": ["m"], "price": [2.0]}))
    with open_warehouse(place) as warehouse:
        before = warehouse.snapshot()
    edited = shutil.copytree(Path(str(resources.files("warehouse"))), tmp_path / "checkout" / "warehouse")
    cost = edited / "sql" / "cost.sql"
    cost.write_text(cost.read_text().replace("sum(p.price)", "sum(p.price) + 1"))

    def there(read_only: bool) -> list[Any]:
        code = "from warehouse import open_warehouse; "
        code += f"w = open_warehouse({str(place)!r}, read_only={read_only}); "
        code += "print(w.rows(\"SELECT pool_cost(['m'])\")[0][0], w.snapshot())"
        return run_python("-c", code, cwd=edited.parent).split()

    def here() -> Any:
        with open_warehouse(place, read_only=True) as warehouse:
            return warehouse.rows("SELECT pool_cost(['m'])")[0][0]

    assert there(read_only=True) == ["3.0", str(before)]
    assert there(read_only=False) == ["3.0", str(before + 1)]
    assert there(read_only=False) == ["3.0", str(before + 1)]
    assert here() == 2.0  # of its own SQL, whatever the catalogue has


@pytest.mark.parametrize("read_only", [True, False])
def test_an_unreleased_schema_is_refused(fresh: Fresh, tmp_path: Path, read_only: bool) -> None:
    place = fresh(tmp_path / "w")
    with open_warehouse(place) as warehouse, warehouse.transaction("go back"):
        warehouse.connection.execute("UPDATE schema_version SET version = ?", [FIRST_RELEASED_VERSION - 1])
    with pytest.raises(InputError, match=r"development version .* \(schema 10, .*; extract or import"):
        open_warehouse(place, read_only=read_only)


@pytest.mark.usefixtures("made_anew")
def test_a_warehouse_that_another_process_makes_meanwhile_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = locate(tmp_path / "w")
    (tmp_path / "w").mkdir()
    with connect(postgres=False) as bare:
        attach(bare, place, read_only=False, create=True, snapshot=None)
    real = connect

    class LateConnection:
        """A connection before whose second question another process makes the tables."""

        def __init__(self) -> None:
            self.connection = real(postgres=False)
            self.asked: list[str] = []

        def execute(self, query: str, *more: object) -> object:
            self.asked.append(query)
            if query == "SHOW TABLES":
                monkeypatch.setattr(opening, "connect", real)
                open_warehouse(place).close()
            return self.connection.execute(query, *more)

        def close(self) -> None:
            self.connection.close()

    late = LateConnection()
    monkeypatch.setattr(opening, "connect", lambda **_: late)
    open_warehouse(place, read_only=True)
    assert "SHOW TABLES" in late.asked
    late.close()


def test_everything_has_a_comment(warehouse: Warehouse) -> None:
    """In the clients of a new warehouse: tables, their columns and views; and all in `documentation`."""
    ours = "WHERE database_name = 'warehouse' AND NOT internal"
    without = (
        f"SELECT table_name FROM duckdb_tables() {ours} AND comment IS NULL UNION ALL "
        f"SELECT view_name FROM duckdb_views() {ours} AND comment IS NULL UNION ALL "
        f"SELECT table_name || '.' || column_name FROM duckdb_columns() {ours} AND comment IS NULL "
        f"AND table_name IN (SELECT table_name FROM duckdb_tables() {ours})"
    )
    assert warehouse.rows(without) == []
    named = (
        f"SELECT table_name, column_name FROM duckdb_columns() {ours} UNION "
        f"SELECT table_name, NULL FROM duckdb_tables() {ours} UNION "
        f"SELECT view_name, NULL FROM duckdb_views() {ours} UNION "
        f"SELECT function_name, NULL FROM duckdb_functions() {ours}"
    )
    documented = "SELECT name, column_name FROM documentation WHERE comment <> ''"
    assert sorted(warehouse.rows(named), key=str) == sorted(warehouse.rows(documented), key=str)
    known = tomllib.loads((resources.files("warehouse") / "documentation.toml").read_text("utf-8"))
    used = {name for _, name in warehouse.rows(documented)}
    assert [name for name in known["columns"] if name not in used] == []


def test_files_are_small_and_in_order(warehouse: Warehouse) -> None:
    rng = np.random.default_rng(0)
    n = 3000
    rows = choice_rows([[-1.0, -2.0, -3.0]] * n).take(rng.permutation(3 * n))
    warehouse.put_partition(docs(n), rows, extraction(n_docs=n))
    assert warehouse.rows("FROM choice_logprobs") == warehouse.rows(
        "FROM choice_logprobs ORDER BY doc_id, choice"
    )
    [path] = Path(warehouse.data_path()).glob("main/choice_logprobs/*.parquet")
    used = warehouse.rows("SELECT DISTINCT compression FROM parquet_metadata(?)", [str(path)])
    assert used == [("ZSTD",)]


def test_a_warehouse_from_before_traces_and_digests_is_read_and_upgraded(
    fresh: Fresh, warehouse: Warehouse, tmp_path: Path
) -> None:
    location = fresh(tmp_path / "w")
    with open_warehouse(location) as old:
        old.put_partition(docs(2), choice_rows([[-1.0, -2.0, -3.0]] * 2), extraction(n_docs=2))
        run = [
            {"run_id": "r", "benchmark": "b", "task": task, "n": 1, "accuracy": 1.0} for task in ("*", "t")
        ]
        decision = {"run_id": ["r"], "benchmark": ["b"], "task": ["t"], "doc_id": [0], "correct": [True]}
        with old.transaction("as schema 11 left it"):
            old.append("evaluations", pa.Table.from_pylist(run))
            old.append("decisions", pa.table(decision))
            for what in (
                "DROP VIEW trace_probs",
                "DROP TABLE traces",
                "DROP TABLE run_digests",
                "ALTER TABLE extractions DROP COLUMN evidence",
                "UPDATE schema_version SET version = 11",
            ):
                old.connection.execute(what)
    costs = "SELECT n_thought_tokens FROM query_costs"
    with open_warehouse(location, read_only=True) as old:
        assert opening.needs_upgrade(old)
        assert old.rows(costs) == [(0,)] * 2  # of a view that is lent
        assert not BenchmarkCopy(old).copy("b")
        assert old.rows("SELECT model, evidence FROM extractions") == [("m", None)]
        export(old, tmp_path / "out")
    with open_warehouse(location) as upgraded:
        assert examine(upgraded).is_sound
        assert upgraded.rows(costs) == [(0,)] * 2
        assert upgraded.rows("FROM warehouse.traces") == []
        assert not opening.needs_upgrade(upgraded)
        put(upgraded, [[-1.0, -2.0, -3.0]] * 2, "n", evidence="samples")
        said = upgraded.rows("SELECT model, evidence FROM warehouse.extractions ORDER BY model")
        assert said == [("m", None), ("n", "samples")]
    assert import_tables(warehouse, tmp_path / "out").n_written == 1
    assert examine(warehouse).is_sound

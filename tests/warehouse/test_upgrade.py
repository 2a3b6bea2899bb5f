"""Warehouses of older schemas: what their rows said, they say still, upgraded or only read."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.rows import choice_rows, docs, extraction

from rlfocal.evaluation.storing import stored
from warehouse import Warehouse, open_warehouse, opening
from warehouse.connecting import attach, connect
from warehouse.locations import locate
from warehouse.opening import SCHEMA_VERSION
from warehouse.upkeep.integrity import examine
from warehouse.writing import put_docs

CALLED = [
    ("plurality", None, "plurality", None, {}),
    ("rl_focal", "paper", "rl_focal", None, {}),
    ("rl_focal", "sequential", "rl_focal_sequential", None, {}),
    ("rl_focal", "released", "rl_focal_released", None, {}),
    (
        "rl_focal",
        "paper[metrics=kappa+focal_diversity,size_penalty=0.6,branching=true,size=3]",
        "rl_focal",
        "unknown",
        {"metrics": "kappa+focal_diversity", "size_penalty": 0.6, "branching": True, "size": 3},
    ),
    ("rl_focal", "released[without x]", "rl_focal_released", "unknown", {"without x": True}),
    ("best_single", "[switch=s>t]", "best_single", "unknown", {"switch": "s>t"}),
]
"""(method, variant) before schema 6, and method, study and settings since."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A warehouse as schema 5 left it."""
    with open_warehouse(tmp_path / "w") as warehouse, warehouse.transaction("schema 5"):
        for statement in (
            "DROP VIEW current_evaluations",
            "ALTER TABLE evaluations DROP COLUMN study",
            "ALTER TABLE evaluations DROP COLUMN settings",
            "ALTER TABLE evaluations ADD COLUMN variant VARCHAR",
            "ALTER TABLE training_history ADD COLUMN variant VARCHAR",
            "UPDATE schema_version SET version = 5",
        ):
            warehouse.connection.execute(statement)
        rows = [
            {"run_id": f"r{at}", "benchmark": "b", "task": "*", "method": method, "variant": variant}
            | {"protocol": "frozen", "per": "benchmark", "split": "test", "n": 4, "accuracy": at / 10}
            | {"models": ["m"], "data": "d", "snapshot": 1}
            for at, (method, variant, *_) in enumerate(CALLED)
        ]
        warehouse.append("evaluations", pa.Table.from_pylist(rows))
        history = [
            {"run_id": f"r{at}", "method": "rl_focal", "variant": variant, "phase": "fusion", "reward": 0.5}
            for at, variant in ((1, "paper"), (2, "sequential"))
        ]
        warehouse.append("training_history", pa.Table.from_pylist(history))
    return tmp_path / "w"


@pytest.mark.parametrize("read_only", [True, False])
def test_variants_become_methods_and_studies_columns(old: Path, read_only: bool) -> None:
    with open_warehouse(old, read_only=read_only) as warehouse:
        said = warehouse.rows("SELECT method, study, settings FROM evaluations ORDER BY run_id")
        assert [(m, study, json.loads(settings)) for m, study, settings in said] == [
            tuple(after) for _, _, *after in CALLED
        ]
        assert [row.settings for row in stored(warehouse, ["r4"])] == [CALLED[4][4]]
        shown = warehouse.rows("SELECT run_id FROM current_evaluations ORDER BY 1")
        assert shown == [("r0",), ("r1",), ("r2",), ("r3",)]
        phases = warehouse.rows("SELECT method, phase FROM training_history ORDER BY run_id")
        assert phases == [("rl_focal", "fusion"), ("rl_focal_sequential", "stage")]
        [(version,)] = warehouse.rows("SELECT max(version) FROM schema_version")
        assert version == (5 if read_only else SCHEMA_VERSION)
    if not read_only:
        with open_warehouse(old) as again:
            assert again.rows("SELECT count(*) FROM evaluations") == [(len(CALLED),)]


def test_a_warehouse_that_another_process_makes_meanwhile_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = locate(tmp_path / "w")
    (tmp_path / "w").mkdir()
    with connect(postgres=False) as bare:
        attach(bare, place, read_only=False, create=True, snapshot=None)
    real = connect

    class Late:
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

    late = Late()
    monkeypatch.setattr(opening, "connect", lambda postgres: late)
    open_warehouse(place, read_only=True)
    assert "SHOW TABLES" in late.asked
    late.close()


KILLED = """
import os, signal, sys
from warehouse import open_warehouse, opening

class Dying:
    def __init__(self, real, left):
        self.real, self.left = real, left
    def __getattr__(self, name):
        return getattr(self.real, name)
    def execute(self, *given):
        if given[0] == "COMMIT" if self.left is None else self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left = self.left and self.left - 1
        return self.real.execute(*given)

real, left = opening.connect, None if sys.argv[2] == "COMMIT" else int(sys.argv[2])
opening.connect = lambda **how: Dying(real(**how), left)
open_warehouse(sys.argv[1])
"""
SAID = [("a", None, "7"), ("a", None, None), ("c", 2, None), ("gone", 12, None), ("lost", None, "120")]
"""(benchmark, prediction, answer) of the decisions; two benchmarks have no documents any more."""


@pytest.fixture
def of_schema_10(tmp_path: Path) -> Path:
    """What schema 10 left, with a label corrected after the run on `c`, and without a NOT NULL."""
    with open_warehouse(tmp_path / "w") as warehouse:
        with warehouse.transaction("rows"):
            asked: list[dict[str, object]] = [
                {"benchmark": "a", "gold": "7", "label": None},
                {"benchmark": "c", "gold": None, "label": 2},
            ]
            place = {"task": "t", "doc_id": 0, "split": "test"}
            put_docs(warehouse.connection, pa.Table.from_pylist([place | doc for doc in asked]))
            warehouse.append("models", pa.table({"model": ["m"], "price": [0.5]}))
        read = warehouse.snapshot()
        with warehouse.transaction("runs"):
            about = {"task": "*", "protocol": "frozen", "snapshot": read, "created_at": datetime.now(UTC)}
            runs = [about | {"run_id": b, "benchmark": b, "models": ["m"], "data": "d"} for b in "ac"]
            warehouse.append("evaluations", pa.Table.from_pylist(runs))
        with warehouse.transaction("schema 10"):
            for statement in (
                *(f"DROP VIEW {view}" for view in ("current_evaluations", "runs", "documentation")),
                *(f"DROP TABLE {table}" for table in ("benchmarks", "tasks")),
                "ALTER TABLE models DROP COLUMN licence",
                "ALTER TABLE evaluations DROP COLUMN read_at",
                "ALTER TABLE decisions DROP COLUMN answer",
                "ALTER TABLE decisions DROP COLUMN prediction",
                "ALTER TABLE decisions ADD COLUMN prediction VARCHAR",
                "UPDATE schema_version SET version = 10",
                "INSERT INTO corrections BY NAME SELECT 'c' AS benchmark, 't' AS task, 0 AS doc_id, "
                "now() + INTERVAL 1 SECOND AS corrected_at",
            ):
                warehouse.connection.execute(statement)
        with warehouse.transaction("decisions"):
            decided = [
                {"run_id": b, "benchmark": b, "task": "t", "doc_id": at}
                | {"prediction": answer if choice is None else str(choice)}
                for at, (b, choice, answer) in enumerate(SAID)
            ]
            warehouse.append("decisions", pa.Table.from_pylist(decided))
            warehouse.connection.execute("CREATE TABLE of_another_client (own INT)")
        warehouse.connection.execute("ALTER TABLE docs ALTER COLUMN split DROP NOT NULL")
    return tmp_path / "w"


def check_version_11(warehouse: Warehouse) -> None:
    """All that schema 10 had is there, in the form of schema 11."""
    assert warehouse.rows("SELECT benchmark, prediction, answer FROM decisions ORDER BY doc_id") == SAID
    assert warehouse.rows("SELECT run_id, stale FROM current_evaluations ORDER BY 1") == [
        ("a", False),
        ("c", True),
    ]
    assert warehouse.rows("SELECT model, price, licence FROM models") == [("m", 0.5, None)]
    assert warehouse.rows("SELECT gold, label FROM docs ORDER BY benchmark") == [("7", None), (None, 2)]


def test_predictions_of_schema_10_have_one_type(of_schema_10: Path) -> None:
    with open_warehouse(of_schema_10, read_only=True) as warehouse:
        check_version_11(warehouse)
        assert warehouse.rows("FROM tasks") == []
        before = warehouse.snapshot()
    with open_warehouse(of_schema_10) as warehouse:
        check_version_11(warehouse)
        kinds = warehouse.rows("SELECT benchmark, task, kind FROM tasks JOIN benchmarks USING (benchmark)")
        assert sorted(kinds) == [("a", "t", "answers"), ("c", "t", "choices")]
        assert examine(warehouse).tasks == ()
    with open_warehouse(of_schema_10, snapshot=before) as warehouse:
        check_version_11(warehouse)


@pytest.mark.slow
@pytest.mark.parametrize("left", [*range(10, 60, 10), "COMMIT"])
def test_an_upgrade_that_is_killed_starts_anew(of_schema_10: Path, left: int | str) -> None:
    killed = [sys.executable, "-c", KILLED, str(of_schema_10), str(left)]
    assert subprocess.run(killed, check=False).returncode == -signal.SIGKILL
    with open_warehouse(of_schema_10, read_only=True) as warehouse:
        assert warehouse.rows("SELECT max(version) FROM schema_version") == [(10,)]
        check_version_11(warehouse)
    with open_warehouse(of_schema_10) as warehouse:
        assert warehouse.rows("SELECT max(version) FROM schema_version") == [(SCHEMA_VERSION,)]
        check_version_11(warehouse)
        nullable = (
            "SELECT is_nullable FROM duckdb_columns() WHERE (table_name, column_name) = ('docs', 'split')"
        )
        assert warehouse.rows(f"{nullable} AND database_name = 'warehouse'") == [(False,)]


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

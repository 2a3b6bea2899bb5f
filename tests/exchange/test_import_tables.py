"""Exported tables come back complete: in another catalogue, and as the same bytes again."""

from __future__ import annotations

import hashlib
import shutil
from itertools import product
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from support.foreign_rows import fill
from support.postgres_server import PostgresServer
from support.rows import answer_rows, docs, extraction, rename, set_all
from typer.testing import CliRunner

from rlfocal.base.errors import InputError
from rlfocal.cli.app import app
from rlfocal.exchange.exports import export
from rlfocal.exchange.imports.tables import import_tables
from warehouse import Warehouse, open_warehouse
from warehouse.alignment import prompt_hash
from warehouse.integrity import TABLE_FOLDERS, examine
from warehouse.scripts import definitions
from warehouse.writing import put_probe_answers


def fingerprints(folder: Path) -> dict[str, str]:
    files = sorted(folder.rglob("*.parquet"))
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Choices, answers with gaps, runs, a rename and a correction."""
    path = tmp_path_factory.mktemp("source") / "w"
    fill(path, 3)
    with open_warehouse(path) as warehouse:
        place = {"benchmark": "answers = 1/2", "task": "é 100 %"}
        given = set_all(docs(2).drop_columns(["choices", "label"]), **place)
        rows = set_all(answer_rows([["1", None], ["2", "2"]], "m1"), **place)
        asked = [
            {**place, "doc_id": at, "model": model, "prompt": f"{model} {at}"}
            for at in (0, 1)
            for model in ("*", "m1")
        ]
        warehouse.put_partition(
            given.append_column("prompt_hash", [[prompt_hash(f"* {at}", None, None) for at in (0, 1)]]),
            rows,
            extraction("m1") | place | {"settings": {"a": [1, None]}},
            prompts=pa.Table.from_pylist(asked),
        )
        rename(warehouse, "m5", "z5")
        with warehouse.transaction("more"):
            warehouse.connection.execute("UPDATE models SET price = 0.1 + 0.2 WHERE model = 'm0'")
            warehouse.connection.execute("INSERT INTO ruled_out VALUES ('r9', 'b', 'x', '1', 'd')")
            warehouse.connection.execute(
                "INSERT INTO promise_looks (run_id, benchmark, target, look) VALUES ('r9', 'b', 0.1, 0)"
            )
            warehouse.connection.execute(
                "INSERT INTO probe_estimates (probe_id, model, benchmark, metric, other, value) "
                "VALUES ('p', 'new', 'b', 'accuracy', '', 0.5)"
            )
            said = [{"pass": 0, "text": "a\0b 'c' {d: 1}"}, {"pass": 1}]
            probed = {"probe_id": "p", "model": "new", **place, "doc_id": 1, "passes": said}
            put_probe_answers(
                warehouse.connection, [probed | {"settings": '{"a": 1}', "probability": 0.1 + 0.2}]
            )
    return path


def test_every_table_is_exported() -> None:
    of_this_warehouse = {"schema_version", "drift_looks"}  # its own upgrades and snapshots
    assert {d.name for d in definitions() if d.kind == "table"} - of_this_warehouse == set(TABLE_FOLDERS)


def test_to_postgres_and_out_again(source: Path, postgres: PostgresServer, tmp_path: Path) -> None:
    place = f"{postgres.database()}?data={tmp_path / 'data'}"
    with open_warehouse(source) as warehouse:
        snapshot = warehouse.snapshot()
        export(warehouse, tmp_path / "out")
        assert warehouse.snapshot() == snapshot
    command = ["import", "tables", str(tmp_path / "out"), "-w", place]
    result, again = (CliRunner().invoke(app, command) for _ in range(2))
    assert result.exit_code == 0, result.output
    assert "0 partitions written, 19 already there" in again.output
    with open_warehouse(place) as warehouse:
        assert examine(warehouse).is_sound
        export(warehouse, tmp_path / "again")
    first = fingerprints(tmp_path / "out")
    assert {name.partition("/")[0] for name in first} >= set(TABLE_FOLDERS) - {
        "corrections",
        "training_history",
        "traces",
    }
    assert fingerprints(tmp_path / "again") == first


@pytest.fixture(scope="module")
def exported(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "out"
    with open_warehouse(source) as warehouse:
        export(warehouse, folder, benchmarks=["b"])
    return folder


def test_what_is_stored_stays(exported: Path, warehouse: Warehouse) -> None:
    import_tables(warehouse, exported)
    with warehouse.transaction("own"):
        warehouse.connection.execute("UPDATE models SET price = 7 WHERE model = 'm0'")
        warehouse.connection.execute("DELETE FROM evaluations WHERE run_id = 'r1'")
    report = import_tables(warehouse, exported)
    assert (report.n_written, report.rows["evaluations"], report.rows["models"]) == (0, 2, 0)
    assert warehouse.rows("SELECT price FROM models WHERE model = 'm0'") == [(7.0,)]
    warehouse.connection.execute("UPDATE extractions SET digest = '1:2:3' WHERE model = 'm0'")
    with pytest.raises(
        InputError, match=r"m0 on b/t0 is in .* with other rows; .*remove-model m0 --benchmarks b`"
    ):
        import_tables(warehouse, exported)


ALTERED = {
    "docs": ("question = 'x'", "the documents of b/t0"),
    "choice_logprobs": ("logprob = logprob + 1e-9", "m0 on b/t0"),
    "decisions": ("reward = coalesce(reward, 0) + 1", "decisions of run r0 on b"),
    "evaluations": ("", "decisions of run r0 on b"),
}
"""By table: what is changed in it, and what is said then."""


@pytest.mark.parametrize(
    ("table", "change"), [*product(ALTERED, ["missing"]), *product([*ALTERED][:3], ["altered"])]
)
def test_altered_files_are_refused(
    exported: Path, unwritten: Warehouse, tmp_path: Path, table: str, change: str
) -> None:
    shutil.copytree(exported, tmp_path / "out")
    file = sorted((tmp_path / "out" / table).rglob("*.parquet"))[0]
    column, what = ALTERED[table]
    name, _, value = column.partition(" = ")
    if change == "missing":
        file.unlink()
    else:
        query = f"SELECT * REPLACE ({value} AS {name}) FROM read_parquet('{file}', hive_partitioning = false)"
        duckdb.execute(f"COPY ({query}) TO '{file}.new' (FORMAT parquet)")
        Path(f"{file}.new").rename(file)
    with pytest.raises(InputError, match=f"{what} are not what was exported"):
        import_tables(unwritten, tmp_path / "out")
    assert unwritten.rows("FROM docs") == []


def test_what_is_no_export(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["import", "tables", str(tmp_path), "-w", str(tmp_path / "w")])
    assert isinstance(result.exception, InputError)
    assert not (tmp_path / "w").exists()

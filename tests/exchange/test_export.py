"""What leaves the warehouse, read again by others and by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pytest
from support.cli import Cli
from support.filled_warehouse import ODD

import rlfocal
from rlfocal.base.errors import InputError
from rlfocal.exchange.exports import Format, export
from rlfocal.exchange.imports.predictions import import_predictions
from warehouse import Warehouse, open_warehouse
from warehouse.integrity import FOLDERS

Fresh = Callable[[Path], Path]


def read(folder: Path, table: str) -> duckdb.DuckDBPyRelation:
    """One table of a plain Parquet export, by a DuckDB that knows nothing of it."""
    return duckdb.sql(
        f"FROM read_parquet('{folder}/{table}/**/*.parquet', hive_partitioning = true, "
        "hive_types_autocast = false, union_by_name = true)"
    )


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: str(sorted(row.items())))


def test_parquet_holds_all_rows(filled: Warehouse, tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    report = export(
        filled, tmp_path / "out", questions=True, on_progress=lambda name, share: told.append((name, share))
    )
    assert report.snapshot == filled.snapshot()
    assert report.withheld == 0
    assert [name for name, share in told if share == 1] == list(FOLDERS)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    with_rows = {t.table for t in report.tables}
    assert with_rows == set(FOLDERS) - {
        *("prompts", "training_history", "corrections", "renames", "ruled_out", "traces")
    }
    for written in report.tables:
        expected = in_order(filled.query(f"FROM {written.table}"))
        assert in_order(read(report.path, written.table).to_arrow_table()) == expected
        assert written.rows == len(expected)
        files = list((report.path / written.table).rglob("*.parquet"))
        assert (written.files, written.bytes) == (len(files), sum(f.stat().st_size for f in files))
    assert (report.path / "choice_logprobs/benchmark=b/task=t/model=other").is_dir()
    hive = pa.dataset.partitioning(flavor="hive")
    tasks = pa.dataset.dataset(report.path / "choice_logprobs", partitioning=hive).to_table()["task"]
    assert ODD in tasks.to_pylist()


def test_parquet_goes_back_into_a_warehouse(filled: Warehouse, warehouse: Warehouse, tmp_path: Path) -> None:
    report = export(filled, tmp_path / "out", questions=True)
    with warehouse.transaction("again"):
        for written in report.tables:
            warehouse.append(written.table, read(report.path, written.table).to_arrow_table())
    for table in (*FOLDERS, "predictions"):
        assert in_order(warehouse.query(f"FROM {table}")) == in_order(filled.query(f"FROM {table}"))


def test_predictions_round_trip(filled: Warehouse, fresh: Fresh, tmp_path: Path) -> None:
    kept = ("b", "answers", "flagged")
    report = export(filled, tmp_path / "out", format="predictions", benchmarks=kept, questions=True)
    assert {t.table: t.rows for t in report.tables} == {"docs": 25, "scores": 5 * 5 + 10, "models": 2}
    files = [tmp_path / "out" / name for name in ("docs.parquet", "scores.parquet")]
    with open_warehouse(fresh(tmp_path / "again")) as again:
        import_predictions(again, *files, allow_missing=True)
        for query in (
            "SELECT benchmark, task, doc_id, label, question, choices, gold, split FROM docs",
            "SELECT benchmark, task, doc_id, model, choice, logprob FROM choice_logprobs",
            "SELECT benchmark, task, doc_id, model, pass, text, answer FROM answer_passes",
            "FROM predictions",
        ):
            chosen = f"SELECT * FROM ({query}) WHERE benchmark IN {kept} ORDER BY ALL"
            assert again.rows(chosen) == filled.rows(chosen) != []
        export(again, tmp_path / "twice", format="predictions", questions=True)
    for file in files:
        twice = tmp_path / "twice" / file.name
        assert pa.parquet.read_table(twice).to_pylist() == pa.parquet.read_table(file).to_pylist()


def test_confidential_texts_stay(filled: Warehouse, tmp_path: Path) -> None:
    for format in ("parquet", "datasets", "predictions"):
        assert export(filled, tmp_path / format, format=format).withheld == 10
    out = tmp_path / "parquet"
    secret = "benchmark IN ('gpqa@chat', 'flagged')"
    text = "question IS NOT NULL OR choices IS NOT NULL OR gold IS NOT NULL"
    assert read(out, "docs").filter(secret).filter(text).fetchall() == []
    assert len(read(out, "docs").filter(secret).filter("label = 0")) == 10
    assert len(read(out, "docs").filter(f"NOT {secret}").filter("question IS NOT NULL")) == 20
    assert read(out, "choice_logprobs").filter(secret).filter("token_ids IS NOT NULL").fetchall() == []
    assert len(read(out, "choice_logprobs").filter(secret).filter("logprob < 0")) == 30
    for file in (tmp_path / "datasets" / "docs").glob("*.parquet"):
        assert duckdb.sql(f"FROM '{file}'").filter(secret).filter(text).fetchall() == []
    scored = duckdb.sql(f"FROM '{tmp_path}/predictions/docs.parquet'")
    assert scored.filter(secret).filter(text).fetchall() == []


def test_only_what_is_asked_for(filled: Warehouse, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = export(filled, out, benchmarks=["b"], models=["m"])
    assert {t.table for t in report.tables} == {
        *("models", "benchmarks", "tasks", "docs", "choice_logprobs", "extractions", "evaluations"),
        *("decisions", "doc_digests", "run_digests"),
    }
    for table in ("choice_logprobs", "extractions"):
        assert read(out, table).project("model").distinct().fetchall() == [("m",)]
    for table in ("evaluations", "decisions", "run_digests"):
        assert read(out, table).project("run_id").fetchall() == [("one",)]
    assert read(out, "docs").project("benchmark").distinct().fetchall() == [("b",)]
    some = export(filled, tmp_path / "some", tables=["docs", "docs"])
    assert [p.name for p in some.path.iterdir()] == ["docs"]
    before = export(filled, tmp_path / "whole").snapshot
    with open_warehouse(filled.location, snapshot=before - 1) as then:
        older = export(then, tmp_path / "then")
    assert older.snapshot == before - 1
    assert not any(t.table == "decisions" for t in older.tables)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"benchmarks": ["c"]}, "unknown benchmark 'c'"),
        ({"models": ["om"]}, "unknown model 'om'"),
        ({"tables": ["doc"]}, "unknown table 'doc' in the warehouse; did you mean 'docs'"),
        ({"tables": ["decisions"], "format": "predictions"}, "unknown table 'decisions'"),
        ({"format": "csv"}, "unknown format 'csv'"),
        ({"tables": ["training_history"]}, "nothing to export"),
    ],
)
def test_refused_and_nothing_left(
    filled: Warehouse, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    for target in ("new", "empty"):
        with pytest.raises(InputError, match=message):
            export(filled, tmp_path / target, **options)
    assert list(tmp_path.rglob("*")) == [tmp_path / "empty"]


def test_an_empty_warehouse(warehouse: Warehouse, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to export"):
        export(warehouse, tmp_path / "out", questions=True)
    assert [p.name for p in tmp_path.iterdir()] == ["warehouse"]


@pytest.mark.slow
def test_targets(filled: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    export(filled, tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    for name in ("empty", "file"):
        with pytest.raises(InputError, match="exists and is not an empty folder"):
            export(filled, tmp_path / name)
    with pytest.raises(InputError, match="cannot write"):
        export(filled, tmp_path / "file" / "below")
    assert export(filled, tmp_path / "it's" / "new").tables


@pytest.mark.slow
def test_more_partitions_than_open_files(warehouse: Warehouse, tmp_path: Path) -> None:
    n = 300
    with warehouse.transaction("many"):
        warehouse.connection.execute(
            "INSERT INTO docs BY NAME SELECT 'b' AS benchmark, 't' || (i % 3) AS task, i // 3 AS doc_id, "
            f"'train' AS split FROM range({3 * n}) AS r(i)"
        )
        warehouse.connection.execute(
            "INSERT INTO models BY NAME SELECT 'm' || i AS model FROM range(150) r(i)"
        )
        warehouse.connection.execute(
            "INSERT INTO choice_logprobs BY NAME SELECT 'b' AS benchmark, 't' || (i % 3) AS task, "
            f"(i // 3) % {n} AS doc_id, 'm' || (i // {3 * n}) AS model, 0 AS choice, i AS logprob "
            f"FROM range({150 * 3 * n}) AS r(i) ORDER BY hash(i)"
        )
    report = export(warehouse, tmp_path / "out", tables=["choice_logprobs"])
    assert report.tables[0].rows == 150 * 3 * n
    assert len(list((tmp_path / "out/choice_logprobs/benchmark=b").iterdir())) == 3
    counted = read(tmp_path / "out", "choice_logprobs").aggregate(
        "count(*), count(DISTINCT logprob), count(DISTINCT (task, model))"
    )
    assert counted.fetchall() == [(150 * 3 * n, 150 * 3 * n, 450)]


@pytest.mark.parametrize("format", ["datasets"])
def test_datasets_loads_it(filled: Warehouse, tmp_path: Path, format: Format) -> None:
    report = export(filled, tmp_path / "out", format=format)
    reader = (
        "import json, sys\n"
        "from datasets import get_dataset_config_names, load_dataset\n"
        "path = sys.argv[1]\n"
        "default = load_dataset(path)\n"
        "found = {n: load_dataset(path, n) for n in get_dataset_config_names(path)}\n"
        "print(json.dumps([\n"
        "    {split: sorted(zip(rows['task'], rows['doc_id'])) for split, rows in default.items()},\n"
        "    {n: sum(map(len, d.values())) for n, d in found.items()},\n"
        "    found['choice_logprobs']['train'][0]['logprob'],\n"
        "]))\n"
    )
    env = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", reader, str(report.path)],
        capture_output=True,
        text=True,
        env=env,
        cwd=tmp_path,
        check=True,
    )
    documents, counts, logprob = json.loads(done.stdout.splitlines()[-1])
    for split in ("train", "test"):
        expected = filled.rows("SELECT task, doc_id FROM docs WHERE split = ? ORDER BY ALL", [split])
        assert [tuple(row) for row in documents[split]] == expected
    assert counts == {t.table: t.rows for t in report.tables}
    assert logprob in {-1.0, -2.0, -3.0}


def test_from_python(filled: Warehouse) -> None:
    with rlfocal.open_warehouse(filled.location.directory, read_only=True) as opened:
        assert isinstance(opened, Warehouse)
        frame = opened.query(
            "SELECT model, accuracy FROM accuracy WHERE task = 't' AND benchmark = 'b'"
        ).to_pandas()
        assert sorted(frame["model"]) == ["m", "other"]
    with pytest.raises(AttributeError, match="no attribute 'warehouses'"):
        rlfocal.warehouses  # noqa: B018
    code = "import sys, rlfocal; assert 'duckdb' not in sys.modules and 'warehouse' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_command(filled: Warehouse, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFOCAL_WAREHOUSE", str(filled.location.directory))
    done = cli("export", "out")
    assert done.code == 0
    assert f"out, from snapshot {filled.snapshot()}:" in done.out
    assert "  docs: 30 rows, " in done.out
    assert "without the texts of 10 confidential documents" in done.out
    assert "choice_logprobs: done" in done.err
    again = cli("export", "out")
    assert again.code == 2
    assert "exists and is not an empty folder" in again.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("out",),
        ("--tables", "docs", "out"),
        ("tables", "--tables", "docs", "out"),
        ("out", "--format", "parquet", "--tables", "docs"),
    ],
)
def test_a_folder_alone_means_its_tables(
    filled: Warehouse, cli: Cli, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = cli("export", *arguments, "-w", str(filled.location.directory))
    assert done.code == 0, done.err
    assert (tmp_path / "out" / "docs").is_dir()


def test_help(cli: Cli) -> None:
    assert "tables" in cli("export", "--help").out
    assert "--format" in cli("export", "tables", "--help").out
    assert cli("export").code == 2
    assert cli("export", "--nonsense").code == 2

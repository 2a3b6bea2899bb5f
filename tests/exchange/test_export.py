"""What leaves the warehouse, read again by others and by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pytest
from support.cli import Cli
from support.rows import SCORES, answer_rows, choice_rows, docs, extraction, set_all

from rlfocal.base.errors import InputError
from rlfocal.exchange.exports import export
from rlfocal.exchange.imports.predictions import import_predictions
from warehouse import Warehouse, open_warehouse
from warehouse.integrity import TABLE_FOLDERS
from warehouse.writing import digest_runs

Fresh = Callable[[Path], Path]


ODD = "b=c, 100% é"  # a task whose name a folder cannot bear as it is


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Choices of two models, odd names of tasks, answers, GPQA, flagged documents; two runs."""
    with open_warehouse(tmp_path_factory.mktemp("filled") / "warehouse") as warehouse:
        for benchmark, task, model in [
            ("b", "t", "m"),
            ("b", "t", "other"),
            ("b", ODD, "m"),
            ("b", "01", "m"),
            ("gpqa@chat", "main", "m"),
            ("flagged", "t", "m"),
        ]:
            place = {"benchmark": benchmark, "task": task}
            texts = set_all(docs(5), **place, confidential=benchmark == "flagged")
            rows = set_all(choice_rows((SCORES * 3)[:5], model), **place, token_ids=[17, 4])
            warehouse.put_partition(texts, rows, extraction(model, n_docs=5) | place)
        place = {"benchmark": "answers"}
        given = set_all(docs(5), **place).drop_columns(["choices", "label"])
        passes: list[list[str | None]] = [
            ["yes", None],
            ["no", "no"],
            ["yes", "no"],
            [None, None],
            ["1", "2"],
        ]
        rows = set_all(answer_rows(passes), **place, text="It is 'so', \"they\" say")
        warehouse.put_partition(given, rows, extraction(n_docs=5) | place)
        with warehouse.transaction("runs"):
            runs = {"run_id": ["one", "both"], "task": ["*", "*"], "benchmark": ["b", "b"]}
            pools = pa.array([["m"], ["m", "other"]])
            warehouse.append("evaluations", pa.table(runs | {"models": pools}))
            warehouse.append(
                "decisions", pa.table(runs | {"task": ["t", "t"], "doc_id": [0, 0], "pool": pools})
            )
            digest_runs(warehouse.connection, "true")
        yield warehouse


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
    assert [name for name, share in told if share == 1] == list(TABLE_FOLDERS)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    with_rows = {t.table for t in report.tables}
    assert with_rows == set(TABLE_FOLDERS) - {
        *("prompts", "training_history", "corrections", "renames", "ruled_out", "traces", "promise_looks"),
        *("probe_answers", "probe_estimates"),
    }
    for written in report.tables:
        with_ids = (
            " LEFT JOIN (SELECT benchmark, task, doc_id, source_id FROM docs) USING (benchmark, task, doc_id)"
        )
        query = f"FROM {written.table}" + (with_ids if written.table == "decisions" else "")
        expected = in_order(filled.query(query))
        assert in_order(read(report.path, written.table).to_arrow_table()) == expected
        assert written.rows == len(expected)
        files = list((report.path / written.table).rglob("*.parquet"))
        assert (written.files, written.bytes) == (len(files), sum(f.stat().st_size for f in files))
    assert (report.path / "choice_logprobs/benchmark=b/task=t/model=other").is_dir()
    hive = pa.dataset.partitioning(flavor="hive")
    tasks = pa.dataset.dataset(report.path / "choice_logprobs", partitioning=hive).to_table()["task"]
    assert ODD in tasks.to_pylist()


def test_predictions_round_trip(filled: Warehouse, tmp_path: Path) -> None:
    kept = ("b", "answers", "flagged")
    report = export(filled, tmp_path / "out", format="predictions", benchmarks=kept, questions=True)
    assert {t.table: t.rows for t in report.tables} == {"docs": 25, "scores": 5 * 5 + 10, "models": 2}
    files = [tmp_path / "out" / name for name in ("docs.parquet", "scores.parquet")]
    with open_warehouse(tmp_path / "again") as again:
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
    for format in ("parquet", "predictions"):
        assert export(filled, tmp_path / format, format=format).withheld == 10
    out = tmp_path / "parquet"
    secret = "benchmark IN ('gpqa@chat', 'flagged')"
    text = "question IS NOT NULL OR choices IS NOT NULL OR gold IS NOT NULL"
    assert read(out, "docs").filter(secret).filter(text).fetchall() == []
    assert len(read(out, "docs").filter(secret).filter("label = 0")) == 10
    assert len(read(out, "docs").filter(f"NOT {secret}").filter("question IS NOT NULL")) == 20
    assert read(out, "choice_logprobs").filter(secret).filter("token_ids IS NOT NULL").fetchall() == []
    assert len(read(out, "choice_logprobs").filter(secret).filter("logprob < 0")) == 30
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
        ({"benchmarks": ["c"]}, "'c'"),
        ({"models": ["om"]}, "'om'"),
        ({"tables": ["doc"]}, "'docs'"),
        ({"tables": ["decisions"], "format": "predictions"}, "'decisions'"),
        ({"format": "csv"}, "'csv'"),
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


@pytest.mark.slow
def test_targets(filled: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="empty folder"):
        export(filled, tmp_path / "file")
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


def test_command(filled: Warehouse, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder alone means its tables."""
    monkeypatch.setenv("RLFOCAL_WAREHOUSE", str(filled.location.directory))
    assert cli("export", "tables", "--tables", "docs", "one").code == 0
    done = cli("export", "out")
    assert (done.code, "10 confidential" in done.out) == (0, True)
    assert cli("export", "out").code == 2

"""Opening, writing and travelling in time; the views' semantics."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from support.basics import run_python
from support.rows import SCORES, THREE, answer_rows, choice_rows, docs, extraction, set_all

from rlfocal.base.errors import InputError
from rlfocal.pool.specs import ModelSpec
from warehouse import Warehouse, open_warehouse
from warehouse.connecting import connect
from warehouse.locations import locate, may_exist, without_password
from warehouse.opening import SCHEMA_VERSION
from warehouse.writing import Partition

Fresh = Callable[[Path], Path]


@pytest.mark.usefixtures("made_anew")
def test_open_makes_it_once(tmp_path: Path) -> None:
    with open_warehouse(tmp_path / "w") as warehouse:
        first = warehouse.snapshot()
        assert warehouse.rows("SELECT version FROM schema_version") == [(SCHEMA_VERSION,)]
    with open_warehouse(tmp_path / "w") as warehouse:
        assert warehouse.snapshot() == first
        assert warehouse.fingerprints() == {}


@pytest.mark.parametrize(("given", "used"), [("1", 1), ("3,2", 3), ("", None), ("0", None), ("all", None)])
def test_queries_take_as_many_threads_as_everything_else(
    monkeypatch: pytest.MonkeyPatch, given: str, used: int | None
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    asked = "SELECT current_setting('threads')"
    with (
        connect(postgres=False) as ours,
        duckdb.connect() as own,
        connect(postgres=False, threads=2) as limited,
    ):
        counts = [each.execute(asked).fetchall()[0][0] for each in (ours, own, limited)]
    assert counts == [used or counts[1], counts[1], 2]


LOADED_BY_QUERIES = """
import sys
from warehouse import open_warehouse

with open_warehouse(sys.argv[1], read_only=True) as opened:
    before = set(sys.modules)
    opened.rows("SELECT ?, ?, ?", ["a", 1, [2.0]])
    opened.query("SELECT 1")
    print(sorted(set(sys.modules) - before))
"""


def test_queries_import_nothing(fresh: Fresh, tmp_path: Path) -> None:
    """DuckDB's own imports swallow a Ctrl-C: a command that was to end would go on, or wait for ever."""
    assert run_python("-c", LOADED_BY_QUERIES, fresh(tmp_path / "w")) == "[]\n"


@pytest.fixture(scope="module")
def places(fresh: Fresh, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse, and what is none."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "a_file").write_text("x")
    for name, file in (("other", "notes.txt"), ("garbage", "catalog.sqlite")):
        (folder / name).mkdir()
        (folder / name / file).write_text("not a database, but long enough to be read as one")
    fresh(folder / "good")
    (folder / "lake").mkdir()
    with connect(postgres=False) as connection:
        catalog = folder / "lake" / "catalog.sqlite"
        connection.execute(f"ATTACH 'ducklake:sqlite:{catalog}' AS x (DATA_PATH '{folder}/lake/data')")
        connection.execute("CREATE TABLE x.y (i INT)")
    return folder


@pytest.mark.parametrize(
    ("location", "options", "message"),
    [
        ("absent", {"create": False}, "no warehouse at"),
        ("absent", {"read_only": True}, "no warehouse at"),
        ("absent", {"snapshot": 1}, "no warehouse at"),
        ("a_file", {}, "is a file"),
        ("other", {}, "is not a warehouse: it holds 'notes.txt'"),
        ("garbage", {}, "is not a warehouse"),
        ("good", {"snapshot": 99}, "no snapshot 99"),
        ("good", {"snapshot": 0}, "no tables at snapshot 0"),
        ("lake", {}, "not an rlfocal warehouse"),
        ("s3://bucket/x", {}, "directory or a postgres"),
        ("ducklake:postgres:dbname=x", {}, "directory or a postgres"),
        ("Postgres:dbname=x", {}, "directory or a postgres"),
        ("postgres:dbname=x?date=/x", {}, "unknown option 'date'"),
    ],
)
def test_what_is_no_warehouse(places: Path, location: str, options: dict[str, Any], message: str) -> None:
    given = location if ":" in location else places / location
    before = sorted(places.rglob("*"))
    with pytest.raises(InputError, match=message):
        open_warehouse(given, **options)
    created = {p.name for p in set(places.rglob("*")) - set(before)}
    assert created <= {"catalog.sqlite-wal", "catalog.sqlite-shm"}


def test_a_catalogue_that_another_process_makes_meanwhile_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Path.iterdir

    def listed_later(folder: Path) -> Any:
        for suffix in ("", "-shm"):
            (folder / f"catalog.sqlite{suffix}").write_bytes(b"SQLite")
        return listed(folder)

    assert not may_exist(locate(tmp_path))
    monkeypatch.setattr(Path, "iterdir", listed_later)
    assert may_exist(locate(tmp_path))


def test_newer_schema_is_refused(warehouse: Warehouse) -> None:
    with warehouse.transaction("newer"):
        warehouse.append("schema_version", pa.table({"version": [SCHEMA_VERSION + 1]}))
    with pytest.raises(InputError, match="newer rlfocal"):
        open_warehouse(warehouse.location)


def test_a_warehouse_can_be_moved(tmp_path: Path) -> None:
    with open_warehouse(tmp_path / "here") as warehouse:
        warehouse.put_partition(docs(50), choice_rows(SCORES * 25), extraction())
    shutil.move(tmp_path / "here", tmp_path / "there")
    with open_warehouse(tmp_path / "there") as warehouse:
        assert warehouse.rows("SELECT count(*) FROM choice_logprobs") == [(150,)]
        warehouse.put_partition(docs(50), choice_rows(SCORES * 25, "n"), extraction("n"))
    assert not (tmp_path / "here").exists()


def test_passwords_are_hidden() -> None:
    assert without_password("dbname=x password=se'cret host=y") == "dbname=x password=*** host=y"
    assert without_password("postgresql://me:secret@db/x") == "postgresql://me:***@db/x"
    assert "secret" not in locate("postgres:dbname=x password=secret?data=/tmp/x").name


def test_a_failed_transaction_leaves_nothing(warehouse: Warehouse) -> None:
    before = warehouse.snapshot()
    with pytest.raises(duckdb.Error), warehouse.transaction("doomed"):  # noqa: PT012
        warehouse.append("models", pa.table({"model": ["m"]}))
        warehouse.append("models", pa.table({"no such column": ["m"]}))
    assert warehouse.rows("FROM models") == []
    assert warehouse.snapshot() == before
    with warehouse.transaction("a name for the snapshot"):
        warehouse.append("models", pa.table({"price": [1.5], "model": ["m"]}))
    assert warehouse.rows("SELECT model, hf_repo, price FROM models") == [("m", None, 1.5)]
    last = warehouse.rows(
        "SELECT commit_message FROM warehouse.snapshots() ORDER BY snapshot_id DESC LIMIT 1"
    )
    assert last == [("a name for the snapshot",)]


def test_append_needs_a_transaction(warehouse: Warehouse) -> None:
    with pytest.raises(RuntimeError, match="transaction"):
        warehouse.append("models", pa.table({"model": ["m"]}))


def test_read_only(empty_warehouse: Path) -> None:
    with open_warehouse(empty_warehouse, read_only=True) as warehouse:
        with pytest.raises(InputError, match="read-only"), warehouse.transaction("x"):
            pass
        with pytest.raises(duckdb.Error):
            warehouse.connection.execute("INSERT INTO models (model) VALUES ('m')")


def test_a_partition_with_a_changed_document_is_refused(warehouse: Warehouse) -> None:
    warehouse.put_partition(docs(3, [0, 1, 2]), choice_rows(THREE), extraction())
    before = warehouse.snapshot()
    with pytest.raises(InputError, match=r"document 1 of b/t differs .* label was 1, is 0"):
        warehouse.put_partition(docs(3, [0, 0, 2]), choice_rows(THREE, "n"), extraction("n"))
    assert warehouse.snapshot() == before
    assert warehouse.rows("SELECT DISTINCT model FROM choice_logprobs") == [("m",)]


def test_stray_rows_are_refused(warehouse: Warehouse) -> None:
    with pytest.raises(InputError, match="document 1, stands for no document"):
        warehouse.put_partition(docs(1), choice_rows(SCORES), extraction())
    with pytest.raises(InputError, match="none of the written partitions"):
        warehouse.put_partition(docs(2), choice_rows(SCORES, "other"), extraction())
    assert warehouse.rows("FROM docs") == []


def test_a_longer_listing_decides_the_split(warehouse: Warehouse) -> None:
    warehouse.put_partition(docs(5), choice_rows(THREE + SCORES), extraction())
    warehouse.put_partition(docs(10), choice_rows(SCORES * 5, "n"), extraction("n"))
    split = "SELECT split, count(*) FROM docs GROUP BY ALL ORDER BY ALL"
    assert warehouse.rows(split) == [("test", 2), ("train", 8)]
    warehouse.put_partition(docs(5), choice_rows(THREE + SCORES, "o"), extraction("o"))
    assert warehouse.rows(split) == [("test", 2), ("train", 8)]


def test_put_models(warehouse: Warehouse) -> None:
    specs = [ModelSpec(model=f"m{i}", hf_repo="r", params_b=1.0, price=float(i)) for i in range(3)]
    warehouse.put_models(specs)
    before = warehouse.snapshot()
    warehouse.put_models(specs)
    assert warehouse.snapshot() == before
    warehouse.put_models([specs[1].model_copy(update={"price": 9.0})])
    assert warehouse.rows("SELECT model, price, active_params_b FROM models ORDER BY ALL") == [
        ("m0", 0.0, None),
        ("m1", 9.0, None),
        ("m2", 2.0, None),
    ]


def test_what_is_known_of_models_benchmarks_and_tasks(warehouse: Warehouse) -> None:
    """A first write of documents names their task; later ones add what they know, and take nothing away."""
    [spec] = [ModelSpec(model="m", hf_repo="r", params_b=1.0, licence="Apache-2.0")]
    warehouse.put_partition(docs(2), choice_rows(SCORES), extraction())
    assert warehouse.rows("FROM benchmarks") == [("b", "choices", None, None, None)]
    task: dict[str, Any] = {"benchmark": "b", "task": "t"}
    facts: dict[str, list[dict[str, Any]]] = {}
    for known in ({"num_fewshot": 5, "dataset": "org/b"}, {"num_fewshot": None, "revision": "c0ffee"}):
        facts = {"benchmarks": [{"benchmark": "b", "licence": "MIT"}], "tasks": [task | known]}
        warehouse.put_models([spec], facts)
    before = warehouse.snapshot()
    warehouse.put_models([spec], facts)
    assert warehouse.snapshot() == before
    assert warehouse.rows("FROM benchmarks") == [("b", "choices", None, "MIT", None)]
    found = warehouse.rows("SELECT benchmark, task, num_fewshot, dataset, revision, tag FROM tasks")
    assert found == [("b", "t", 5, "org/b", "c0ffee", None)]
    assert warehouse.rows("SELECT model, licence FROM models") == [("m", "Apache-2.0")]


def test_time_travel(warehouse: Warehouse) -> None:
    warehouse.put_partition(docs(2), choice_rows(SCORES), extraction())
    then = warehouse.snapshot()
    warehouse.put_partition(docs(2), choice_rows([[-3.0, -1.0, -2.0]] * 2), extraction(fingerprint="g"))
    with open_warehouse(warehouse.location, snapshot=then) as earlier:
        assert earlier.snapshot() == then
        assert earlier.fingerprints() == {("m", "b", "t"): "f"}
        assert earlier.rows("SELECT prediction FROM predictions ORDER BY doc_id") == [(0,), (1,)]
    assert warehouse.rows("SELECT prediction FROM predictions") == [(1,), (1,)]


def test_choices(warehouse: Warehouse) -> None:
    # Long choices underflow exp(); a tie goes to the lowest index.
    scores = [[-2000.0, -2001.0, -2003.0], [-5.0, -1.0, -1.0], [-1.0, -9000.0, -9.0]]
    warehouse.put_partition(docs(3, [0, 2, 0]), choice_rows(scores), extraction(n_docs=3))
    found = warehouse.query("SELECT * FROM predictions ORDER BY doc_id").to_pydict()
    assert found["prediction"] == [0, 1, 0]
    assert found["correct"] == [True, False, True]
    weights = np.exp(np.array(scores) - np.max(scores, axis=1, keepdims=True))
    probs = weights / weights.sum(axis=1, keepdims=True)
    stored = warehouse.query("SELECT prob FROM choice_probs ORDER BY doc_id, choice")["prob"].to_numpy()
    np.testing.assert_allclose(stored.reshape(3, 3), probs, atol=1e-15)
    np.testing.assert_allclose(found["confidence"], probs.max(axis=1), atol=1e-15)
    (row,) = warehouse.rows("SELECT task, model, n, accuracy, stderr FROM accuracy")
    assert row[:3] == ("t", "m", 3)
    assert row[3] == pytest.approx(2 / 3)
    assert row[4] == pytest.approx(np.std([1, 0, 1], ddof=1) / 3**0.5)


def test_answers(warehouse: Warehouse) -> None:
    passes: list[list[str | None]] = [
        ["7", "18", "18", None],  # most passes
        ["7", "18", "18", "7"],  # a tie goes to the earliest pass
        [None, None, None, "18"],  # an answer beats none, however few gave it
        [None, None, None, None],
    ]
    documents = docs(4).drop_columns(["label", "gold"])
    documents = documents.append_column("gold", pa.array(["18"] * 4))
    warehouse.put_partition(documents, answer_rows(passes), extraction(n_docs=4))
    found = warehouse.query("SELECT * FROM predictions ORDER BY doc_id").to_pydict()
    assert found["answer"] == ["18", "7", "18", None]
    assert found["correct"] == [True, False, True, False]
    assert found["confidence"] == [0.5, 0.5, 0.25, None]
    assert found["prediction"] == [None] * 4
    assert warehouse.rows("SELECT answer, prob FROM answer_probs WHERE doc_id = 0 ORDER BY answer") == [
        ("18", 0.5),
        ("7", 0.25),
    ]
    assert warehouse.rows("SELECT n, accuracy, mean_over_tasks FROM benchmark_accuracy") == [(4, 0.5, 0.5)]


def test_progress_counts_tasks_that_are_done(warehouse: Warehouse) -> None:
    spent = {
        "extraction_id": "x",
        "n_docs": 10,
        "n_prompt_tokens": 60,
        "n_generated_tokens": 40,
        "fault": None,
    }
    done = [("m", "b", "t0", 2.0), ("m", "b", "t1", 6.0), ("n", "b", "t0", 1.0)]
    rows = [dict(zip(("model", "benchmark", "task", "seconds"), key, strict=True)) | spent for key in done]
    rows[2]["fault"] = "its rows count nowhere"
    with warehouse.transaction("fill"):
        warehouse.append("models", pa.table({"model": ["m", "n"]}))
        tasks = {"benchmark": ["b", "b", "b", "c"], "task": ["t0", "t1", "t2", "t0"]}
        warehouse.append("tasks", pa.table(tasks))
        warehouse.append("extractions", pa.Table.from_pylist(rows))
    shown = "SELECT * EXCLUDE (committed_at) FROM progress ORDER BY model, benchmark"
    assert warehouse.rows(shown) == [
        ("m", "b", 3, 2, 20, 200 / 8, 4.0),
        ("m", "c", 1, 0, 0, None, None),
        ("n", "b", 3, 0, 0, None, None),
        ("n", "c", 1, 0, 0, None, None),
    ]


class Statements:
    """A connection that counts the statements which pass through it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection, self.n = connection, 0

    def execute(self, sql: str, *given: Any) -> duckdb.DuckDBPyConnection:
        self.n += len(duckdb.extract_statements(sql))
        return self.connection.execute(sql, *given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


def answered(model: str, task: str) -> Partition:
    """A partition of choices, or of passes where the task's name says so."""
    rows = answer_rows([["1", "2"], ["3", "4"]], model) if "passes" in task else choice_rows(SCORES, model)
    given = docs(2).drop_columns(["choices", "label"]) if "passes" in task else docs(2)
    record = extraction(model) | {"task": task, "n_whole": 2}
    return Partition(set_all(given, task=task), set_all(rows, task=task), record)


def test_a_batch_equals_its_partitions_one_by_one(tmp_path: Path) -> None:
    """And takes as many statements, whatever their number."""
    tables = ("docs", "doc_digests", "tasks", "choice_logprobs", "answer_passes")
    names = [f"{kind}{i}" for kind in ("choices", "passes") for i in range(4)]
    contents, counts = [], []
    for size in (1, 2, 8):
        with open_warehouse(tmp_path / str(size)) as warehouse:
            before = warehouse.snapshot()
            for model in ("a", "b"):
                for start in range(0, 8, size):
                    counted = Statements(warehouse.connection)
                    warehouse.connection = counted  # type: ignore[assignment]
                    warehouse.put_partitions([answered(model, name) for name in names[start : start + size]])
                    warehouse.connection = counted.connection
            counts.append(counted.n)
            assert warehouse.snapshot() == before + 2 * 8 // size
            found = [warehouse.rows(f"FROM {table} ORDER BY ALL") for table in tables]
            contents.append(
                [*found, warehouse.rows("SELECT model, task, digest FROM extractions ORDER BY ALL")]
            )
    assert contents[0] == contents[1] == contents[2]
    assert None not in {digest for _, _, digest in contents[0][-1]}
    assert counts[0] <= counts[2] <= 60


def test_a_batch_with_a_wrong_partition_writes_nothing(warehouse: Warehouse) -> None:
    warehouse.put_partitions([answered("a", "t"), answered("a", "u")])
    bare, other = answered("b", "t"), answered("b", "u")
    with pytest.raises(InputError, match="different document set than b/u: document 0 has 0 rows"):
        warehouse.put_partitions([bare, other._replace(rows=other.rows.slice(0, 0))])
    relabelled = other._replace(docs=set_all(other.docs, label=2))
    with pytest.raises(InputError, match="document 0 of b/u differs"):
        warehouse.put_partitions([bare, relabelled])
    assert warehouse.rows("SELECT DISTINCT model FROM choice_logprobs") == [("a",)]
    warehouse.put_partitions([bare, relabelled._replace(replace_documents=True)])
    assert set(warehouse.fingerprints()) == {("a", "b", "t"), ("b", "b", "t"), ("b", "b", "u")}


def test_what_is_there_already_is_left_out_of_a_batch(warehouse: Warehouse) -> None:
    warehouse.put_partitions([answered("a", "t")])
    [(record,)] = warehouse.rows("SELECT extraction_id FROM extractions")
    written = warehouse.put_partitions(
        [answered("a", "t"), answered("a", "u")], unless=lambda key, there: there is not None
    )
    assert written == {("a", "b", "u")}
    assert warehouse.rows("SELECT extraction_id FROM extractions WHERE task = 't'") == [(record,)]


METADATA = "__ducklake_metadata_warehouse"


def test_a_table_without_rows_is_looked_up_once_a_query(place: str) -> None:
    """DuckLake looks for absent statistics once for each column, which takes most of a query's time."""
    with open_warehouse(place) as warehouse:
        warehouse.rows("CALL enable_logging('QueryLog')")
        warehouse.rows("SELECT * FROM evaluations")
        warehouse.rows("CALL disable_logging()")
        [(asked,)] = warehouse.rows(
            "SELECT count(*) FROM duckdb_logs WHERE message LIKE '%ducklake_table_column_stats%'"
        )
    assert asked <= 2


@pytest.mark.parametrize("table", ["models", "decisions"])  # with floats, and with lists of structs
def test_statistics_of_written_tables_are_ducklakes_own(place: str, table: str) -> None:
    rows = {
        "models": "SELECT 'm' AS model, NULL AS family, 1.5 AS params_b, 'nan'::DOUBLE AS price",
        "decisions": "SELECT 'r' AS run_id, 'b' AS benchmark, 't' AS task, 7 AS doc_id, NULL AS pool",
    }
    statistics = f"""
        SELECT column_name, column_stats.* EXCLUDE (table_id, column_id), table_stats.* EXCLUDE (table_id)
        FROM {METADATA}.ducklake_table_column_stats AS column_stats
        JOIN {METADATA}.ducklake_column USING (table_id, column_id)
        JOIN {METADATA}.ducklake_table_stats AS table_stats USING (table_id)
        JOIN {METADATA}.ducklake_table USING (table_id)
        WHERE table_name = ? ORDER BY ALL
    """
    with open_warehouse(place) as warehouse:
        warehouse.connection.execute(f"CREATE TABLE warehouse.plain AS FROM {table} WITH NO DATA")
        for name in (table, "plain"):
            for _ in range(2):
                warehouse.connection.execute(f"INSERT INTO {name} BY NAME {rows[table]}")
        ours, plain = (warehouse.rows(statistics, [name]) for name in (table, "plain"))
        nulls = f"SELECT count(*) FROM {table} WHERE {'family' if table == 'models' else 'pool'} IS NULL"
        assert warehouse.rows(nulls) == [(2,)]
    assert ours == plain
    assert ours

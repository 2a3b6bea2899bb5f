"""A warehouse whose files are in an object store: moto's S3 server, with the catalogue in a real Postgres."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from support import s3_server
from support.postgres_server import PostgresServer
from support.rows import SCORES, choice_rows, docs, extraction
from typer.testing import CliRunner

from rlfocal.base.errors import InputError, RunError
from rlfocal.cli.app import app
from rlfocal.exchange.exports import export
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.exchange.sql import run_sql
from warehouse import Warehouse, open_warehouse
from warehouse.connecting import connect
from warehouse.expiry import orphans
from warehouse.integrity import examine, repair
from warehouse.object_store import use_object_store
from warehouse.snapshots import diff

N = 40
ROWS = {
    "docs": "SELECT * FROM docs ORDER BY ALL",
    "choice_logprobs": "SELECT * FROM choice_logprobs ORDER BY ALL",
    "digests": "SELECT model, benchmark, task, n_docs, digest FROM extractions ORDER BY ALL",
    "accuracy": "SELECT * FROM accuracy ORDER BY ALL",
    "pools": "SELECT * FROM all_pools('b', 2) ORDER BY ALL",
}


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with s3_server.running() as url:
        yield url


@pytest.fixture
def lake(s3: str, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new warehouse's address, with credentials in the environment and an empty home."""
    for name, value in (s3_server.KEYS | {"AWS_ENDPOINT_URL": s3}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    return f"{postgres.database()}?data=s3://{s3_server.BUCKET}/{tmp_path.name}"


def put(warehouse: Warehouse, model: str, shift: float = 0.0) -> int:
    scores = [[s + shift * c for c, s in enumerate(row)] for row in SCORES * (N // 2)]
    warehouse.put_partition(docs(N), choice_rows(scores, model), extraction(model, f"{shift}", N))
    return warehouse.snapshot()


def contents(warehouse: Warehouse) -> dict[str, list[tuple[object, ...]]]:
    return {name: warehouse.rows(query) for name, query in ROWS.items()}


@pytest.mark.slow
def test_what_a_warehouse_on_disk_can_do(lake: str, tmp_path: Path) -> None:
    """Import, SQL, doctor, compact, expire, export: all as in a directory."""
    with open_warehouse(tmp_path / "w") as local:
        put(local, "m")
        put(local, "n", 1.0)
        export(local, tmp_path / "out", format="predictions")
    for place in (lake, str(tmp_path / "local")):
        with open_warehouse(place) as warehouse:
            import_predictions(warehouse, tmp_path / "out/docs.parquet", tmp_path / "out/scores.parquet")
    address = lake.partition("?")[0]  # the catalogue knows where the files are
    with open_warehouse(address) as warehouse, open_warehouse(tmp_path / "local") as local:
        assert contents(warehouse) == contents(local)
        before, after = warehouse.snapshot(), put(warehouse, "n", 2.0)
        warehouse.connection.execute(
            f"COPY (SELECT 1 AS x) TO '{warehouse.data_path()}main/docs/stray.parquet'"
        )
        assert [path.rpartition("/")[2] for path in orphans(warehouse)] == ["stray.parquet"]
        assert repair(warehouse).deleted == 1
        assert examine(warehouse).is_sound
        expected = contents(warehouse)
    assert [change.change for change in diff(address, before, after).partitions] == ["replaced"]
    run = CliRunner().invoke
    for command in (["doctor"], ["compact"], ["expire", "--keep", "1", "--yes"], ["snapshots"]):
        result = run(app, [*command, "-w", address])
        assert result.exit_code == 0, result.output
        assert not any(secret in result.output for secret in s3_server.KEYS.values() if secret != "us-east-1")
    with open_warehouse(address, read_only=True) as warehouse:
        assert contents(warehouse) == expected
        assert examine(warehouse).orphans == ()
    assert run_sql(address, "SELECT n FROM accuracy WHERE model = 'm'", "csv") == f"n\n{N}"
    assert run(app, ["export", str(tmp_path / "all"), "-w", address]).exit_code == 0
    assert duckdb.sql(f"FROM read_parquet('{tmp_path}/all/docs/**/*.parquet')").fetchall()


def test_no_query_shows_the_keys(lake: str, postgres: PostgresServer) -> None:
    with open_warehouse(lake) as warehouse:
        put(warehouse, "m")
        [secret] = warehouse.rows("FROM duckdb_secrets()")
        assert s3_server.KEYS["AWS_SECRET_ACCESS_KEY"] not in str(secret)
    for name in ("s3_secret_access_key", "s3_access_key_id", "s3_session_token"):
        assert run_sql(lake, f"SELECT current_setting('{name}') AS value", "csv") == 'value\n""'
    with pytest.raises(InputError, match="reads the warehouse only"):
        run_sql(lake, "FROM read_parquet('s3://lake/**')")
    # Nothing of the environment reaches the catalogue.
    address = lake.partition("?")[0]
    for table in ("ducklake_metadata", "ducklake_snapshot_changes"):
        assert "only-for-tests" not in "".join(postgres.ask(address, f"SELECT * FROM {table}"))


@pytest.mark.slow
def test_a_secret_of_duckdb_s_own_comes_before_the_environment(
    lake: str, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ", ".join((
        "TYPE s3", "KEY_ID 'a'", "SECRET 'b'", f"ENDPOINT '{s3.removeprefix('http://')}'", "USE_SSL false",
        "URL_STYLE 'path'", f"SCOPE 's3://{s3_server.BUCKET}'",
    ))  # fmt: skip
    with closing(connect(postgres=True)) as anyone:
        anyone.execute(f"CREATE PERSISTENT SECRET mine ({options})")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with open_warehouse(lake) as warehouse:
        put(warehouse, "m")
        assert warehouse.rows("SELECT name FROM duckdb_secrets()") == [("mine",)]


@pytest.mark.parametrize(
    ("data", "endpoint", "expected"),
    [
        (
            "gs://bucket/lake",
            None,
            "type=gcs;provider=config;serializable=true;scope=gs://;key_id=reader-of-lakes",
        ),
        (
            "r2://bucket/lake",
            "https://x.r2.cloudflarestorage.com",
            "type=r2;provider=config;serializable=true;sc",
        ),
        ("s3://bucket/lake", "https://x.example:9000", "endpoint=x.example:9000;"),
    ],
)
def test_secrets_of_other_stores(
    data: str, endpoint: str | None, expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    for name, value in (s3_server.KEYS | {"AWS_ENDPOINT_URL": endpoint or ""}).items():
        monkeypatch.setenv(name, value)
    with closing(connect(postgres=True)) as connection:
        use_object_store(connection, data)
        [(made, persistent)] = connection.execute(
            "SELECT secret_string, persistent FROM duckdb_secrets()"
        ).fetchall()
        assert expected in made
        assert not persistent
        assert ("url_style=path" in made) == (endpoint is not None)


def test_a_store_that_refuses_is_named(lake: str) -> None:
    with (
        open_warehouse(lake.replace("s3://lake/", "s3://no-such-bucket/")) as warehouse,
        pytest.raises(RunError, match=r"s3://no-such-bucket/.*does not exist.*AWS_ACCESS_KEY_ID"),
    ):
        put(warehouse, "m")


@pytest.mark.slow
def test_a_killed_import_resumes(lake: str, tmp_path: Path) -> None:
    with open_warehouse(tmp_path / "w") as local:
        put(local, "m")
        export(local, tmp_path / "out", format="predictions")
        expected = contents(local)["accuracy"]
    files = [f"--{name}={tmp_path}/out/{name}.parquet" for name in ("docs", "scores")]
    command = ["import", "predictions", *files, "-w", lake]
    # Dies after its first file is in the bucket, before the commit.
    dying = (
        "import os; from warehouse import writing; from rlfocal.cli import main\n"
        "writing.put_partitions = lambda *_: os.kill(os.getpid(), 9); main()"
    )
    assert subprocess.run([sys.executable, "-c", dying, *command], check=False).returncode == -9
    with open_warehouse(lake) as warehouse:
        assert warehouse.rows("FROM docs") == []
        assert repair(warehouse).deleted == 1
    assert CliRunner().invoke(app, command).exit_code == 0
    with open_warehouse(lake) as warehouse:
        assert contents(warehouse)["accuracy"] == expected
        assert examine(warehouse).is_sound

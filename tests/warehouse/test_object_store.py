"""A warehouse whose files are in an object store: moto's S3 server, with the catalogue in a real Postgres."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from support import s3_server
from support.postgres_server import PostgresServer
from support.rows import put_answers
from support.rows import put_shifted as put
from support.servers import free_port
from typer.testing import CliRunner

from rlfocal.base.errors import InputError, RunError
from rlfocal.cli.app import app
from rlfocal.exchange.exports import export
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.exchange.sql import run_sql
from warehouse import Warehouse, open_warehouse
from warehouse.connecting import connect, use_object_store
from warehouse.expiry import find_orphans
from warehouse.integrity import examine, repair
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
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """How many requests the server answers of each session token; of others, any number."""
    file = tmp_path_factory.mktemp("tokens") / "lasting.json"
    file.write_text("{}")
    return file


@pytest.fixture(scope="module")
def s3(lasting: Path) -> Iterator[str]:
    with s3_server.running(lasting) as url:
        yield url


@pytest.fixture
def lake(s3: str, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new warehouse's address, with credentials in the environment and an empty home."""
    for name, value in (s3_server.KEYS | {"AWS_ENDPOINT_URL": s3}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    return f"{postgres.database()}?data=s3://{s3_server.BUCKET}/{tmp_path.name}"


def contents(warehouse: Warehouse) -> dict[str, list[tuple[object, ...]]]:
    return {name: warehouse.rows(query) for name, query in ROWS.items()}


@pytest.mark.slow
def test_what_a_warehouse_on_disk_can_do(lake: str, tmp_path: Path) -> None:
    """Import, SQL, doctor, compact, export: all as in a directory."""
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
        assert [path.rpartition("/")[2] for path in find_orphans(warehouse)] == ["stray.parquet"]
        assert repair(warehouse).deleted == 1
        assert examine(warehouse).is_sound
        expected = contents(warehouse)
    assert [change.change for change in diff(address, before, after).partitions] == ["replaced"]
    run = CliRunner().invoke
    for command in (["doctor"], ["compact"], ["compact", "--keep", "1", "--yes"], ["snapshots"]):
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
        ("gs://bucket/lake", None, "type=gcs;"),
        ("r2://bucket/lake", "https://x.r2.cloudflarestorage.com", "type=r2;"),
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
        expected = [row[:-1] for row in contents(local)["accuracy"]]
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
        # An import counts ties, which this table of another's choices left unknown.
        assert [row[:-1] for row in contents(warehouse)["accuracy"]] == expected
        assert examine(warehouse).is_sound


def from_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Session tokens as whoever renews them sets them; returns how to renew, which names the old ones."""
    issued = [f"{folder.name}-0"]
    monkeypatch.setenv("AWS_SESSION_TOKEN", issued[-1])

    def renew() -> list[str]:
        old = list(issued)
        issued.append(f"{folder.name}-{len(issued)}")
        monkeypatch.setenv("AWS_SESSION_TOKEN", issued[-1])
        return old

    return renew


def from_a_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Session tokens of a profile's process, which gives another one each time it is asked."""
    issued = folder / "issued"
    issued.touch()
    keys = {"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "b", "Expiration": "2100-01-01T00:00:00Z"}
    script = folder / "issue.py"
    script.write_text(
        "import json\nfrom pathlib import Path\nfrom uuid import uuid4\n"
        f"token, issued = uuid4().hex, Path({str(issued)!r})\n"
        "issued.open('a').write(token + '\\n')\n"
        f"print(json.dumps({keys!r} | {{'SessionToken': token}}))\n"
    )
    config = folder / "config"
    config.write_text(f"[default]\nregion = us-east-1\ncredential_process = {sys.executable} {script}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    return lambda: issued.read_text().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("begin", [from_the_environment, from_a_process])
def test_one_connection_outlives_its_tokens(
    lake: str,
    lasting: Path,
    begin: Callable[[Path, pytest.MonkeyPatch], Callable[[], list[str]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    renew = begin(tmp_path, monkeypatch)

    def expire() -> None:
        lasting.write_text(json.dumps(dict.fromkeys(renew(), 0)))

    with open_warehouse(lake) as warehouse:
        put(warehouse, "m")
        for n in range(1, 4):
            expire()
            put(warehouse, f"m{n}")
        expire()
        counts = "SELECT model, count(*), sum(logprob) FROM choice_logprobs GROUP BY model ORDER BY model"
        assert [row[:2] for row in warehouse.rows(counts)] == [(m, 3 * N) for m in ("m", "m1", "m2", "m3")]
        expire()
        with warehouse.hold_snapshot():
            assert warehouse.columns("SELECT count(*) AS n FROM docs")["n"].tolist() == [N]
        expire()
        assert examine(warehouse).is_sound
        assert {made for _, made in warehouse.rows("SELECT name, persistent FROM duckdb_secrets()")} == {
            False
        }
    with open_warehouse(lake.partition("?")[0]) as warehouse:
        assert examine(warehouse) == examine(warehouse)
        assert examine(warehouse).orphans == ()


@pytest.mark.slow
def test_a_write_whose_token_expires_lands_whole_or_not_at_all(
    lake: str, lasting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_warehouse(lake) as warehouse:
        put_answers(warehouse, [["4"]] * N, ["four"] * N)
        stored = ("FROM docs ORDER BY ALL", "FROM answer_passes", "FROM choice_logprobs", ROWS["digests"])
        before, refused = [warehouse.rows(query) for query in stored], list[str]()
        for requests in range(10):
            token = f"{tmp_path.name}-{requests}"
            lasting.write_text(json.dumps({token: requests}))
            monkeypatch.setenv("AWS_SESSION_TOKEN", token)
            try:
                put(warehouse, "m")
                break
            except RunError as error:
                refused.append(str(error))
            monkeypatch.setenv("AWS_SESSION_TOKEN", "lasts")
            assert [warehouse.rows(query) for query in stored] == before
        assert len(refused) > 1
        assert all("ExpiredToken" in said and "AWS_SESSION_TOKEN" in said for said in refused)
        monkeypatch.setenv("AWS_SESSION_TOKEN", "lasts")
        assert repair(warehouse).files == ()
        assert examine(warehouse).is_sound
        assert warehouse.rows("SELECT benchmark, n FROM accuracy ORDER BY ALL") == [("answers", N), ("b", N)]


@pytest.mark.parametrize("refusal", ["expired", pytest.param("away", marks=pytest.mark.slow)])
def test_a_store_that_refuses_loses_nothing_to_a_repair(
    refusal: str, lake: str, lasting: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_warehouse(lake) as warehouse:
        put(warehouse, "m")
        expected = contents(warehouse)
    with monkeypatch.context() as away:
        if refusal == "expired":
            lasting.write_text(json.dumps({tmp_path.name: 0}))
            away.setenv("AWS_SESSION_TOKEN", tmp_path.name)
        else:
            away.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
        result = CliRunner().invoke(app, ["doctor", "--repair", "-w", lake])
        assert result.exit_code == 1
        assert "AWS_SESSION_TOKEN" in result.output
        assert "damaged" not in result.output
        reads = CliRunner().invoke(app, ["sql", "FROM choice_logprobs", "-w", lake])
        assert reads.exit_code != 0
        assert "--repair" not in reads.output
    with open_warehouse(lake) as warehouse:
        assert contents(warehouse) == expected


def test_credentials_that_cannot_be_renewed_are_named(
    lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_warehouse(lake) as warehouse:
        (tmp_path / "config").write_text("[default]\ncredential_process = false\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        with pytest.raises(RunError, match=r"no AWS credentials: .*log in again"):
            put(warehouse, "m")

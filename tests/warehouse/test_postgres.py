"""A Postgres catalogue: what is told without its password, moved data, files in an object store."""

from __future__ import annotations

import re
import traceback
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import fsspec
import pytest
from guide import GUIDE
from support.postgres_server import PostgresServer
from support.rows import put_shifted as put

from rlfocal.base.errors import InputError
from rlfocal.cli import main
from rlfocal.exchange.sql import run_sql
from warehouse import open_warehouse
from warehouse.connecting import OPTIONS_VARIABLE, connect
from warehouse.expiry import merge
from warehouse.integrity import examine, repair
from warehouse.snapshots import diff

N = 40


@pytest.mark.slow
def test_the_catalogue_knows_where_the_files_are(postgres: PostgresServer, tmp_path: Path) -> None:
    address = postgres.database()
    with pytest.raises(InputError, match=r"\?data=DIR") as refusal:
        open_warehouse(address)
    assert postgres.password not in str(refusal.value)
    with open_warehouse(f"{address}?data={tmp_path / 'here'}") as warehouse:
        before = put(warehouse, "m")
        after = put(warehouse, "m", 2.0)
    with open_warehouse(address) as warehouse:
        assert warehouse.rows("SELECT n FROM accuracy") == [(N,)]
        put(warehouse, "n")
        assert len(warehouse.rows("FROM all_pools('b', 2)")) == 1
    (change,) = diff(address, before, after).partitions
    assert change.change == "replaced"
    earlier = run_sql(address, "SELECT max(logprob) FROM choice_logprobs", "csv", snapshot=before)
    assert earlier != run_sql(address, "SELECT max(logprob) FROM choice_logprobs", "csv", snapshot=after)
    (tmp_path / "here").rename(tmp_path / "there")
    with open_warehouse(f"{address}?data={tmp_path / 'there'}", read_only=True) as moved:
        assert examine(moved).is_sound


def test_no_message_shows_the_password(
    postgres: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address = postgres.database()
    password = postgres.password
    closed = re.sub(r":\d+/", ":1/", address)
    dsn = f"postgres:dbname=lake0 user=lake password={password} host=127.0.0.1 port=1"
    for place in (closed, dsn, address.replace(password, f"{password}x")):
        for command in (["sql", "FROM models"], ["doctor"], ["compact", "--keep", "1"]):
            monkeypatch.setattr("sys.argv", ["rlfocal", *command, "-w", f"{place}?data={tmp_path}"])
            with pytest.raises(SystemExit) as stop:
                main()
            assert stop.value.code in (1, 2)
            told = "".join(capsys.readouterr())
            assert "cannot open warehouse" in told
            assert password not in told
        with pytest.raises(InputError) as refusal:
            open_warehouse(f"{place}?data={tmp_path}")
        assert password not in "".join(traceback.format_exception(refusal.value))


def test_sql_shows_neither_the_password_nor_other_tables(postgres: PostgresServer, tmp_path: Path) -> None:
    place = f"{postgres.database()}?data={tmp_path / 'data'}"
    with open_warehouse(place) as warehouse:
        put(warehouse, "m")
    for statement in (
        "FROM duckdb_databases",
        "FROM pragma_database_list",
        "FROM __ducklake_metadata_warehouse.pg_catalog.pg_authid",
        'DESCRIBE "__DUCKLAKE_METADATA_WAREHOUSE".pg_catalog.pg_authid',
    ):
        with pytest.raises(InputError, match="is refused: `rlfocal sql` reads the warehouse only"):
            run_sql(place, statement)


def test_the_guide_s_attach(postgres: PostgresServer, tmp_path: Path) -> None:
    """What the SQL guide tells other clients to run, with the server's address where it has dots."""
    address = postgres.database()
    with open_warehouse(f"{address}?data={tmp_path / 'data'}") as warehouse:
        put(warehouse, "m")
        put(warehouse, "n", 1.0)
    told = re.search(
        r"ATTACH 'ducklake:postgres:dbname=\.\.\. host=\.\.\.' .*?;.*?;", GUIDE.read_text("utf-8")
    )
    assert told is not None
    url = urlsplit(address)
    name, host = f"dbname={url.path[1:]}", f"host={url.hostname} port={url.port} user={url.username}"
    statements = told[0].replace("dbname=...", name).replace("host=...", f"{host} password={url.password}")
    with closing(connect(postgres=True)) as client:
        client.execute(statements)
        assert client.execute("SELECT size FROM all_pools('b', 2)").fetchall() == [(2,)]


@pytest.mark.slow
def test_an_object_store(postgres: PostgresServer) -> None:
    """fsspec's store in memory stands for the others, which speak through the same interface."""
    address = postgres.database()
    store = fsspec.filesystem("memory")
    with open_warehouse(f"{address}?data=memory://lake") as warehouse:
        put(warehouse, "m")
        put(warehouse, "n")
        put(warehouse, "m", 1.0)
    with open_warehouse(address) as warehouse:
        assert [n for (n,) in warehouse.rows("SELECT n FROM accuracy")] == [N, N]
        found = examine(warehouse)
        assert found.is_sound
        assert found.orphans == ()
        stored = [path for path in store.find("/lake") if "choice" in path]
        store.copy(stored[0], "/lake/main/docs/stray.parquet")
        assert len(examine(warehouse).orphans) == 1
        assert repair(warehouse).deleted == 1
        merge(warehouse)
        assert examine(warehouse).is_sound
    assert "m" in run_sql(address, "SELECT model FROM accuracy")
    store.rm([path for path in store.find("/lake") if "choice" in path])
    with open_warehouse(address, read_only=True) as warehouse:
        assert {file.table for file in examine(warehouse).current_files} == {"choice_logprobs"}


def test_an_object_store_that_cannot_be_reached(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="files cannot be at nowhere://lake: Protocol not known"):
        open_warehouse(f"{postgres.database()}?data=nowhere://lake")
    monkeypatch.setenv(OPTIONS_VARIABLE, "key=secret")
    with pytest.raises(InputError, match="RLFOCAL_STORAGE_OPTIONS is not a JSON object") as refusal:
        open_warehouse(f"{postgres.database()}?data=memory://lake")
    assert "secret" not in str(refusal.value)

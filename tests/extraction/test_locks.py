"""Locks of a warehouse, as files and in a real Postgres: one holder at a time, and none that is gone."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from support.postgres_server import DIRECTORY_FIRST, POSTGRES_FIRST, PostgresServer

from warehouse import Warehouse, open_warehouse
from warehouse.connecting import METADATA

HOLDER = """
import sys, time
from warehouse import open_warehouse

with open_warehouse(sys.argv[1]) as warehouse:
    print("open", flush=True)
    with warehouse.lock(sys.argv[2], wait=True) as mine:
        print(mine, flush=True)
        time.sleep(600)
"""
SESSION = "SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"


@contextmanager
def holder(place: str, name: str = "a") -> Iterator[subprocess.Popen[str]]:
    """A process that has the warehouse open and takes, or waits for, its lock `name`."""
    command = [sys.executable, "-c", HOLDER, place, name]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert next_line(process) == "open"
        yield process
    finally:
        process.kill()
        process.communicate()


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def is_free(warehouse: Warehouse, name: str = "a") -> bool:
    with warehouse.lock(name, wait=False) as mine:
        return mine


@DIRECTORY_FIRST
def test_one_holder_at_a_time(place: str) -> None:
    order: list[str] = []

    def second() -> None:
        with open_warehouse(place) as other, other.lock("a", wait=True) as mine:
            assert mine
            order.append("second")

    with open_warehouse(place) as warehouse, open_warehouse(place) as other:
        with warehouse.lock("a", wait=True) as mine:
            assert mine
            assert not is_free(other)
            assert not is_free(warehouse), "it is not reentrant"
            assert is_free(other, "A")
            waiting = threading.Thread(target=second)
            waiting.start()
            waiting.join(3)
            order.append("first")
        waiting.join(60)
        assert order == ["first", "second"]
        assert is_free(other)
        with pytest.raises(ZeroDivisionError), warehouse.lock("a", wait=True):
            raise ZeroDivisionError
        assert is_free(other)
        if warehouse.location.directory is not None:
            assert list((warehouse.location.directory / "locks").iterdir()) == []
    with open_warehouse(place, read_only=True) as reader:
        assert is_free(reader)


@DIRECTORY_FIRST
def test_locks_of_different_names_are_independent(place: str) -> None:
    """Its holder and others commit and read meanwhile, however long it is held."""
    with open_warehouse(place) as warehouse, open_warehouse(place) as other:
        with warehouse.lock("a", wait=True):
            for writer in (warehouse, other):
                with writer.transaction("models"):
                    writer.append("models", pa.table({"model": ["m"]}))
        assert other.rows("SELECT count(*) FROM models") == [(2,)]


@POSTGRES_FIRST
def test_a_killed_process_releases_its_lock(place: str) -> None:
    with open_warehouse(place) as warehouse, holder(place) as process:
        assert next_line(process) == "True"
        assert not is_free(warehouse)
        process.kill()
        started = time.monotonic()
        with warehouse.lock("a", wait=True) as mine:
            assert mine
        assert time.monotonic() - started < 5


@DIRECTORY_FIRST
def test_ctrl_c_ends_the_wait(place: str) -> None:
    with open_warehouse(place) as warehouse, warehouse.lock("a", wait=True), holder(place) as process:
        time.sleep(1)
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        # DuckDB makes a RuntimeError of one that comes while it asks.
        assert process.wait(30) in (-signal.SIGINT, 1)
        assert time.monotonic() - started < 5


@pytest.mark.slow
def test_databases_of_one_server_have_locks_of_their_own(postgres: PostgresServer, tmp_path: Path) -> None:
    with (
        open_warehouse(f"{postgres.database()}?data={tmp_path / 'a'}") as warehouse,
        open_warehouse(f"{postgres.database()}?data={tmp_path / 'b'}") as other,
        warehouse.lock("a", wait=True),
    ):
        assert is_free(other)


@pytest.mark.slow
def test_a_session_is_as_long_as_its_lock(postgres: PostgresServer, tmp_path: Path) -> None:
    """It outlives the database's time limits, holds back no VACUUM, and soon sees that a host is gone."""
    address = postgres.database()
    name = address.rsplit("/", 1)[1]
    others = "pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"
    with open_warehouse(f"{address}?data={tmp_path / 'data'}") as warehouse:
        assert postgres.ask(address, f"SELECT pid FROM {others} AND state <> 'idle'") == []
    for limit in ("idle_in_transaction_session_timeout", "statement_timeout"):
        postgres.ask(address, f"ALTER DATABASE {name} SET {limit} = '5s'")
    with open_warehouse(address) as warehouse:
        with warehouse.lock("a", wait=True):
            snapshots = "(backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)"
            assert postgres.ask(address, f"SELECT pid FROM {others} AND {snapshots}") == []
            time.sleep(6)
            [pid] = postgres.ask(address, SESSION)
            port = f"SELECT client_port FROM {others} AND pid = {pid}"
            assert seconds_to_keepalive(postgres.port, int(postgres.ask(address, port)[0])) <= 30
            with open_warehouse(address) as other:
                assert not is_free(other)
        assert postgres.ask(address, SESSION) == []


def seconds_to_keepalive(server: int, client: int) -> float:
    """When the system asks next whether the client's host is there."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, remote, timer = (line.split()[i] for i in (1, 2, 5))
        if (int(local[9:], 16), int(remote[9:], 16)) == (server, client):
            kind, ticks = timer.split(":")
            assert kind == "02", "no keepalive"
            return int(ticks, 16) / 100
    raise AssertionError("no such connection")


def test_a_lost_session_is_a_lost_lock(postgres: PostgresServer, tmp_path: Path) -> None:
    """Its former holder goes on, and ends well."""
    address = postgres.database()
    with open_warehouse(f"{address}?data={tmp_path / 'data'}") as warehouse:
        with warehouse.lock("a", wait=True), open_warehouse(address) as other:
            [pid] = postgres.ask(address, SESSION)
            postgres.ask(address, f"SELECT pg_terminate_backend({pid}, 5000)")
            with other.lock("a", wait=False) as mine:
                assert mine
                warehouse.put_models([])
        assert is_free(warehouse)
        with warehouse.transaction("afterwards"):
            warehouse.append("models", pa.table({"model": ["m"]}))


@DIRECTORY_FIRST
def test_writers_take_turns(place: str) -> None:
    """Eight wait: each writes in the order in which it came, and waiters that were killed delay nobody."""
    with open_warehouse(place) as warehouse:
        with warehouse.lock("write", wait=True), ExitStack() as killed:
            writers = [threading.Thread(target=write, args=[place, at]) for at in range(8)]
            for at, writer in enumerate(writers):
                if at in (0, 4):
                    queue_up(warehouse, lambda: killed.enter_context(holder(place, "write")))
                queue_up(warehouse, writer.start)
        for writer in writers:
            writer.join(60)
        said = warehouse.rows("SELECT commit_message FROM warehouse.snapshots() ORDER BY snapshot_id")
        assert [message for (message,) in said[-8:]] == [f"writer {at}" for at in range(8)]
        if warehouse.location.directory is not None:
            assert list((warehouse.location.directory / "locks").iterdir()) == []


def queue_up(warehouse: Warehouse, come: Callable[[], object]) -> None:
    """Lets somebody come, and returns once it waits."""
    n = n_tickets(warehouse)
    come()
    deadline = time.monotonic() + 60
    while n_tickets(warehouse) == n:
        assert time.monotonic() < deadline, "it does not wait"
        time.sleep(0.01)


def n_tickets(warehouse: Warehouse) -> int:
    if warehouse.location.directory is not None:
        return len(list((warehouse.location.directory / "locks").glob("*.ticket")))
    tickets = "SELECT objid FROM pg_locks WHERE locktype = ''advisory'' AND objsubid = 2"
    return len(warehouse.rows(f"SELECT 1 FROM postgres_query('{METADATA}', '{tickets}')"))


def write(place: str, writer: int) -> None:
    with open_warehouse(place) as warehouse, warehouse.transaction(f"writer {writer}"):
        warehouse.append("models", pa.table({"model": [f"m{writer}"]}))

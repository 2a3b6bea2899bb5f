"""Many processes at one warehouse, in a directory and in a real Postgres, and the locks that they take."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.postgres_server import DIRECTORY_FIRST, POSTGRES_FIRST, PostgresServer
from support.rows import put_choices

from rlfocal.base.errors import InputError
from rlfocal.base.names import Protocol
from rlfocal.evaluation import evaluate, train
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.methods.learning.agents import TrainedAgents
from rlfocal.methods.trained import save_checkpoint
from warehouse import Warehouse, open_warehouse
from warehouse.connecting import METADATA_SCHEMA
from warehouse.snapshots import snapshots

N_DOCS = 40
N_IMPORTERS = 8


def write_files(folder: Path, models: list[str]) -> None:
    """docs.parquet, and MODEL.parquet for each model."""
    keys = {"benchmark": ["b"] * N_DOCS, "task": ["t"] * N_DOCS, "doc_id": range(N_DOCS)}
    pq.write_table(pa.table(keys | {"label": [i % 3 for i in range(N_DOCS)]}), folder / "docs.parquet")
    for place, model in enumerate(models):
        scores = [[float((i * 7 + c + place) % 5) for c in range(3)] for i in range(N_DOCS)]
        rows = keys | {"model": [model] * N_DOCS, "choice_logprobs": scores}
        pq.write_table(pa.table(rows), folder / f"{model}.parquet")


def import_models(location: str, folder: Path, models: list[str]) -> None:
    for model in models:
        with open_warehouse(location) as warehouse:
            import_predictions(warehouse, folder / "docs.parquet", folder / f"{model}.parquet")


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Processes that have the library imported already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "pyarrow.parquet", "rlfocal.exchange.imports.predictions"])
    return context


@pytest.mark.slow
def test_importers_at_once_while_one_reads(place: str, tmp_path: Path, processes: ForkServerContext) -> None:
    """From the first moment on, when there is no warehouse yet."""
    models = [f"m{i}" for i in range(N_IMPORTERS)]
    write_files(tmp_path, models)
    importers = [processes.Process(target=import_models, args=(place, tmp_path, [model])) for model in models]
    for importer in importers:
        importer.start()
    seen: list[int] = []
    while any(importer.is_alive() for importer in importers):
        try:
            reader = open_warehouse(place, read_only=True)
        except InputError:
            assert seen == [], "it was there already"
            continue
        with reader:
            counts = reader.rows("SELECT model, count(*) FROM choice_logprobs GROUP BY model")
            assert [n for _, n in counts] == [3 * N_DOCS] * len(counts)
            assert len(reader.fingerprints()) >= len(counts) >= max(seen, default=0)
        seen.append(len(counts))
    assert [importer.exitcode for importer in importers] == [0] * N_IMPORTERS
    assert len(set(seen)) > 2, "the reader saw nothing of it"
    with open_warehouse(place, read_only=True) as warehouse:
        assert {model for model, _, _ in warehouse.fingerprints()} == set(models)
        assert warehouse.rows("SELECT count(*) FROM docs") == [(N_DOCS,)]
        assert warehouse.rows("SELECT model FROM models ORDER BY 1") == [(model,) for model in models]
        distinct = "SELECT count(*), count(DISTINCT (model, doc_id, choice)) FROM choice_logprobs"
        assert warehouse.rows(distinct) == [(3 * N_DOCS * N_IMPORTERS,) * 2]


def test_a_reader_does_not_wait_for_a_writer(place: str) -> None:
    with open_warehouse(place) as writer:
        with writer.transaction("models"):
            writer.append("models", pa.table({"model": [f"m{i}" for i in range(20)]}))
            started = time.perf_counter()
            with open_warehouse(place, read_only=True) as reader:
                assert reader.rows("SELECT count(*) FROM models") == [(0,)]
            assert time.perf_counter() - started < 5
        assert writer.rows("SELECT count(*) FROM models") == [(20,)]


@pytest.mark.slow
def test_evaluations_at_once_fit_a_method_once(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`train`, too, leaves agents alone that an evaluation is training."""
    trained: list[Path] = []

    def save(agents: TrainedAgents, path: Path) -> None:
        trained.append(path)
        save_checkpoint(agents, path)

    monkeypatch.setattr("rlfocal.methods.trained.save_checkpoint", save)
    with open_warehouse(place) as warehouse:
        put_choices(warehouse, {m: [i % 5 != shift for i in range(80)] for shift, m in enumerate("abc")})

    def run(protocol: Protocol | None) -> int:
        with open_warehouse(place, read_only=protocol is None) as warehouse:
            if protocol is None:
                return train(warehouse, "b", method="rl_focal_sequential", seeds=2).trained
            return len(
                evaluate(warehouse, "b", methods=["rl_focal_sequential"], seeds=2, protocol=protocol).ran
            )

    with ThreadPoolExecutor() as threads:
        done = [*threads.map(run, ["frozen", "frozen", "online", None])]
    assert len(trained) == len(set(trained)) == 2
    with open_warehouse(place, read_only=True) as warehouse:
        [(stored, once)] = warehouse.rows(
            "SELECT count(*), count(DISTINCT run_id) FROM evaluations "
            "WHERE task = '*' AND protocol = 'frozen'"
        )
        assert stored == once == done[0] + done[1]
        runs = [s.message for s in snapshots(warehouse) if "rl_focal_sequential" in str(s.message)]
        assert len(runs) == 2, "one for each protocol, both seeds in it"


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
    return len(warehouse.rows(f"SELECT 1 FROM postgres_query('{METADATA_SCHEMA}', '{tickets}')"))


def write(place: str, writer: int) -> None:
    with open_warehouse(place) as warehouse, warehouse.transaction(f"writer {writer}"):
        warehouse.append("models", pa.table({"model": [f"m{writer}"]}))

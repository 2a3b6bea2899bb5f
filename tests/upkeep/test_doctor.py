"""Damage done to a warehouse on disk is found, told, and fixed as far as it can be."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import product
from pathlib import Path

import duckdb
import pytest
from support.postgres_server import POSTGRES_FIRST
from support.rows import SCORES, choice_rows, docs, extraction
from typer.testing import CliRunner

from rlfocal.cli.app import app
from rlfocal.upkeep.doctor import check_server, check_versions
from warehouse import Warehouse, open_warehouse
from warehouse.integrity import examine, repair
from warehouse.snapshots import snapshots

N = 50
MODELS = ("m0", "m1", "m2")


def fill(warehouse: Warehouse) -> None:
    for model in MODELS:
        put(warehouse, model)


def put(warehouse: Warehouse, model: str) -> None:
    scores = [[s + float(i) / 7 for i, s in enumerate(row)] for row in SCORES * (N // 2)]
    warehouse.put_partition(docs(N), choice_rows(scores, model), extraction(model, n_docs=N))


def files(warehouse: Warehouse, table: str) -> list[Path]:
    """Oldest first."""
    listed = warehouse.rows(f"SELECT data_file FROM ducklake_list_files('warehouse', '{table}')")
    return sorted(Path(path) for (path,) in listed)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled") / "w"
    with open_warehouse(path) as warehouse:
        fill(warehouse)
    return path


@pytest.fixture
def location(filled: Path, tmp_path: Path) -> Path:
    shutil.copytree(filled, tmp_path / "w")
    return tmp_path / "w"


def flip_values(path: Path) -> None:
    """Changes one bit of a stored number, such that the file can still be read in full."""
    content = path.read_bytes()
    read = "SELECT count(*), bit_xor(hash(COLUMNS(*))) FROM read_parquet(?)"
    connection = duckdb.connect()
    whole = connection.execute(read, [str(path)]).fetchone()
    middle = len(content) // 2
    for bit, place in product((1, 16), (*range(middle, 4, -1), *range(middle + 1, len(content) - 8))):
        path.write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
        try:
            if connection.execute(read, [str(path)]).fetchone() != whole:
                return
        except (duckdb.FatalException, duckdb.InternalException):  # which end a database
            connection = duckdb.connect()
        except duckdb.Error:
            continue
    raise AssertionError("every flip makes the file unreadable")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.unlink(), "is missing"),
        pytest.param(
            lambda path: path.write_bytes(path.read_bytes()[:-100]), "bytes, expected", marks=pytest.mark.slow
        ),
        pytest.param(
            lambda path: path.write_bytes(bytes(path.stat().st_size)),
            "cannot be read",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda path: shutil.copy(path.with_name("foreign"), path),
            "bytes, expected",
            marks=pytest.mark.slow,
        ),
        (flip_values, "altered after it was written|has (\\d+ )?rows of"),
    ],
    ids=["missing", "truncated", "zeros", "foreign", "flipped"],
)
def test_a_damaged_file_costs_its_partition_only(location: Path, damage: object, reason: str) -> None:
    assert callable(damage)
    with open_warehouse(location) as warehouse:
        then = warehouse.snapshot()
        victim = files(warehouse, "choice_logprobs")[1]
        shutil.copy(files(warehouse, "docs")[0], victim.with_name("foreign"))
    damage(victim)
    with open_warehouse(location, read_only=True) as warehouse:
        found = examine(warehouse)
        told = [file.reason for file in found.files] + [p.reason for p in found.partitions or ()]
        assert not found.is_sound
        assert len(told) == 1
        assert re.search(reason, told[0])
    with open_warehouse(location) as warehouse:
        assert [p.model for p in repair(warehouse).partitions] == ["m1"]
        assert examine(warehouse).is_sound
        assert {model for model, _, _ in warehouse.fingerprints()} == {"m0", "m2"}
        assert warehouse.rows("SELECT count(*) FROM choice_logprobs") == [(2 * 3 * N,)]
        assert warehouse.snapshot() > then
        assert snapshots(warehouse)[-1].message == "doctor: drop partitions that are not whole"


def test_what_is_repaired_is_sound_and_extracted_again(location: Path) -> None:
    with open_warehouse(location) as warehouse:
        assert examine(warehouse).is_sound
        files(warehouse, "choice_logprobs")[1].unlink()
        assert [p.model for p in repair(warehouse).partitions] == ["m1"]
        again = warehouse.snapshot()
        assert repair(warehouse) == ((), (), (), (), (), 0)
        assert warehouse.snapshot() == again
        put(warehouse, "m1")  # as the next extraction does
        assert examine(warehouse).is_sound
        assert len(warehouse.fingerprints()) == 3


def test_a_flipped_bit_shows(location: Path) -> None:
    """Or it changes nothing: bits of a Parquet file that no reader needs."""
    with open_warehouse(location) as warehouse:
        victim = files(warehouse, "choice_logprobs")[0]
        stored = warehouse.rows("FROM choice_logprobs ORDER BY ALL")
    content = victim.read_bytes()
    silent = 0
    for place in range(0, len(content), 499):
        victim.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
        with open_warehouse(location, read_only=True) as warehouse:
            if examine(warehouse).is_sound:
                assert warehouse.rows("FROM choice_logprobs ORDER BY ALL") == stored
                silent += 1
    assert silent < len(range(0, len(content), 499))


@pytest.mark.slow
def test_a_flipped_bit_of_a_document_shows(location: Path) -> None:
    with open_warehouse(location) as warehouse:
        (victim,) = files(warehouse, "docs")
    flip_values(victim)
    with open_warehouse(location, read_only=True) as warehouse:
        found = examine(warehouse)
        assert not found.is_sound
        assert all(task.is_other for task in found.tasks or ())
        assert ("b", "t") in {task[:2] for task in found.tasks or ()}
    with open_warehouse(location) as warehouse:
        done = repair(warehouse)
        assert "t" in {task.task for task in done.tasks}
        assert len(done.partitions) == len(MODELS)
        assert warehouse.rows("FROM docs") == []
        assert examine(warehouse).is_sound


def test_lost_documents_take_their_answers_along(location: Path) -> None:
    with open_warehouse(location) as warehouse:
        (victim,) = files(warehouse, "docs")
    victim.unlink()
    with open_warehouse(location) as warehouse:
        assert [file.table for file in repair(warehouse).files] == ["docs"]
        assert warehouse.fingerprints() == {}
        assert warehouse.rows("SELECT count(*) FROM choice_logprobs") == [(0,)]
        assert examine(warehouse).is_sound
        fill(warehouse)
        assert len(warehouse.fingerprints()) == 3


def test_records_and_documents_are_checked(location: Path) -> None:
    with open_warehouse(location) as warehouse:
        with warehouse.transaction("spoil"):
            run = warehouse.connection.execute
            run("DELETE FROM extractions WHERE model = 'm0'")
            run("DELETE FROM choice_logprobs WHERE model = 'm1' AND doc_id >= 40")
            run("UPDATE choice_logprobs SET logprob = logprob + 1e-12 WHERE model = 'm2' AND doc_id = 7")
            run("UPDATE docs SET label = NULL, gold = NULL WHERE doc_id < 3")
        found = examine(warehouse)
        assert [(p.model, p.reason) for p in found.partitions or ()] == [
            ("m0", "has 150 rows but no record of its extraction"),
            ("m1", "has rows of 40 documents, expected 50"),
            ("m2", "was altered after it was written"),
        ]
        assert [tuple(task) for task in found.tasks or ()] == [("b", "t", 3, 0, True, 0)]
        assert len(repair(warehouse).partitions) == 3
        assert examine(warehouse).partitions == ()


@POSTGRES_FIRST
def test_on_any_catalogue(place: str) -> None:
    with open_warehouse(place) as warehouse:
        fill(warehouse)
        with warehouse.transaction("remove some"):
            warehouse.connection.execute("DELETE FROM choice_logprobs WHERE model = 'm2' AND doc_id < 5")
            warehouse.connection.execute("DELETE FROM docs WHERE doc_id = 1")
        assert not examine(warehouse).is_sound
        first, second, third = files(warehouse, "choice_logprobs")
        shutil.copy(first, first.with_name("stray.parquet"))
        assert [Path(path).name for path in examine(warehouse).orphans] == ["stray.parquet"]
        second.unlink()
        (deletions,) = third.parent.glob("*delete*")
        deletions.write_bytes(b"PAR1")
    result = CliRunner().invoke(app, ["doctor", "--warehouse", place, "--json"])
    assert result.exit_code == 1
    faults = [f for f in json.loads(result.stdout) if f["level"] == "fault"]
    assert [f["check"] for f in faults] == ["files", "files"]
    result = CliRunner().invoke(app, ["doctor", "--warehouse", place, "--repair"])
    assert result.exit_code == 0, result.stdout
    for password in re.findall(r"//lake:(.+)@", place):
        assert password not in result.output
    with open_warehouse(place) as warehouse:
        assert not first.with_name("stray.parquet").exists()
        # Document 1 is gone, so every partition had a row of no document.
        assert warehouse.fingerprints() == {}
        fill(warehouse)
        assert examine(warehouse).is_sound


@pytest.mark.slow
def test_expire_reports_leftover_files(location: Path, tmp_path: Path) -> None:
    (tmp_path / ".out.999999999.partial").mkdir()
    (tmp_path / ".notes.partial").mkdir()
    stay = tmp_path / ".out.1.partial"  # of a process that is there
    stay.mkdir()
    shard = location / "shards" / "m" / "0.arrow"
    shard.parent.mkdir(parents=True)
    shard.write_bytes(b"x")
    result = CliRunner().invoke(app, ["doctor", "--warehouse", str(location)])
    assert result.exit_code == 0, result.stdout
    assert "1 shards of partitions that are not committed yet" in result.stdout
    assert ".out.999999999.partial, left by an interrupted export" in result.stdout
    assert "3 partitions intact" in result.stdout
    CliRunner().invoke(app, ["doctor", "--warehouse", str(location), "--repair"])
    assert sorted(p.name for p in tmp_path.glob(".*.partial")) == [".notes.partial", ".out.1.partial"]
    assert shard.exists()


def test_a_missing_warehouse_is_no_fault_and_a_broken_catalogue_is(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--warehouse", str(tmp_path / "none")])
    assert result.exit_code == 0
    assert not (tmp_path / "none").exists()
    (tmp_path / "catalog.sqlite").write_bytes(b"no database at all, but long enough to be one")
    result = CliRunner().invoke(app, ["doctor", "--warehouse", str(tmp_path)])
    assert result.exit_code == 1
    assert "its catalogue is not an SQLite database" in result.stdout


def test_versions_fit_together() -> None:
    assert [finding.level for finding in check_versions()] == ["ok"]


@pytest.fixture
def server() -> Iterator[str]:
    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/api/health" else 404)
            self.end_headers()

        def do_POST(self) -> None:
            self.send_response(401)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Healthy) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def test_server(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert [found.level for found in check_server()] == ["note"]
    healthy, closed_to_us = check_server(f"{server}/api")
    assert healthy.level == "ok"
    assert "status 401" in closed_to_us.message
    [missing] = check_server(f"{server}/other")
    assert "status 404" in missing.message
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://me:secret@127.0.0.1:{closed.getsockname()[1]}/api"
        [found] = check_server(url)
    assert found.level == "note"
    assert "does not answer" in found.message
    assert "secret" not in found.message

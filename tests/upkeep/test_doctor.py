"""Damage done to a warehouse on disk is found, told, and fixed as far as it can be."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from support.postgres_server import POSTGRES_FIRST
from support.rows import put_shifted
from support.servers import Handler, free_port, serving
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
        put_shifted(warehouse, model, 1 / 7, N)


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


def test_a_damaged_file_costs_its_partition_only(location: Path) -> None:
    with open_warehouse(location) as warehouse:
        then = warehouse.snapshot()
        victim = files(warehouse, "choice_logprobs")[1]
    whole = victim.read_bytes()
    for damaged, reason in (
        (bytes(len(whole)), "cannot be read"),
        (whole[:-100], "bytes, expected"),
        (None, "is missing"),
    ):
        if damaged is None:
            victim.unlink()
        else:
            victim.write_bytes(damaged)
        with open_warehouse(location, read_only=True) as warehouse:
            found = examine(warehouse)
        told = [file.reason for file in found.files] + [p.reason for p in found.partitions or ()]
        assert not found.is_sound
        assert len(told) == 1
        assert re.search(reason, told[0])
    with open_warehouse(location) as warehouse:
        assert [p.model for p in repair(warehouse).partitions] == ["m1"]
        assert repair(warehouse) == ((), (), (), (), (), 0)
        assert examine(warehouse).is_sound
        assert {model for model, _, _ in warehouse.fingerprints()} == {"m0", "m2"}
        assert warehouse.rows("SELECT count(*) FROM choice_logprobs") == [(2 * 3 * N,)]
        assert warehouse.snapshot() > then
        assert snapshots(warehouse)[-1].message == "doctor: drop partitions that are not whole"


@pytest.mark.parametrize("table", ["choice_logprobs", pytest.param("docs", marks=pytest.mark.slow)])
def test_a_flipped_bit_shows(location: Path, table: str) -> None:
    """Or it changes nothing: bits of a Parquet file that no reader needs."""
    with open_warehouse(location) as warehouse:
        victim = files(warehouse, table)[0]
        stored = warehouse.rows(f"FROM {table} ORDER BY ALL")
    content = victim.read_bytes()
    silent = 0
    for place in range(0, len(content), 499):
        victim.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
        with open_warehouse(location, read_only=True) as warehouse:
            if examine(warehouse).is_sound:
                assert warehouse.rows(f"FROM {table} ORDER BY ALL") == stored
                silent += 1
    assert silent < len(range(0, len(content), 499))


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


@POSTGRES_FIRST
def test_on_any_catalogue(place: str) -> None:
    with open_warehouse(place) as warehouse:
        fill(warehouse)
        with warehouse.transaction("remove some"):
            warehouse.connection.execute("DELETE FROM choice_logprobs WHERE model = 'm2' AND doc_id < 5")
            warehouse.connection.execute("DELETE FROM docs WHERE doc_id = 1")
        first, second, third = files(warehouse, "choice_logprobs")
        shutil.copy(first, first.with_name("stray.parquet"))
        found = examine(warehouse)
        assert not found.is_sound
        assert [Path(path).name for path in found.orphans] == ["stray.parquet"]
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


class HealthyServer(Handler):
    """A server that is well, and lets nobody in."""

    def answer(self) -> None:
        if self.path.startswith("/api/"):
            self.send(True, 401 if self.command == "POST" else 200)
        else:
            self.send(b"<html>", 200 if self.path == "/health" else 404, {"Content-Type": "text/html"})


def test_server(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [finding.level for finding in check_versions()] == ["ok"]
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert [found.level for found in check_server()] == ["note"]
    with serving(HealthyServer) as server:
        healthy, closed_to_us = check_server(f"{server}/api")
        [missing] = check_server(f"{server}/other")
        [page] = check_server(server)
    assert healthy.level == "ok"
    assert "401" in closed_to_us.message
    assert missing.level == "note"
    assert "no Prefect API" in missing.message
    assert (page.level, page.fix) == ("fault", f"export PREFECT_API_URL={server}/api")
    [found] = check_server(f"http://me:secret@127.0.0.1:{free_port()}/api")
    assert found.level == "note"
    assert "secret" not in found.message

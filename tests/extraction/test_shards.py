"""Shards and records of an extraction, a full disk, and queries larger than the memory."""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.probes import ONE, SUMS, WordEngine, extract, job
from typer.testing import CliRunner

from rlfocal.base.errors import InputError
from rlfocal.cli import main
from rlfocal.cli.app import app
from rlfocal.exchange.sql import run_sql
from rlfocal.extraction import recording
from rlfocal.extraction.engine import Document
from rlfocal.extraction.partition import Job
from rlfocal.extraction.recording import count_start, gpus_of_engine
from rlfocal.extraction.running.events import ExtractedPartition, Failure, explain
from rlfocal.extraction.running.stored_answers import Shard, Shards, identity, shard_folder
from warehouse import Warehouse, open_warehouse
from warehouse.errors import RunError
from warehouse.limits import DiskFullError
from warehouse.store import PartitionKey

SCHEMA = pa.schema([("doc_id", pa.int64()), ("text", pa.string())])


def rows(doc_ids: list[int], text: str = "x") -> pa.Table:
    return pa.table({"doc_id": doc_ids, "text": [text] * len(doc_ids)}, schema=SCHEMA)


def test_a_shard_comes_back_as_it_was(tmp_path: Path) -> None:
    shards = Shards(tmp_path / "s", "me")
    shards.write([3, 4], Shard(rows([3, 3, 4]), 0.1))
    assert shards.read([3, 4], SCHEMA) == Shard(rows([3, 3, 4]), 0.1)
    assert [p.suffix for p in (tmp_path / "s").iterdir()] == [".arrow"]


def test_torn_and_foreign_shards_are_done_again(tmp_path: Path) -> None:
    shards = Shards(tmp_path, "me")
    shards.write([0, 1], Shard(rows([0, 1]), 1.0))
    [file] = tmp_path.iterdir()
    assert Shards(tmp_path, "other").read([0, 1], SCHEMA) is None
    assert shards.read([0, 2], SCHEMA) is None
    assert shards.read([0, 1], SCHEMA.remove(1)) is None
    whole = file.read_bytes()
    for content in (b"", whole[:10], whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        file.write_bytes(content)
        assert shards.read([0, 1], SCHEMA) is None
    # Another extraction's file under this one's name.
    stranger = Shards(tmp_path / "other", "other")
    stranger.write([0, 1], Shard(rows([0, 1]), 1.0))
    [foreign] = stranger.folder.iterdir()
    shutil.copy(foreign, file)
    assert shards.read([0, 1], SCHEMA) is None


def test_identity_and_folder_tell_all_apart(tmp_path: Path) -> None:
    ids = {identity("f", {"device": d}, {"torch": v}) for d in ("cpu", "cuda") for v in "12"}
    assert len(ids) == 4
    keys = [("a", "b", "c"), ("A", "b", "c"), ("a" * 96, "é/../x", "c"), ("ab", "", "c")]
    folders = {shard_folder(tmp_path, PartitionKey(*key).text) for key in keys}
    assert len(folders) == 4
    assert all(f.parent == tmp_path and f.name.isalnum() for f in folders)


class FailingEngine(WordEngine):
    """Gives up after four documents."""

    def _ask(self, document: Document) -> int:
        if len(self.asked) == 4:
            raise RunError("enough")
        return super()._ask(document)


def test_gpus_of_two_products_never_share_a_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def driver(product: str) -> None:
        program.write_text(f"#!/bin/sh\necho '0, GPU-0, {product}, 9.0, 580.65, 0'\n")
        program.chmod(0o755)

    asked = {}
    for product in ("NVIDIA A100", "NVIDIA H100"):
        location = tmp_path / product
        driver("NVIDIA A100")
        [failed] = [
            e for e in extract(location, FailingEngine(device="cuda:0"), job(ONE)) if isinstance(e, Failure)
        ]
        assert "enough" in failed.reason
        driver(product)
        engine = WordEngine(device="cuda:0")
        extract(location, engine, job(ONE))
        asked[product] = len(engine.asked)
        with open_warehouse(location) as warehouse:
            facts = "SELECT settings->>'device_product', settings->>'driver' FROM extractions"
            assert warehouse.rows(facts) == [(product, "580.65")]
    n = len(job(ONE).task.documents)
    assert asked == {"NVIDIA A100": n - 4, "NVIDIA H100": n}
    extract(tmp_path / "cpu", WordEngine(), job(ONE))
    with open_warehouse(tmp_path / "cpu") as warehouse:
        assert warehouse.rows(facts) == [(None, None)]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # a failed ROLLBACK leaves a file open


def test_a_full_disk_is_reported_and_leaves_no_torn_file(small_disk: Path) -> None:
    shards = Shards(small_disk / "s", "me")
    shards.write([0], Shard(rows([0]), 1.0))
    (small_disk / "filler").write_bytes(b"x" * 1_900_000)
    with pytest.raises(DiskFullError, match=f"disk is full: {small_disk}/s") as caught:
        shards.write([1], Shard(rows([1], "y" * 1_000_000), 1.0))
    assert explain(caught.value).endswith("run the same command again")
    assert len(list(shards.folder.iterdir())) == 1
    (small_disk / "filler").unlink()
    assert shards.read([0], SCHEMA) is not None


def test_a_file_that_does_not_fit_is_named(
    small_disk: Path,
    empty_warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (small_disk / "filler").write_bytes(b"x" * 2_000_000)
    words = ["report", "-w", str(empty_warehouse), "-o", str(small_disk / "page.html")]
    monkeypatch.setattr("sys.argv", ["rlfocal", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert f"'{small_disk}/page.html': No space left on device; free some space" in capsys.readouterr().err
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


def too_much(n: int) -> pa.Table:
    """4 MB in rows for `models`: into a file of its own where they are many, else into the catalogue."""
    return pa.table({"model": [os.urandom(2_000_000 // n).hex() for _ in range(n)]})


@pytest.mark.parametrize("n", [4000, 5], ids=["answers", "catalogue"])
def test_a_full_disk_leaves_the_warehouse_as_it_was(small_disk: Path, empty_warehouse: Path, n: int) -> None:
    location = small_disk / "w"
    shutil.copytree(empty_warehouse, location)
    with open_warehouse(location) as warehouse:
        before = warehouse.snapshot()
        with pytest.raises(DiskFullError, match="disk is full"), warehouse.transaction("too much"):
            warehouse.append("models", too_much(n))
        assert warehouse.rows("SELECT count(*) FROM models") == [(0,)]
        assert warehouse.snapshot() == before


@pytest.mark.parametrize("n", [4000, 5], ids=["answers", "catalogue"])
def test_a_limit_on_file_sizes_is_said_and_leaves_no_trace(warehouse: Warehouse, n: int) -> None:
    before, (soft, hard) = warehouse.snapshot(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))
    try:
        with pytest.raises(DiskFullError, match="ulimit"), warehouse.transaction("too much"):
            warehouse.append("models", too_much(n))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert warehouse.rows("SELECT count(*) FROM models") == [(0,)]
    assert warehouse.snapshot() == before
    with warehouse.transaction("again"):
        warehouse.append("models", too_much(n))
    assert warehouse.rows("SELECT count(*) FROM models") == [(n,)]


@pytest.mark.parametrize("room", [100_000, 300_000, 600_000])
def test_a_new_warehouse_without_room_is_named(small_disk: Path, made_anew: None, room: int) -> None:
    (small_disk / "filler").write_bytes(bytes(2_097_152 - room))
    with pytest.raises(DiskFullError, match="run the same command again"):
        open_warehouse(small_disk / "w")
    (small_disk / "filler").unlink()
    open_warehouse(small_disk / "w").close()


def test_a_disk_without_any_room_is_no_damage(small_disk: Path, empty_warehouse: Path) -> None:
    location = small_disk / "w"
    shutil.copytree(empty_warehouse, location)
    open_warehouse(location).close()  # SQLite's files beside the catalogue go
    with suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while filler.write(bytes(4096)):
            pass
    with pytest.raises(DiskFullError, match="0 bytes left"):
        open_warehouse(location, read_only=True)
    told = CliRunner().invoke(app, ["doctor", "-w", str(location)]).output
    assert "free some space" in told
    assert "backup" not in told
    (small_disk / "filler").unlink()
    open_warehouse(location).close()


HOLDING = """
import sqlite3, sys
sqlite3.connect(sys.argv[1], isolation_level=None).execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_catalogue_that_another_program_holds_is_named(empty_warehouse: Path, tmp_path: Path) -> None:
    location = Path(shutil.copytree(empty_warehouse, tmp_path / "w"))
    with open_warehouse(location) as warehouse:
        before = warehouse.snapshot()
        command = [sys.executable, "-c", HOLDING, str(location / "catalog.sqlite")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            assert other.stdout.readline()
            with pytest.raises(RunError, match="another program"), warehouse.transaction("models"):
                warehouse.append("models", pa.table({"model": ["m"]}))
            other.communicate()
        assert warehouse.snapshot() == before
        with warehouse.transaction("models"):
            warehouse.append("models", pa.table({"model": ["m"]}))


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "tensor_parallel"),
        (ValueError("No available memory for the cache blocks."), "context_length"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "fewer models"),
        (MemoryError(), "fewer models"),
    ],
)
def test_out_of_memory_says_what_to_do(error: Exception, advice: str) -> None:
    outer = RuntimeError("wrapped")
    outer.__cause__ = error
    assert advice in explain(error)
    assert advice in explain(outer)


def break_at(engine: WordEngine, doc_id: int | None) -> WordEngine:
    """The engine fails whenever it is asked this document."""
    ask = engine._ask

    def asked(document: Document) -> int:
        if document.doc_id == doc_id:
            raise RuntimeError("CUDA error: the GPU fell off the bus")
        return ask(document)

    engine._ask = asked  # type: ignore[method-assign]
    return engine


def run(location: Path, fails_at: int | None, *jobs: Job) -> list[Any]:
    """What an extraction by an engine on a GPU says of partitions."""
    events = extract(location, break_at(WordEngine(device="cuda:0"), fails_at), *jobs)
    return [event for event in events if isinstance(event, ExtractedPartition | Failure)]


def test_tokens_speed_retries_and_places_are_recorded_and_logged(
    log_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = tmp_path / "w"
    tasks = (job(ONE, 5), job(SUMS, 5))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    for _ in range(2):
        events = run(location, 3, *tasks)
        assert [type(event) for event in events] == [Failure, Failure]
    events = run(location, None, *tasks)
    assert [type(event) for event in events] == [ExtractedPartition, ExtractedPartition]
    with open_warehouse(location) as warehouse:
        rows = warehouse.rows(
            "SELECT task, n_prompt_tokens, n_generated_tokens, retries, gpus, host, "
            "round(tokens_per_second * seconds, 6) FROM extractions ORDER BY task DESC"
        )
        assert not list(warehouse.location.shards.iterdir())
    prompts, choices, passes = sum(10 + i for i in range(5)), 5 * (2 + 2 + 2), 5 * (3 + 4 + 5 + 6)
    assert rows == [
        ("sums", prompts, passes, 2, "5", platform.node(), prompts + passes),
        ("one", prompts + choices, 0, 2, "5", platform.node(), prompts + choices),
    ]
    lines = [json.loads(line) for line in log_file.read_text().splitlines()]
    assert all(line["host"] == platform.node() and line["process"] and line["time"] for line in lines)
    of_choices = [line for line in lines if line.get("task") == "one"]
    assert [(line["event"], line.get("shard")) for line in of_choices] == [
        ("shard answered", 0),
        ("partition failed", None),
        ("partition failed", None),  # the first shard was kept
        ("shard answered", 1),
        ("shard answered", 2),
        ("partition committed", None),
    ]
    assert {(line["model"], line["benchmark"]) for line in of_choices} == {("m", "b")}
    assert "fell off the bus" in of_choices[1]["reason"]
    assert of_choices[1]["level"] == "error"
    assert of_choices[-1]["retries"] == 2
    assert [line["model"] for line in lines if line["event"] == "engine started"] == ["m"] * 3


@pytest.mark.slow
def test_without_a_log_nothing_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(recording.LOG_VARIABLE, raising=False)
    open_warehouse(tmp_path / "w").close()
    [event] = run(tmp_path / "w", 0, job(ONE, 5))
    assert isinstance(event, Failure)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("log_file")
def test_a_log_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(recording.LOG_VARIABLE, str(tmp_path))
    with pytest.raises(InputError, match="RLFOCAL_LOG="):
        recording.start_log()


@pytest.mark.parametrize(
    ("visible", "settings", "expected"),
    [
        ("2,3,6", {"device": "cuda", "tensor_parallel": 2}, "2,3"),
        ("6", {"device": "cuda:0"}, "6"),
        ("GPU-ab,GPU-cd", {"device": "cuda", "tensor_parallel": 1}, "GPU-ab"),
        (None, {"device": "cuda", "tensor_parallel": 4}, "0,1,2,3"),
        ("2,3", {"device": "cpu"}, None),
        ("2,3", {"served": "m"}, None),
    ],
)
def test_gpus(
    visible: str | None, settings: dict[str, Any], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus_of_engine(settings) == expected


def test_a_partition_is_begun_again_and_again(tmp_path: Path) -> None:
    assert [count_start(tmp_path / "s") for _ in range(3)] == [0, 1, 2]
    (tmp_path / "s" / "begun").write_text("")  # torn
    assert count_start(tmp_path / "s") == 0
    (tmp_path / "s" / "begun").write_text("3 8")  # as earlier versions wrote it, with the documents
    assert count_start(tmp_path / "s") == 3


LARGE = "SELECT count(*) FROM (SELECT hash(range) AS h, list(range) FROM range(400000) GROUP BY ALL)"
TOO_LARGE = "SELECT len(list(r.range)) FROM range(20000000) AS r"


def test_a_large_query_spills_into_the_temporary_folder(
    fresh: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the statement may reach nothing but the warehouse."""
    fresh(tmp_path / "w")
    monkeypatch.setenv("RLFOCAL_MEMORY_LIMIT", "40MB")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert "400000" in run_sql(tmp_path / "w", LARGE)
    assert list((tmp_path / "here").iterdir()) == []


def test_a_query_that_is_too_large_says_what_to_do(
    fresh: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh(tmp_path / "w")
    monkeypatch.setenv("RLFOCAL_MEMORY_LIMIT", "40MB")
    with pytest.raises(InputError, match="memory"):
        run_sql(tmp_path / "w", TOO_LARGE)
    with (
        open_warehouse(tmp_path / "w", read_only=True) as warehouse,
        pytest.raises(RunError, match="RLFOCAL_MEMORY_LIMIT"),
    ):
        warehouse.rows(TOO_LARGE)


@pytest.mark.parametrize("limit", ["4", "80%", "-1GB", "0GB", "much"])
def test_a_limit_that_is_no_amount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setenv("RLFOCAL_MEMORY_LIMIT", limit)
    with pytest.raises(InputError, match=f"RLFOCAL_MEMORY_LIMIT is '{limit}'"):
        open_warehouse(tmp_path / "w")

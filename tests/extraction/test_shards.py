"""Shards on disk: only whole and own ones count, a full disk tears nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from rlfocal.cli import main
from rlfocal.extraction.running.events import explain
from rlfocal.extraction.running.shards import Shard, Shards, discard, identity, shard_folder
from warehouse import open_warehouse
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
    discard(tmp_path)
    assert not tmp_path.exists()


def test_identity_and_folder_tell_all_apart(tmp_path: Path) -> None:
    ids = {identity("f", {"device": d}, {"torch": v}) for d in ("cpu", "cuda") for v in "12"}
    assert len(ids) == 4
    keys = [("a", "b", "c"), ("A", "b", "c"), ("a" * 96, "é/../x", "c"), ("ab", "", "c")]
    folders = {shard_folder(tmp_path, PartitionKey(*key)) for key in keys}
    assert len(folders) == 4
    assert all(f.parent == tmp_path and f.name.isalnum() for f in folders)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


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
    assert f"No space left on device: '{small_disk}/page.html'" in capsys.readouterr().err
    assert [path.name for path in small_disk.iterdir()] == ["filler"]


def test_a_full_disk_leaves_the_warehouse_as_it_was(small_disk: Path, empty_warehouse: Path) -> None:
    location = small_disk / "w"
    shutil.copytree(empty_warehouse, location)
    with open_warehouse(location) as warehouse:
        before = warehouse.snapshot()
        noise = [os.urandom(500).hex() for _ in range(4000)]
        with pytest.raises(DiskFullError, match="disk is full"), warehouse.transaction("too much"):
            warehouse.append("models", pa.table({"model": noise}))
        assert warehouse.rows("SELECT count(*) FROM models") == [(0,)]
        assert warehouse.snapshot() == before


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

"""Answers of an uncommitted partition, on local disk: a killed run loses at most one shard."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from rlfocal.base.atomic import write_file
from rlfocal.extraction.partition import partition_lock
from warehouse import Warehouse
from warehouse.limits import writing_to
from warehouse.store import PartitionKey

_DIGEST_BYTES = hashlib.sha256().digest_size


class Shard(NamedTuple):
    """Rows of some documents, and how long the engine took for them."""

    rows: pa.Table
    seconds: float
    traces: pa.Table | None = None
    """Rows of `traces`, where the model thought before it answered."""


@dataclass(frozen=True)
class Shards:
    """The shards of one partition that come from one extraction and one engine."""

    folder: Path
    identity: str
    """A digest of all that the rows depend on."""

    def read(self, doc_ids: Sequence[int], schema: pa.Schema) -> Shard | None:
        """The shard of exactly these documents; None if it is missing, damaged or from another run."""
        try:
            content = self._file(doc_ids).read_bytes()
        except OSError:
            return None
        digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(payload).digest() != digest:
            return None
        source = pa.BufferReader(payload)
        rows = pa.ipc.open_stream(source).read_all()
        traces = pa.ipc.open_stream(source).read_all() if source.tell() < len(payload) else None
        metadata = rows.schema.metadata or {}
        mine = metadata.get(b"identity", b"").decode() == self.identity and rows.schema.equals(schema)
        if not mine or rows["doc_id"].unique().to_pylist() != list(doc_ids):
            return None
        return Shard(rows.replace_schema_metadata(None), float(metadata[b"seconds"]), traces)

    def write(self, doc_ids: Sequence[int], shard: Shard) -> None:
        """Saves a shard atomically. Raises DiskFullError if the disk is full."""
        metadata = {"identity": self.identity, "seconds": repr(shard.seconds)}
        rows = shard.rows.replace_schema_metadata(metadata)
        payload = io.BytesIO()
        for table in (rows, shard.traces):
            if table is not None:
                with pa.ipc.new_stream(payload, table.schema) as stream:
                    stream.write_table(table)
        with writing_to(self.folder):
            digest = hashlib.sha256(payload.getbuffer()).digest()
            write_file(self._file(doc_ids), digest, payload.getbuffer(), durable=True)

    def _file(self, doc_ids: Sequence[int]) -> Path:
        return self.folder / f"{self.identity[:24]}-{doc_ids[0]}-{doc_ids[-1]}.arrow"


def identity(fingerprint: str, settings: object, versions: object) -> str:
    """Rows of one fingerprint are never mixed across devices or libraries: their last bits may differ."""
    parts = json.dumps([fingerprint, settings, versions], sort_keys=True, default=str)
    return hashlib.sha256(parts.encode()).hexdigest()


def shard_folder(root: Path, key: PartitionKey) -> Path:
    """The folder of a partition's shards. Names are hashed: they may be long, or differ only in case."""
    return root / hashlib.sha256(key.text.encode()).hexdigest()[:32]


def probe_folder(root: Path, probe_id: str) -> Path:
    """The folder of the shards of a probe's batch: two probes never share answers."""
    return root / hashlib.sha256(f"probe\0{probe_id}".encode()).hexdigest()[:32]


def discard(folder: Path) -> None:
    """Removes a committed partition's shards, whichever run left them. Needs the partition's lock."""
    shutil.rmtree(folder, ignore_errors=True)


def discard_shards(folder: Path) -> None:
    """Removes a partition's shards, but not the notes beside them. Needs the partition's lock."""
    for file in folder.glob("*.arrow"):
        file.unlink(missing_ok=True)


def discard_leftovers(warehouse: Warehouse, key: PartitionKey) -> None:
    """`discard` for what a run killed after its commit left; does nothing if another process has the lock."""
    folder = shard_folder(warehouse.location.shards, key)
    if folder.exists():
        with partition_lock(warehouse, key, wait=False) as mine:
            if mine:
                discard(folder)

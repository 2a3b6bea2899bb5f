"""Finds stored answers, for which no model is asked again: shards of an uncommitted partition, and rows of
the warehouse. Shards are files on the local disk. A killed run loses at most one shard."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rlfocal.base.atomic import write_file
from rlfocal.extraction.partition import UNCONDITIONAL_SUFFIX as SUFFIX
from rlfocal.extraction.partition import Job
from rlfocal.extraction.recording import documents_to_ask
from rlfocal.extraction.responses import RESPONSES_KEY
from rlfocal.extraction.rows import (
    CHOICE_SCHEMA,
    PASS_SCHEMA,
    TRACE_SCHEMA,
    UNCONDITIONAL_COLUMN,
    rows_of_probe,
)
from warehouse import Warehouse
from warehouse.limits import writing_to
from warehouse.store import PartitionRecord

_DIGEST_BYTES = hashlib.sha256().digest_size


class Shard(NamedTuple):
    """Rows of some documents, and the seconds that the engine took for them."""

    rows: pa.Table
    seconds: float
    traces: pa.Table | None = None
    """Rows of the table `traces`; None if the model did not think before it answered."""


@dataclass(frozen=True)
class Shards:
    """The saved shards of one partition, all from one extraction and one engine."""

    folder: Path
    identity: str
    """A digest of everything that the rows depend on."""

    def read(self, doc_ids: Sequence[int], schema: pa.Schema) -> Shard | None:
        """The shard of exactly these documents. It is None if the file is missing, damaged or from another
        run."""
        try:
            content = self._name_file(doc_ids).read_bytes()
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
            write_file(self._name_file(doc_ids), digest, payload.getbuffer(), durable=True)

    def _name_file(self, doc_ids: Sequence[int]) -> Path:
        return self.folder / f"{self.identity[:24]}-{doc_ids[0]}-{doc_ids[-1]}.arrow"


def identity(fingerprint: str, settings: object, versions: object) -> str:
    """A digest of a fingerprint with the engine's settings and versions. It keeps rows from different GPU
    products, drivers or libraries apart, because their last bits may differ."""
    parts = json.dumps([fingerprint, settings, versions], sort_keys=True, default=str)
    return hashlib.sha256(parts.encode()).hexdigest()


def shard_folder(root: Path, key: str) -> Path:
    """The folder of the shards of a partition, or of a probe's current batch. Its name is a hash, because
    keys may be long, or differ only in case. Who deletes it must hold the lock of the benchmark or probe."""
    return root / hashlib.sha256(key.encode()).hexdigest()[:32]


_MODEL_TASK_CONDITION = "WHERE (model, benchmark, task) = (?, ?, ?)"


class StoredAnswers(NamedTuple):
    """Stored answers to documents of a partition, for which the model is not asked again."""

    shard: Shard
    """The rows of the answers, and the seconds that an engine took for them."""
    paid: float
    """The cents that probes paid for these answers."""
    facts: dict[str, Any]
    """The columns `evidence` and `versions` of the record that these answers come from."""

    @property
    def doc_ids(self) -> set[int]:
        return set(self.shard.rows["doc_id"].to_pylist())

    @property
    def answered_by(self) -> str | None:
        """The model that the service reported with these answers; None if it reported none."""
        name: str | None = self.facts["versions"].get("answered_by")
        return name


def find_stored(
    warehouse: Warehouse, job: Job, record: Mapping[str, Any], entry: PartitionRecord | None
) -> StoredAnswers | None:
    """The answers in the warehouse with the job's fingerprint and its engine's settings and versions; None if
    there are none.

    `record` has those settings and versions. `entry` is the committed partition. Its rows come first. Other
    documents have the newest row of a probe. Documents whose missing answer may come in another run are left
    out.
    """
    settings = json.loads(json.dumps(record["settings"]))

    def is_same(stored: Mapping[str, Any]) -> bool:  # as shards, others are never mixed
        return (
            (stored["fingerprint"] or "").removesuffix(SUFFIX) == job.fingerprint.removesuffix(SUFFIX)
            and json.loads(stored["settings"]) == settings
            and json.loads(stored["versions"]).items() >= record["versions"].items()
        )

    committed, probed = (list(filter(is_same, each)) for each in _read_records(warehouse, job, record, entry))
    if not (committed or probed):
        return None
    first = [*committed, *probed][0]
    whole = [_read_partition(warehouse, job, stored) for stored in committed]
    answered = {doc_id for shard in whole for doc_id in shard.rows["doc_id"].to_pylist()}
    wanted = {document.doc_id for document in job.task.documents} - answered
    newest: dict[int, Mapping[str, Any]] = {}
    for stored in probed:
        if stored["doc_id"] in wanted and _read_engine(stored) == _read_engine(first):
            newest.setdefault(stored["doc_id"], stored)
    answers = list(newest.values())
    shard = merge_shards([*whole, _read_probes(job, answers)])
    paid = sum(answer["paid"] or 0.0 for answer in answers)
    return StoredAnswers(
        shard, paid, {"evidence": first["evidence"], "versions": json.loads(first["versions"])}
    )


def _read_engine(row: Mapping[str, Any]) -> dict[str, Any]:
    """The versions under which a stored answer was given, without the counts of its partition's responses."""
    return {name: said for name, said in json.loads(row["versions"]).items() if name != RESPONSES_KEY}


def merge_shards(shards: Sequence[Shard]) -> Shard:
    """One shard with the rows of all shards, sorted by doc_id."""

    def join_tables(tables: Sequence[pa.Table]) -> pa.Table:
        number = next(name for name in ("choice", "pass", "trace") if name in tables[0].column_names)
        return pa.concat_tables(tables).sort_by([("doc_id", "ascending"), (number, "ascending")])

    traces = [shard.traces for shard in shards if shard.traces is not None]
    return Shard(
        join_tables([shard.rows for shard in shards]),
        sum(shard.seconds for shard in shards),
        join_tables(traces) if traces else None,
    )


def _read_records(
    warehouse: Warehouse, job: Job, record: Mapping[str, Any], entry: PartitionRecord | None
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """The committed partition's record, unless it has a fault; and the rows of probes, the newest first."""
    of_record = "FROM extractions WHERE extraction_id = ? AND fault IS NULL"
    of_probes = f"FROM probe_answers {_MODEL_TASK_CONDITION} ORDER BY asked_at DESC, probe_id, doc_id"
    return (
        warehouse.query(of_record, ["" if entry is None else entry.extraction_id]).to_pylist(),
        warehouse.query(of_probes, list(job.key(record["model"]))).to_pylist(),
    )


def _read_partition(warehouse: Warehouse, job: Job, record: Mapping[str, Any]) -> Shard:
    table, of = (
        ("choice_logprobs", CHOICE_SCHEMA) if job.task.sampling is None else ("answer_passes", PASS_SCHEMA)
    )
    key = list(job.key(record["model"]))
    rows, traces = (
        warehouse.query(f"SELECT {', '.join(schema.names)} FROM {name} {_MODEL_TASK_CONDITION}", key).cast(
            schema
        )
        for name, schema in ((table, of), ("traces", TRACE_SCHEMA))
    )
    return _select_rows(job, rows, traces, record["seconds"] or 0.0)


def _read_probes(job: Job, answers: Sequence[Mapping[str, Any]]) -> Shard:
    name, of = ("choices", CHOICE_SCHEMA) if job.task.sampling is None else ("passes", PASS_SCHEMA)
    rows, traces = (rows_of_probe(answers, *each) for each in ((name, of), ("traces", TRACE_SCHEMA)))
    return _select_rows(job, rows, traces, sum(answer["seconds"] for answer in answers))


def _select_rows(job: Job, rows: pa.Table, traces: pa.Table, seconds: float) -> Shard:
    """The shard of those rows whose documents the job has, and does not ask again."""
    again = set(documents_to_ask(rows))
    kept = [document.doc_id for document in job.task.documents if document.doc_id not in again]
    rows, traces = (
        each.filter(pc.is_in(each["doc_id"], pa.array(kept, pa.int64()))) for each in (rows, traces)
    )
    # Rows that are asked anew will not have it.
    if UNCONDITIONAL_COLUMN in rows.column_names and not job.task.unconditional:
        column, nothing = rows.column_names.index(UNCONDITIONAL_COLUMN), pa.nulls(len(rows), pa.float64())
        rows = rows.set_column(column, UNCONDITIONAL_COLUMN, nothing)
    return Shard(rows, seconds, traces if len(traces) else None)

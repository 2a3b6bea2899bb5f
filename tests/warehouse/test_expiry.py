"""Old snapshots go with their files, those of evaluations stay; small files become few."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from guide import GUIDE, examples
from support.postgres_server import DIRECTORY_FIRST
from support.rows import SCORES, choice_rows, docs, extraction
from support.rows import put_shifted as put
from typer.testing import CliRunner

from rlfocal.base.errors import InputError
from rlfocal.cli.app import app
from rlfocal.methods.learning.store import CHECKPOINT_FORMAT, write_tensors
from rlfocal.upkeep.drift import find_snapshot_before_extraction
from warehouse import Warehouse, open_warehouse, writing
from warehouse.corrections import remove_model
from warehouse.expiry import expire, find_overdue_files, merge
from warehouse.integrity import examine
from warehouse.snapshots import diff, snapshots


def sums(warehouse: Warehouse, snapshot: int) -> list[tuple[object, ...]]:
    state = (
        f"SELECT model, sum(logprob) FROM choice_logprobs AT (VERSION => {snapshot}) GROUP BY 1 ORDER BY 1"
    )
    return warehouse.rows(state)


NOW = timedelta(0)
"""No grace: files go at once."""


@DIRECTORY_FIRST
def test_a_running_query_keeps_its_files(place: str) -> None:
    """One that reads file after file survives a compaction; the next one, later, deletes what it read."""
    with open_warehouse(place) as warehouse, open_warehouse(place, read_only=True) as reader:
        for i in range(8):
            put(warehouse, f"m{i}", float(i))
        [(n,)] = warehouse.rows("SELECT count(*) FROM choice_logprobs")
        reader.connection.execute("SET threads = 1")
        reader.connection.execute("SET streaming_buffer_size = '1KB'")
        stream = reader.connection.execute("SELECT logprob FROM choice_logprobs").to_arrow_reader(1)
        read = len(stream.read_next_batch())
        merged = merge(warehouse)
        assert merged.files_after < merged.files_before
        assert expire(warehouse, keep=1).snapshots
        assert read + sum(map(len, stream)) == n
        waiting = find_overdue_files(warehouse, NOW)
        assert len(waiting) >= 8
        assert find_overdue_files(warehouse) == []
        assert all(Path(path).exists() for path in waiting)
        merge(warehouse, NOW)
        assert not any(Path(path).exists() for path in waiting)
        assert examine(warehouse).is_sound


@DIRECTORY_FIRST
def test_expiry_keeps_what_is_needed(place: str) -> None:
    with open_warehouse(place) as warehouse:
        ids = [put(warehouse, "m", float(i)) for i in range(4)]
        put(warehouse, "other", 0.0)
        with warehouse.transaction("an evaluation of the second"):
            run = {"run_id": ["r"], "benchmark": ["b"], "task": ["*"], "snapshot": [ids[1]]}
            warehouse.append("evaluations", pa.table(run))
        newest = warehouse.snapshot()
        seen = {i: sums(warehouse, i) for i in (ids[1], newest)}
        data = Path(warehouse.data_path())
        n_files = len(list(data.rglob("*.parquet")))

        told = expire(warehouse, keep=1, dry_run=True)
        assert told.evaluated == (ids[1],)
        assert set(told.snapshots) == set(range(newest)) - {ids[1]}
        assert told.files == 2  # of the first and third state; the second's is read by the evaluation
        assert len(list(data.rglob("*.parquet"))) == n_files
        assert len(snapshots(warehouse)) == newest + 1

        assert expire(warehouse, keep=1, grace=NOW) == told
        assert len(list(data.rglob("*.parquet"))) == n_files - told.files
        assert [s.id for s in snapshots(warehouse)] == [ids[1], newest]
        assert {i: sums(warehouse, i) for i in seen} == seen
        assert examine(warehouse).is_sound
        assert [p.change for p in diff(place, ids[1], newest).partitions] == ["replaced", "added"]
        with pytest.raises(InputError, match=f"no snapshot {ids[0]}"):
            open_warehouse(place, snapshot=ids[0])

        assert expire(warehouse, keep=1, evaluated=True).snapshots == (ids[1],)
        assert [s.id for s in snapshots(warehouse)] == [newest]
        assert expire(warehouse, keep=1).snapshots == ()


def test_age(warehouse: Warehouse) -> None:
    put(warehouse, "m", 0.0)
    assert expire(warehouse, older_than=timedelta(days=1)).snapshots == ()
    assert expire(warehouse, older_than=timedelta(0), keep=2).snapshots == (0,)
    for wrong in ({}, {"keep": 0}, {"older_than": timedelta(-1)}):
        with pytest.raises(InputError, match="snapshot"):
            expire(warehouse, **wrong)


@DIRECTORY_FIRST
def test_merging_changes_no_snapshot(place: str) -> None:
    with open_warehouse(place) as warehouse:
        for i in range(3):
            put(warehouse, f"m{i}", float(i))
        put(warehouse, "m0", 9.0)
        newest = warehouse.snapshot()
        before = [sums(warehouse, i) for i in range(2, newest + 1)]
        history = snapshots(warehouse)
        merged = merge(warehouse)
        assert merged.files_after < merged.files_before
        assert [sums(warehouse, i) for i in range(2, newest + 1)] == before
        assert snapshots(warehouse)[: len(history)] == history
        found = examine(warehouse)
        assert found.is_sound
        assert (found.orphans, found.overdue) == ((), ())
        put(warehouse, "m1", 3.5)
        assert examine(warehouse).is_sound


@pytest.mark.slow
@DIRECTORY_FIRST
def test_merging_frees_rows_that_share_a_file(place: str) -> None:
    """Else what replaced models of one import had said could never be deleted."""
    with open_warehouse(place) as warehouse:
        scores = [[SCORES[i % 2][c] * 1.5 for c in range(3)] for i in range(40)]
        both = pa.concat_tables([choice_rows(scores, model) for model in ("m", "n")])
        with warehouse.transaction("both at once"):
            writing.put_docs(warehouse.connection, docs(40))
            records = [extraction(model, "0", 40) for model in ("m", "n")]
            writing.put_partitions(warehouse.connection, both, records)
        newest = put(warehouse, "n", 2.0)
        before = [sums(warehouse, i) for i in (newest - 1, newest)]
        merge(warehouse)
        assert [sums(warehouse, i) for i in (newest - 1, newest)] == before
        assert expire(warehouse, keep=1).bytes > 0
        assert sums(warehouse, warehouse.snapshot()) == before[1]
        assert examine(warehouse).is_sound


def put_many(warehouse: Warehouse, n: int) -> None:
    """n models of one import: their records, too, are in a file."""
    scores = [[SCORES[i % 2][c] for c in range(3)] for i in range(40)]
    models = [f"m{i}" for i in range(n)]
    with warehouse.transaction("import many"):
        writing.put_docs(warehouse.connection, docs(40))
        rows = pa.concat_tables([choice_rows(scores, model) for model in models])
        writing.put_partitions(warehouse.connection, rows, [extraction(m, "0", 40) for m in models])
        warehouse.append("models", pa.table({"model": models}))


@pytest.mark.parametrize("signed", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_compaction_is_never_news(warehouse: Warehouse, signed: bool) -> None:
    """Neither ours, nor an unsigned one, as earlier versions and other clients make them."""
    put_many(warehouse, 30)
    remove_model(warehouse, "m3")
    with warehouse.transaction("evaluate"):
        warehouse.append("evaluations", pa.table({"run_id": ["r"], "benchmark": ["b"], "task": ["*"]}))
    [asked] = (one.code for one in examples(GUIDE.read_text("utf-8")) if one.title.startswith("19."))
    before, answer, history = (
        find_snapshot_before_extraction(warehouse),
        warehouse.rows(asked),
        snapshots(warehouse),
    )
    if signed:
        assert merge(warehouse).rewritten > 0
    else:
        warehouse.rows("CALL ducklake_rewrite_data_files('warehouse', delete_threshold => 0.0)")
    told = snapshots(warehouse)[len(history) :]
    assert told, "nothing was rewritten"
    assert snapshots(warehouse)[: len(history)] == history
    assert [(s.rows, s.partitions) for s in told] == [((), ())] * len(told)
    assert [s.message for s in told] == ["merge small files" if signed else None] * len(told)
    assert examine(warehouse).other_writers == ()
    assert find_snapshot_before_extraction(warehouse) == before
    assert warehouse.rows(asked) == answer


def test_snapshots_of_trained_agents_stay(warehouse: Warehouse) -> None:
    """Of the command, which only says what it would do until it is told --yes."""
    first = put(warehouse, "m", 0.0)
    put(warehouse, "m", 1.0)
    newest = warehouse.snapshot()
    folder = warehouse.location.checkpoints / "b" / "rl_focal"
    write_tensors(
        folder / "seed-0.safetensors", {"w": torch.zeros(2)}, CHECKPOINT_FORMAT, {"snapshot": first}
    )
    (folder / "seed-1.safetensors").write_bytes(b"torn")

    def compact(*words: str) -> Any:
        return CliRunner().invoke(app, ["compact", *words, "-w", str(warehouse.location.directory)])

    tried = compact("--keep", "1")
    assert (tried.exit_code, len(snapshots(warehouse))) == (0, newest + 1), tried.output
    kept = compact("--older-than", "0d", "--yes")
    assert f"kept for evaluations, trained agents and drift: {first}" in kept.stdout
    assert [s.id for s in snapshots(warehouse)] == [first, newest]
    gone = compact("--keep", "1", "--yes", "--evaluated", "--json")
    assert json.loads(gone.stdout)["snapshots"] == [first]
    assert [s.id for s in snapshots(warehouse)] == [newest]
    assert isinstance(compact("--older-than", "soon").exception, InputError)
    assert compact().exit_code == 0

"""The warehouse's past: what each commit changed, and how two snapshots differ."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from support.cli import Cli
from support.rows import SCORES, THREE, put, put_answers

from rlfocal.base.errors import InputError
from rlfocal.exchange.sql import run_sql
from warehouse import Warehouse, open_warehouse
from warehouse.snapshots import QUANTILE_LEVELS, PartitionChange, RowChange, diff, snapshots

N = 300


def test_a_held_snapshot_holds_inside_another_block(warehouse: Warehouse) -> None:
    put(warehouse, SCORES)
    models = "SELECT DISTINCT model FROM extractions"
    with warehouse.hold_snapshot():
        with warehouse.hold_snapshot():
            assert warehouse.rows(models) == [("m",)]
        with open_warehouse(warehouse.location) as other:
            put(other, SCORES, model="other")
        assert warehouse.rows(models) == [("m",)]
    assert len(warehouse.rows(models)) == 2


def test_snapshots_list_each_commit(warehouse: Warehouse) -> None:
    empty = warehouse.snapshot()
    put(warehouse, SCORES)
    put(warehouse, SCORES, model="other")
    put(warehouse, THREE)
    with warehouse.transaction("relabel"):
        warehouse.connection.execute("UPDATE docs SET label = 1 WHERE doc_id = 0")
        warehouse.connection.execute("DELETE FROM extractions WHERE model = 'other'")
    found = snapshots(warehouse)
    assert [s.id for s in found] == list(range(empty + 5))
    assert str(found[empty].message).startswith("schema")
    first, other, again, relabel = found[-4:]
    assert first.message == "extract m on b/t"
    assert first.rows == (
        RowChange("benchmarks", 1, 0, 0),
        RowChange("choice_logprobs", 6, 0, 0),
        RowChange("docs", 2, 0, 0),
        RowChange("extractions", 1, 0, 0),
        RowChange("models", 1, 0, 0),
        RowChange("tasks", 1, 0, 0),
    )
    assert first.partitions == (PartitionChange("added", "m", "b", "t"),)
    assert other.partitions == (PartitionChange("added", "other", "b", "t"),)
    assert RowChange("choice_logprobs", 9, 6, 0) in again.rows
    assert again.partitions == (PartitionChange("replaced", "m", "b", "t"),)
    assert RowChange("docs", 0, 0, 1) in relabel.rows
    assert relabel.partitions == (PartitionChange("removed", "other", "b", "t"),)
    assert all(a.time <= b.time for a, b in pairwise(found))
    assert snapshots(warehouse, 2) == found[-2:]
    assert snapshots(warehouse, 100) == found


def test_precision_is_low_in_16_bits_quantised_or_unknown(warehouse: Warehouse) -> None:
    cases: list[tuple[str, dict[str, str], bool]] = [
        ("hf", {"dtype": "float32"}, False),
        ("hf", {"dtype": "bfloat16"}, True),
        ("vllm", {"dtype": "float32", "quantization": "fp8"}, True),
        ("vllm", {}, False),
        ("openai", {}, True),
        ("openai", {"dtype": "float32"}, False),
        ("chat", {}, True),
    ]
    a, b = (
        [
            put(warehouse, scores, str(i), backend=backend, settings=json.dumps(settings))
            for i, (backend, settings, _) in enumerate(cases)
        ][-1]
        for scores in (SCORES, SCORES[::-1])
    )
    partitions = diff(warehouse.location.directory, a, b).partitions
    assert [p.low_precision for p in partitions] == [is_low for _, _, is_low in cases]


def test_differences_of_choices_against_numpy(warehouse: Warehouse) -> None:
    rng = np.random.default_rng(0)
    then = rng.normal(size=(N, 3))
    moved = rng.random((N, 3)) < 0.4
    now = np.where(moved, then + rng.normal(0.1, 0.5, size=(N, 3)), then)
    put(warehouse, then.tolist(), model="same")
    a = put(warehouse, then.tolist())
    b = put(warehouse, now.tolist(), versions={"torch": "3"}, backend="vllm")
    put(warehouse, then.tolist(), model="later")
    found = diff(warehouse.location.directory, a, b)
    assert (found.before, found.after, found.unchanged) == (a, b, 1)
    (p,) = found.partitions
    assert (p.change, p.model, p.benchmark, p.task) == ("replaced", "m", "b", "t")
    assert p.ran == {"torch": ("2", "3"), "backend": ("hf", "vllm")}
    d = now - then
    assert p.logprobs is not None
    assert p.logprobs.n == d.size
    assert p.logprobs.n_moved == moved.sum()
    assert p.logprobs.mean == pytest.approx(d.mean(), abs=1e-12)
    assert p.logprobs.quantiles == pytest.approx(np.quantile(d, QUANTILE_LEVELS), abs=1e-12)
    assert p.logprobs.largest == np.abs(d).max()
    was, is_ = then.argmax(axis=1), now.argmax(axis=1)
    assert p.flipped == (was != is_).sum() > 0
    assert p.became_right == ((is_ == 0) & (was != 0)).sum() > 0
    assert p.became_wrong == ((is_ != 0) & (was == 0)).sum() > 0
    assert p.accuracy_before == pytest.approx((was == 0).mean(), abs=1e-12)
    assert p.accuracy_after == pytest.approx((is_ == 0).mean(), abs=1e-12)
    assert p.texts is None
    back = diff(warehouse.location.directory, b, a).partitions[0]
    assert (back.became_right, back.became_wrong) == (p.became_wrong, p.became_right)
    assert diff(warehouse.location.directory, b, b).partitions == ()


def test_differences_of_answers(warehouse: Warehouse) -> None:
    a = put_answers(warehouse, [["yes"], ["no"], [None]], ["It is yes", "It is no", "?"])
    b = put_answers(warehouse, [["yes"], ["yes"], [None]], ["yes!", "It is yes", "?"])
    (p,) = diff(warehouse.location.directory, a, b).partitions
    assert p.logprobs is None
    assert p.texts == (3, 2)
    assert (p.flipped, p.became_right, p.became_wrong) == (1, 1, 0)
    assert p.accuracy_before == pytest.approx(1 / 3)
    assert p.accuracy_after == pytest.approx(2 / 3)


def test_added_removed_longer_and_relabelled(warehouse: Warehouse) -> None:
    a = put(warehouse, SCORES)
    put(warehouse, SCORES, model="gone")
    with_gone = warehouse.snapshot()
    with warehouse.transaction("remove"):
        for table in ("choice_logprobs", "extractions"):
            warehouse.connection.execute(f"DELETE FROM {table} WHERE model = 'gone'")
    b = put(warehouse, THREE)
    added = diff(warehouse.location.directory, a, with_gone)
    assert [(p.change, p.model, p.accuracy_before, p.accuracy_after) for p in added.partitions] == [
        ("added", "gone", None, 0.5)
    ]
    found = {p.model: p for p in diff(warehouse.location.directory, with_gone, b).partitions}
    assert found["gone"].change == "removed"
    assert (found["gone"].n_before, found["gone"].n_after) == (2, 0)
    assert found["m"].change == "replaced"
    assert (found["m"].n_before, found["m"].n_after, found["m"].flipped) == (2, 3, 0)
    assert found["m"].logprobs is not None
    assert (found["m"].logprobs.n, found["m"].logprobs.n_moved) == (6, 0)
    with warehouse.transaction("relabel"):
        warehouse.connection.execute("UPDATE docs SET label = 1 WHERE doc_id = 1")
    (p,) = diff(warehouse.location.directory, b, warehouse.snapshot(), "b").partitions
    assert (p.change, p.flipped, p.became_right, p.became_wrong) == ("relabelled", 0, 1, 0)
    assert [p.accuracy_before, p.accuracy_after] == pytest.approx([1 / 3, 2 / 3])


def test_a_snapshot_that_is_not_there(warehouse: Warehouse) -> None:
    last = put(warehouse, SCORES)
    place = warehouse.location.directory
    for number in (-1, last + 1, 2**63):
        message = f"has no snapshot {number}; it has 0 to {last} "
        for ask in (
            lambda n: open_warehouse(place, snapshot=n),
            lambda n: diff(place, last, n),
            lambda n: run_sql(place, "FROM docs", snapshot=n),
        ):
            with pytest.raises(InputError, match=message):
                ask(number)
    with pytest.raises(InputError, match="no tables at snapshot 0"):
        diff(place, 0, last)
    with pytest.raises(InputError, match="unknown benchmark 'c' in snapshots"):
        diff(place, last - 1, last, "c")


def test_commands(warehouse: Warehouse, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLFOCAL_WAREHOUSE", str(warehouse.location.directory))
    monkeypatch.setenv("COLUMNS", "80")
    a = put(warehouse, SCORES)
    b = put(warehouse, [[-1.5, -2.0, -3.0], [-1.0, -3.0, -2.0]], versions={"torch": "3"})
    listed, told = cli("snapshots", "--last", "1"), cli("diff", str(a), str(b))
    assert "choice_logprobs +6 −6" in " ".join(listed.out.split())
    assert "torch: 2 → 3" in told.out
    assert max(map(len, (listed.out + told.out).splitlines())) <= 80
    last = json.loads(cli("snapshots", "--json").out)[-1]
    replaced = {"change": "replaced", "model": "m", "benchmark": "b", "task": "t"}
    assert (last["id"], last["partitions"]) == (b, [replaced])
    [p] = json.loads(cli("diff", str(a), str(b), "-b", "b", "--json").out)["partitions"]
    assert (p["logprobs"]["quantiles"]["0.5"], p["accuracy_before"], p["accuracy_after"]) == (0, 0.5, 1)
    read = ("sql", "FROM accuracy SELECT accuracy", "--format", "csv")
    assert cli(*read, "--snapshot", str(a)).out == "accuracy\n0.5\n"

"""Whether models answer as they did: what is reported, what counts as drift, and what is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import comb
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.postgres_server import DIRECTORY_FIRST
from support.rows import (
    SCORES,
    THREE,
    choice_rows,
    docs,
    extraction,
    put,
    put_answers,
)

from rlfocal.base.errors import InputError
from rlfocal.upkeep.drift import (
    FULL_PRECISION_LIMITS,
    LOW_PRECISION_LIMITS,
    Drift,
    Thresholds,
    drift_between,
    drift_since,
    find_snapshot_before_extraction,
    judge_share,
    upgrades,
)
from warehouse import Warehouse, open_warehouse
from warehouse.corrections import correct_labels, remove_model
from warehouse.snapshots import PartitionDifference

N = 400
MADE = np.random.default_rng(7)
BEFORE = MADE.normal(size=(N, 3))
HALF: dict[str, Any] = {"settings": {"dtype": "bfloat16"}}


def moved(scores: Any, by: Any) -> list[list[float]]:
    sums: list[list[float]] = (np.asarray(scores) + by).tolist()
    return sums


def relabelled(doc_id: int, label: int) -> pa.Table:
    place = {"row": [0], "benchmark": ["b"], "task": ["t"], "doc_id": [doc_id]}
    return pa.table(place | {"label": [label], "gold": pa.nulls(1, pa.string())})


def evaluated(warehouse: Warehouse) -> None:
    with warehouse.transaction("evaluate"):
        warehouse.append("evaluations", pa.table({"run_id": ["r"], "benchmark": ["b"], "task": ["*"]}))


def touched(warehouse: Warehouse, where: str, by: float = 0.05) -> None:
    """Adds to stored log-probs behind everybody's back."""
    with warehouse.transaction("by hand"):
        warehouse.connection.execute(f"UPDATE choice_logprobs SET logprob = logprob + {by} WHERE {where}")


def moves(drift: Drift) -> list[PartitionDifference]:
    return [one for one in drift.difference.partitions if one.is_moved]


def beyond(drift: Drift) -> list[PartitionDifference]:
    return [one for one in drift.difference.partitions if one.key in drift.exceeded_limits]


def changes(drift: Drift) -> list[tuple[str, str]]:
    return [(one.model, one.change) for one in drift.difference.partitions]


def test_beyond_against_numpy(warehouse: Warehouse) -> None:
    rng = np.random.default_rng(0)
    after = np.where(rng.random((N, 3)) < 0.3, BEFORE + rng.normal(0.2, 0.5, size=(N, 3)), BEFORE)
    put(warehouse, BEFORE.tolist(), model="same")
    a = put(warehouse, BEFORE.tolist())
    put(warehouse, after.tolist(), versions={"torch": "3"})
    drift = drift_since(warehouse, a)
    [row] = beyond(drift)
    assert row.logprobs is not None
    assert row.logprobs.n_beyond == (np.abs(after - BEFORE) > FULL_PRECISION_LIMITS.logprob).sum()
    assert drift.exceeded_limits[row.key] == ("logprobs", "flipped")
    assert upgrades(drift) == ["torch: 2 → 3 (1 partition)"]


def test_another_gpu_is_named_as_the_likely_cause(warehouse: Warehouse) -> None:
    def made_on(product: str, scores: Any, model: str) -> int:
        about = {"settings": {"device_product": product, "batch_size": len(product)}}
        return put(warehouse, scores, model=model, versions={"torch": product}, **about)

    made_on("A100", BEFORE.tolist(), "same")
    a = made_on("A100", BEFORE.tolist(), "other")
    made_on("H100 SXM", moved(BEFORE, MADE.normal(size=BEFORE.shape)), "other")
    first, *others = upgrades(drift_since(warehouse, a))
    assert first == "likely cause: device_product: A100 → H100 SXM (1 partition)"
    assert len(others) == 2
    assert not any("cause" in line for line in others)
    made_on("A100", BEFORE.tolist(), "same")
    quiet = upgrades(drift_since(warehouse, a))
    assert sum("cause" in line for line in quiet) == 1


@DIRECTORY_FIRST
def test_one_in_a_hundred_moved_by_a_twentieth(place: str) -> None:
    with open_warehouse(place) as warehouse:
        put(warehouse, BEFORE.tolist(), model="other")
        put(warehouse, BEFORE.tolist())
        touched(warehouse, "model = 'm' AND doc_id % 100 = 0 AND choice = doc_id // 100 % 3")
        [row] = beyond(drift_since(warehouse, find_snapshot_before_extraction(warehouse)))
        assert (row.model, row.benchmark, row.task, row.change) == ("m", "b", "t", "rewritten")
        assert row.logprobs is not None
        assert (row.logprobs.n, row.logprobs.n_moved, row.logprobs.n_beyond) == (1200, 4, 4)
        assert row.logprobs.largest == pytest.approx(0.05, abs=1e-12)
        assert row.logprobs.mean == pytest.approx(0.05 * 4 / 1200, abs=1e-12)


def test_what_was_rewritten_is_drift_however_little_it_moved(warehouse: Warehouse) -> None:
    put(warehouse, SCORES, **HALF)
    touched(warehouse, "doc_id = 0", by=1e-6)
    drift = drift_since(warehouse, find_snapshot_before_extraction(warehouse))
    [row] = beyond(drift)
    assert row.logprobs is not None
    assert (row.logprobs.n_moved, row.logprobs.n_beyond) == (3, 3)
    assert drift.exceeded_limits[row.key] == ("rewritten",)


def test_the_same_extracted_again_is_no_drift(warehouse: Warehouse) -> None:
    put(warehouse, SCORES)
    a = put_answers(warehouse, [["yes"], ["no"]], ["It is yes", "It is no"])
    put(warehouse, SCORES, versions={"torch": "3"})
    put_answers(warehouse, [["yes"], ["no"]], ["It is yes", "It is no"])
    drift = drift_since(warehouse, a)
    assert changes(drift) == [("m", "replaced"), ("m", "replaced")]
    assert not moves(drift) + beyond(drift)
    assert find_snapshot_before_extraction(warehouse) == a


def test_new_partitions_are_no_drift_and_missing_ones_are_reported(warehouse: Warehouse) -> None:
    put(warehouse, SCORES)
    a = put(warehouse, SCORES, model="gone")
    put(warehouse, SCORES, model="new")
    put_answers(warehouse, [["yes"], ["no"]], ["It is yes", "It is no"])
    remove_model(warehouse, "gone")
    drift = drift_since(warehouse, a)
    assert changes(drift) == [("m", "added"), ("gone", "removed"), ("new", "added")]
    assert drift.difference.unchanged == 1
    assert not moves(drift) + beyond(drift)


def test_corrected_labels_and_other_documents_are_no_drift(warehouse: Warehouse) -> None:
    a = put(warehouse, SCORES)
    correct_labels(warehouse, relabelled(0, 1), str)
    assert changes(drift_since(warehouse, a)) == [("m", "relabelled")]
    put(warehouse, moved(SCORES, 0.5))
    [row] = moves(drift_since(warehouse, a))
    assert (row.became_right, row.became_wrong) == (0, 0)
    assert row.logprobs is not None
    assert row.logprobs.n_moved == 6  # of pairs of equal numbers, whose hashes would cancel out
    others = docs(2).set_column(3, "doc_hash", pa.array(["other0", "other1"]))
    warehouse.put_partition(others, choice_rows(THREE[1:]), extraction(), replace_documents=True)
    drift = drift_since(warehouse, a)
    assert not moves(drift)
    assert [(one.model, one.n_shared) for one in drift.difference.partitions] == [("m", 0)]


def test_sampled_answers(warehouse: Warehouse) -> None:
    passes: list[list[str | None]] = [["yes"], ["no"], [None]]
    a = put_answers(warehouse, passes, ["It is yes", "It is no", "?"])
    put_answers(warehouse, [["yes"], ["yes"], [None]], ["yes!", "It is yes", "?"])
    drift = drift_since(warehouse, a)
    [row] = moves(drift)
    assert drift.exceeded_limits[row.key] == ("texts", "flipped")


NOISY: dict[str, tuple[dict[str, Any], float, bool]] = {
    "float32": ({}, 1e-4, False),
    "float32, other numbers": ({}, 3e-3, True),
    "bfloat16": (HALF, 0.03, False),
    "bfloat16, other numbers": (HALF, 1.0, True),
    "quantised": ({"settings": {"dtype": "float32", "quantization": "awq"}}, 0.03, False),
    "served": ({"settings": {}, "backend": "openai"}, 0.03, False),
    "imported": ({"settings": {}, "backend": "predictions"}, 0.03, True),
}
"""What ran, how much its log-probs move by, and whether that is drift, by model."""


def longer(scores: Any) -> pa.Table:
    """Choices of nine tokens."""
    rows = choice_rows(scores, "longer")
    return rows.append_column("n_tokens", pa.array([9] * len(rows), pa.int32()))


@pytest.mark.slow
def test_noise_is_judged_by_precision_and_length(warehouse: Warehouse) -> None:
    rng = np.random.default_rng(1)
    for model, (settings, _, _) in NOISY.items():
        put(warehouse, BEFORE.tolist(), model, **settings)
    warehouse.put_partition(docs(N), longer(BEFORE), extraction("longer", n_docs=N))
    a = warehouse.snapshot()
    for model, (settings, noise, _) in NOISY.items():
        put(warehouse, moved(BEFORE, rng.normal(0, noise, BEFORE.shape)), model, **settings)
    found = {}
    for by in (0.0029, 0.0031):
        warehouse.put_partition(docs(N), longer(moved(BEFORE, by)), extraction("longer", n_docs=N))
        found[by] = drift_since(warehouse, a)
        assert {row.model for row in moves(found[by])} == {*NOISY, "longer"}
        assert {row.model for row in beyond(found[by])} - {"longer"} == {
            model for model, (_, _, is_drift) in NOISY.items() if is_drift
        }
    assert ["longer" in {row.model for row in beyond(one)} for one in found.values()] == [False, True]


@pytest.mark.slow
def test_an_accuracy_that_falls_within_the_log_prob_limit(warehouse: Warehouse) -> None:
    close = [[-1.0, -1.0005, -3.0]] * N
    a = put(warehouse, close)
    b = put(warehouse, [[-1.0, -0.9998, -3.0]] * 20 + close[20:])
    drift = drift_between(warehouse.location, a, b, Thresholds().replace_limits(flipped=1))
    assert list(drift.exceeded_limits.values()) == [("accuracy",)]
    put(warehouse, [[-1.0, -0.9998, -3.0]] * 5 + close[5:])
    by_chance = drift_since(warehouse, a)
    assert [row.became_wrong for row in moves(by_chance)] == [5]
    assert not by_chance.exceeded_limits


def test_the_last_extraction(warehouse: Warehouse) -> None:
    empty = warehouse.snapshot()
    assert find_snapshot_before_extraction(warehouse) == empty
    put(warehouse, SCORES)
    first = put(warehouse, SCORES, model="other")
    assert find_snapshot_before_extraction(warehouse) == empty
    evaluated(warehouse)
    assert find_snapshot_before_extraction(warehouse) == empty
    between = warehouse.snapshot()
    put(warehouse, SCORES, model="new")
    assert find_snapshot_before_extraction(warehouse) == between
    again = put(warehouse, THREE)
    assert find_snapshot_before_extraction(warehouse) == between
    put(warehouse, THREE)
    assert find_snapshot_before_extraction(warehouse) == again
    touched(warehouse, "model = 'new'")
    touched(warehouse, "model = 'm' AND doc_id = 0")
    assert find_snapshot_before_extraction(warehouse) == again + 1
    evaluated(warehouse)
    there = warehouse.snapshot()
    remove_model(warehouse, "new")
    assert find_snapshot_before_extraction(warehouse) == there
    put(warehouse, SCORES, model="new")
    assert find_snapshot_before_extraction(warehouse) == there
    assert drift_since(warehouse, there).exceeded_limits  # its numbers were touched above
    with open_warehouse(warehouse.location, snapshot=first) as then:
        assert find_snapshot_before_extraction(then) == empty


def test_the_command(warehouse: Warehouse, cli: Callable[..., Any]) -> None:
    place = ("--warehouse", str(warehouse.location.directory))
    a = put(warehouse, SCORES)
    touched(warehouse, "doc_id = 1")
    told = cli("diff", *place)
    assert (told.code, "1 rewritten" in told.out) == (0, True), told.err
    failing = cli("diff", str(a), "--fail", "--json", *place)
    assert failing.code == 1
    [row] = json.loads(failing.out)["partitions"]
    assert (row["model"], row["beyond"], row["logprobs"]["n_moved"]) == ("m", ["rewritten"], 3)
    assert cli("diff", str(a), str(a), "--fail", *place).code == 0
    assert "no snapshot 99" in cli("diff", "99", *place).err
    assert cli("diff", "--flipped", "2", *place).code == 2
    assert "`rlfocal diff`" in cli("drift", *place).err


@given(count=st.integers(0, 50), more=st.integers(0, 50), percent=st.integers(0, 100))
def test_exceeding_is_more_than_chance(count: int, more: int, percent: int) -> None:
    n, share = count + more + 1, percent / 100
    p_value = sum(comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(count, n + 1))
    if abs(p_value - 0.05) > 1e-9:
        verdict = ("changed" if p_value < 0.05 else "unclear") if count > share * n else "unchanged"
        assert judge_share(count, n, share, 0.05) == verdict
    assert judge_share(0, n, share, 0.05) == "unchanged"
    assert judge_share(count, n, 0.0, 1e-9) == ("changed" if count else "unchanged")


def test_noise_of_many_partitions_raises_no_alarm() -> None:
    """1,000 partitions of 20 to 500 documents, as noisy as the thresholds grant: about one alarm in 20."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(100):
        n = rng.integers(20, 500, 1000)
        flips = rng.binomial(n, LOW_PRECISION_LIMITS.flipped)
        alarms += any(
            judge_share(int(count), int(of), LOW_PRECISION_LIMITS.flipped, 0.05 / 1000) == "changed"
            for count, of in zip(flips, n, strict=True)
            if count > 2 * LOW_PRECISION_LIMITS.flipped * of
        )
    assert alarms <= 10


def test_given_thresholds(warehouse: Warehouse) -> None:
    rng = np.random.default_rng(8)
    a = put(warehouse, BEFORE.tolist())
    put(warehouse, moved(BEFORE, rng.normal(0.2, 0.2, BEFORE.shape)))
    lenient = Thresholds().replace_limits(logprob=5, flipped=1, accuracy=1)
    assert not drift_since(warehouse, a, lenient).exceeded_limits
    by_flips = drift_since(warehouse, a, Thresholds().replace_limits(logprob=5, accuracy=1)).exceeded_limits
    assert list(by_flips.values()) == [("flipped",)]
    for wrong in ({"logprob": -1.0}, {"logprob": float("nan")}, {"flipped": 1.1}, {"accuracy": -0.1}):
        with pytest.raises(InputError, match="drift threshold"):
            Thresholds().replace_limits(**wrong)

"""Whether models answer as they did: what is reported, what counts as drift, and what is none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.cli import Result
from support.postgres_server import DIRECTORY_FIRST
from support.rows import SCORES, THREE, choice_rows, docs, extraction, put, put_answers

from rlfocal.report.drift import drift_part
from rlfocal.report.figures.style import svg
from rlfocal.upkeep.drift import (
    FULL,
    Drift,
    Thresholds,
    before_last_extraction,
    drift_between,
    drift_since,
    markdown,
    sentences,
)
from warehouse import Warehouse, open_warehouse
from warehouse.corrections import correct_labels, remove_model

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


def only_sameness(found: Drift) -> bool:
    return not found.rows and not found.beyond and not found.other_documents


def test_figures_against_numpy(warehouse: Warehouse) -> None:
    rng = np.random.default_rng(0)
    which = rng.random((N, 3)) < 0.3
    after = np.where(which, BEFORE + rng.normal(0.2, 0.5, size=(N, 3)), BEFORE)
    put(warehouse, BEFORE.tolist(), model="same")
    a = put(warehouse, BEFORE.tolist())
    put(warehouse, after.tolist(), versions={"torch": "3"})
    found = drift_since(warehouse, a)
    assert (found.before, found.after, found.same) == (a, warehouse.snapshot(), 1)
    [row] = found.beyond
    assert (row.model, row.benchmark, row.task, row.n_docs) == ("m", "b", "t", N)
    assert not row.rewritten
    assert row.ran == {"torch": ("2", "3")}
    d = after - BEFORE
    assert row.logprobs is not None
    assert (row.logprobs.n, row.logprobs.n_moved) == (d.size, which.sum())
    assert row.logprobs.n_beyond == (np.abs(d) > FULL.logprob).sum()
    assert row.logprobs.mean == pytest.approx(d.mean(), abs=1e-12)
    assert row.logprobs.mean_moved == pytest.approx(d[which].mean(), abs=1e-12)
    assert row.logprobs.largest == np.abs(d).max()
    was, is_ = BEFORE.argmax(axis=1), after.argmax(axis=1)
    assert row.flipped == (was != is_).sum() > 0
    assert row.became_right == ((is_ == 0) & (was != 0)).sum() > 0
    assert row.became_wrong == ((is_ != 0) & (was == 0)).sum() > 0
    assert row.accuracy_before == pytest.approx((was == 0).mean(), abs=1e-12)
    assert row.accuracy_after == pytest.approx((is_ == 0).mean(), abs=1e-12)
    assert row.change.mean == pytest.approx((is_ == 0).mean() - (was == 0).mean(), abs=1e-12)
    assert row.change.low < row.change.mean < row.change.high
    [headline, about, upgrade] = sentences(found)
    assert headline.endswith("the answers of 1 partition moved, 1 beyond the thresholds; 1 is the same")
    assert about.startswith(f"m drifted on b/t; {which.sum()} of 1,200 log-probs")
    assert upgrade == "torch: 2 → 3 (1 partition)"


@DIRECTORY_FIRST
def test_one_in_a_hundred_moved_by_a_twentieth(place: str) -> None:
    with open_warehouse(place) as warehouse:
        put(warehouse, BEFORE.tolist(), model="other")
        put(warehouse, BEFORE.tolist())
        touched(warehouse, "model = 'm' AND doc_id % 100 = 0 AND choice = doc_id // 100 % 3")
        found = drift_since(warehouse, before_last_extraction(warehouse))
        [row] = found.beyond
        assert (row.model, row.benchmark, row.task, row.rewritten) == ("m", "b", "t", True)
        assert row.logprobs is not None
        assert (row.logprobs.n, row.logprobs.n_moved, row.logprobs.n_beyond) == (1200, 4, 4)
        assert row.logprobs.mean_moved == pytest.approx(0.05, abs=1e-12)
        assert row.logprobs.largest == pytest.approx(0.05, abs=1e-12)
        assert row.logprobs.mean == pytest.approx(0.05 * 4 / 1200, abs=1e-12)


def test_what_was_rewritten_is_drift_however_little_it_moved(warehouse: Warehouse) -> None:
    put(warehouse, SCORES, **HALF)
    touched(warehouse, "doc_id = 0", by=1e-6)
    [row] = drift_since(warehouse, before_last_extraction(warehouse)).beyond
    assert row.logprobs is not None
    assert (row.logprobs.n_moved, row.logprobs.n_beyond) == (3, 3)
    assert row.reasons == ("its answers differ, although it was not extracted again",)


def test_the_same_extracted_again_is_no_drift(warehouse: Warehouse) -> None:
    put(warehouse, SCORES)
    a = put_answers(warehouse, [["yes"], ["no"]], ["It is yes", "It is no"])
    put(warehouse, SCORES, versions={"torch": "3"})
    put_answers(warehouse, [["yes"], ["no"]], ["It is yes", "It is no"])
    found = drift_since(warehouse, a)
    assert only_sameness(found)
    assert (found.same, found.new, found.gone) == (2, (), ())
    assert "0 partitions moved, 0 beyond the thresholds; 2 are the same" in sentences(found)[0]
    assert before_last_extraction(warehouse) == a


def test_new_partitions_are_no_drift_and_missing_ones_are_reported(warehouse: Warehouse) -> None:
    put(warehouse, SCORES)
    a = put(warehouse, SCORES, model="gone")
    put(warehouse, SCORES, model="new")
    put_answers(warehouse, [["yes"], ["no"]], ["It is yes", "It is no"])
    remove_model(warehouse, "gone")
    found = drift_since(warehouse, a)
    assert only_sameness(found)
    assert [(key.model, key.benchmark) for key in found.new] == [("m", "answers"), ("new", "b")]
    assert [key.model for key in found.gone] == ["gone"]
    assert sentences(found)[1:] == ["gone: 1 partition gone"]
    assert "2 are new, 1 is gone" in markdown(found)


@pytest.mark.slow
def test_a_lengthened_partition_is_compared_on_common_documents(warehouse: Warehouse) -> None:
    a = put(warehouse, SCORES)
    b = put(warehouse, THREE)
    same = drift_between(warehouse.location, a, b)
    assert only_sameness(same)
    assert same.same == 1
    put(warehouse, moved(THREE, [[0, 0, 0], [0.3, 0, 0], [5, 5, 5]]))
    [row] = drift_since(warehouse, a).beyond
    assert row.n_docs == 2
    assert row.logprobs is not None
    assert (row.logprobs.n, row.logprobs.n_moved) == (6, 1)
    assert row.logprobs.largest == pytest.approx(0.3)


def test_corrected_labels_and_other_documents_are_no_drift(warehouse: Warehouse) -> None:
    a = put(warehouse, SCORES)
    correct_labels(warehouse, relabelled(0, 1), str)
    assert only_sameness(drift_since(warehouse, a))
    put(warehouse, moved(SCORES, 0.5))
    [row] = drift_since(warehouse, a).rows
    assert row.accuracy_before == row.accuracy_after == 0
    assert row.logprobs is not None
    assert row.logprobs.n_moved == 6  # of pairs of equal numbers, whose hashes would cancel out
    assert row.change.mean == 0
    others = docs(2).set_column(3, "doc_hash", pa.array(["other0", "other1"]))
    warehouse.put_partition(others, choice_rows(THREE[1:]), extraction(), replace_documents=True)
    found = drift_since(warehouse, a)
    assert not found.rows
    assert [key.model for key in found.other_documents] == ["m"]


def test_sampled_answers(warehouse: Warehouse) -> None:
    passes: list[list[str | None]] = [["yes"], ["no"], [None]]
    a = put_answers(warehouse, passes, ["It is yes", "It is no", "?"])
    put_answers(warehouse, [["yes"], ["yes"], [None]], ["yes!", "It is yes", "?"])
    found = drift_since(warehouse, a)
    [row] = found.rows
    assert row.logprobs is None
    assert row.texts is not None
    assert (row.texts.n, row.texts.n_changed) == (3, 2)
    assert (row.n_docs, row.flipped, row.became_right, row.became_wrong) == (3, 1, 1, 0)
    assert any("of 3 sampled texts differ" in reason for reason in row.reasons)
    assert "2 of 3 sampled texts differ" in sentences(found)[1]


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
        assert {row.model for row in found[by].rows} == {*NOISY, "longer"}
        assert {row.model for row in found[by].beyond} - {"longer"} == {
            model for model, (_, _, is_drift) in NOISY.items() if is_drift
        }
    assert ["longer" in {row.model for row in one.beyond} for one in found.values()] == [False, True]


@pytest.mark.slow
def test_an_accuracy_that_falls_within_the_log_prob_limit(warehouse: Warehouse) -> None:
    close = [[-1.0, -1.0005, -3.0]] * N
    a = put(warehouse, close)
    b = put(warehouse, [[-1.0, -0.9998, -3.0]] * 20 + close[20:])
    [row] = drift_between(warehouse.location, a, b, Thresholds().changed(flipped=1)).beyond
    assert row.reasons == ("the accuracy changed by -5.00 points, more than 1 and more than chance",)
    put(warehouse, [[-1.0, -0.9998, -3.0]] * 5 + close[5:])
    [by_chance] = drift_since(warehouse, a).rows
    assert by_chance.change.mean == -0.0125
    assert not by_chance.reasons


def test_the_last_extraction(warehouse: Warehouse) -> None:
    empty = warehouse.snapshot()
    assert before_last_extraction(warehouse) == empty
    put(warehouse, SCORES)
    first = put(warehouse, SCORES, model="other")
    assert before_last_extraction(warehouse) == empty
    evaluated(warehouse)
    assert before_last_extraction(warehouse) == empty
    between = warehouse.snapshot()
    put(warehouse, SCORES, model="new")
    assert before_last_extraction(warehouse) == between
    again = put(warehouse, THREE)
    assert before_last_extraction(warehouse) == between
    put(warehouse, THREE)
    assert before_last_extraction(warehouse) == again
    touched(warehouse, "model = 'new'")
    touched(warehouse, "model = 'm' AND doc_id = 0")
    assert before_last_extraction(warehouse) == again + 1
    evaluated(warehouse)
    there = warehouse.snapshot()
    remove_model(warehouse, "new")
    assert before_last_extraction(warehouse) == there
    put(warehouse, SCORES, model="new")
    assert before_last_extraction(warehouse) == there
    assert drift_since(warehouse, there).beyond  # its numbers were touched above
    with open_warehouse(warehouse.location, snapshot=first) as then:
        assert before_last_extraction(then) == empty


def test_compacting_is_no_extraction(warehouse: Warehouse) -> None:
    empty = warehouse.snapshot()
    for model in ("m", "other"):
        put(warehouse, BEFORE.tolist(), model)
    evaluated(warehouse)
    last = warehouse.snapshot()
    warehouse.connection.execute("CALL ducklake_merge_adjacent_files('warehouse')")
    assert warehouse.snapshot() > last
    assert before_last_extraction(warehouse) == empty


def test_the_command(warehouse: Warehouse, cli: Callable[..., Any]) -> None:
    place = ("--warehouse", str(warehouse.location.directory))
    a = put(warehouse, SCORES)
    touched(warehouse, "doc_id = 1")
    told = cli("drift", *place)
    assert told.code == 0, told.err
    assert "m on b/t: 3 of 6 log-probs moved, by +0.05 on average (+0.025 over all)" in told.out
    failing = cli("drift", "--fail", "--from", str(a), "--json", *place)
    assert failing.code == 1
    said = json.loads(failing.out)
    assert [row["model"] for row in said["beyond"]] == ["m"]
    assert said["rows"][0]["logprobs"]["mean_moved"] == pytest.approx(0.05)
    assert said["thresholds"]["accuracy"] == 0.01
    assert "| m | b/t | 2 | 3 of 6 |" in cli("drift", "--markdown", *place).out
    assert cli("drift", "--from", str(a), "--to", str(a), "--fail", *place).code == 0
    assert "no snapshot 99" in cli("drift", "--from", "99", *place).err
    assert cli("drift", "--flipped", "2", *place).code == 2


@pytest.mark.slow
def test_the_report_shows_drift(toy: Result, cli: Callable[..., Result]) -> None:
    with open_warehouse() as warehouse:
        assert drift_part(warehouse) is None
        touched(warehouse, "model = 'strong' AND doc_id < 5 AND choice = 2")
    assert cli("evaluate", "-b", "toy", "--methods", "best_single,plurality").code == 0
    written = cli("report")
    assert written.code == 0, written.err
    told = Path(written.out.strip()).read_text("utf-8")
    assert "strong drifted on toy/t; 5 of 150 log-probs (3.33%) moved by +0.05 on average" in told
    assert '<th scope="row">strong</th>' in told.partition('id="drift"')[2]


@pytest.mark.slow
def test_a_lost_file_of_an_earlier_snapshot_costs_the_report_its_part_alone(warehouse: Warehouse) -> None:
    put(warehouse, BEFORE.tolist())
    listed = "SELECT data_file FROM ducklake_list_files('warehouse', 'choice_logprobs')"
    [(file,)] = warehouse.rows(listed)
    put(warehouse, moved(BEFORE, 0.5))
    part = drift_part(warehouse)
    assert part is not None
    assert len(part.table.rows) == 1
    assert part.table.html().count('<tr class="ours">') == 1
    assert part.figure is not None
    assert "of 1 partition, 1 beyond the thresholds" in part.figure.description
    shown = [row for rows in part.figure.spec["datasets"].values() for row in rows if "model" in row]
    assert [(row["model"], row["task"], row["kind"]) for row in shown] == [
        ("m", "b/t", "beyond the thresholds")
    ]
    assert 100 * abs(drift_since(warehouse, before_last_extraction(warehouse)).rows[0].change.mean) == (
        pytest.approx(abs(shown[0]["mean"]))
    )
    assert "var(--" not in svg(part.figure.spec)
    Path(file).unlink()
    assert drift_part(warehouse) is None


@pytest.mark.slow
def test_the_embedded_pool(lab_warehouse: Path, tmp_path: Path) -> None:
    """One in a hundred log-probs of one model moved is reported; the model extracted again is not."""
    from rlfocal.extraction.running.runner import extract_pool
    from rlfocal.pool import load_pool

    shutil.copytree(lab_warehouse, tmp_path / "w")
    pool = load_pool("lab").choose(["lab-phi"], ["lab-mmlu"])
    with open_warehouse(tmp_path / "w") as warehouse:
        start = warehouse.snapshot()
        remove_model(warehouse, "lab-phi", ["lab-mmlu"])
    report = extract_pool(tmp_path / "w", pool)
    assert len(report.committed) == 6
    with open_warehouse(tmp_path / "w") as warehouse:
        undisturbed = drift_since(warehouse, start)
        assert only_sameness(undisturbed)
        assert (undisturbed.same, undisturbed.new, undisturbed.gone) == (12 * 17, (), ())
        last = warehouse.snapshot()
        of_phi = "model = 'lab-phi' AND task = 'medicine'"
        touched(warehouse, f"{of_phi} AND doc_id % 25 = 0 AND choice = 1", by=-0.05)
        for since in (last, before_last_extraction(warehouse)):
            [row] = drift_since(warehouse, since).beyond
            assert (row.model, row.benchmark, row.task) == ("lab-phi", "lab-mmlu", "medicine")
            assert row.logprobs is not None
            assert row.logprobs.n == 4 * row.n_docs
            assert row.logprobs.n_moved == row.logprobs.n_beyond == -(-row.n_docs // 25)
            assert row.logprobs.largest == pytest.approx(0.05, abs=1e-9)

"""Streams of real documents that drift: which documents come when, and whose answers are replaced."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from support.datasets import make_logits
from support.report_lab import Lab

from benchmarks.results.drift import DEGRADED_MODELS, STREAMS, DriftTable
from rlfocal.data.dataset import Dataset
from warehouse import open_warehouse


def make_tasks() -> Dataset:
    """60 train documents, then 60 test documents of three tasks in turn."""
    return replace(make_logits(3), tasks=np.array(["a", "b", "c"] * 40))


@pytest.mark.parametrize("stream", STREAMS)
def test_a_stream_has_train_as_it_is_and_every_test_document_once(stream: str) -> None:
    data = make_tasks()
    made, order = STREAMS[stream](data, data.test.tasks, 5)
    assert made.train.fingerprint() == data.train.fingerprint()
    assert sorted(made.test.doc_ids) == sorted(data.test.doc_ids)
    assert (made.test.doc_ids == data.test.doc_ids[order]).all()
    again, other = (STREAMS[stream](data, data.test.tasks, seed)[1] for seed in (5, 6))
    assert (again == order).all()
    assert (other != order).any()


def test_each_task_comes_twice_in_a_block() -> None:
    data = make_tasks()
    made, _ = STREAMS["tasks in blocks"](data, data.test.tasks, 0)
    blocks = [(task, len(list(documents))) for task, documents in groupby(made.test.tasks.tolist())]
    merged = 6 - len(
        blocks
    )  # where the last block of the first half and the first of the second are of one task
    assert merged in (0, 1)
    assert sum(n for _, n in blocks) == 60
    for half in (made.test.tasks[:30], made.test.tasks[30:]):
        assert np.unique(half, return_counts=True)[1].tolist() == [10, 10, 10]


def test_the_best_models_alone_get_answers_to_other_documents_of_the_task_after_a_third() -> None:
    data = make_tasks()
    data = data.take(np.r_[np.arange(60), np.tile(np.arange(60, 120), 40)])
    plain, _ = STREAMS["shuffled"](data, data.test.tasks, 0)
    made, _ = STREAMS["models degrade"](data, data.test.tasks, 0)
    changed = (made.test.probs != plain.test.probs).any(axis=2)
    best = set(data.train.rank_models()[:DEGRADED_MODELS].tolist())
    assert set(np.flatnonzero(changed.any(axis=0)).tolist()) == best
    third = len(plain.test) // 3
    assert not changed[:third].any()
    assert 0.3 < changed[third:, sorted(best)].mean() < 0.5
    assert (made.test.predictions < made.test.n_choices[:, None]).all()
    for model in best:
        assert made.test.correct[third:, model].mean() < plain.test.correct[third:, model].mean() - 0.1
        for task in "abc":  # the task's own answers are given in another order, some of them twice
            of_task = made.test.tasks == task
            assert set(made.test.probs[of_task, model, 0]) <= set(plain.test.probs[of_task, model, 0])


def test_rows_pair_online_decisions_with_frozen_ones_by_document(tmp_path: Path) -> None:
    with open_warehouse(tmp_path / "warehouse") as warehouse:
        Lab(warehouse).add_benchmark("facts", ("a", "b"), 60, (0.9, 0.3, 0.8, 0.3, 0.3, 0.3), 0)
        methods = ("best_single", "latest_correct")
        table = DriftTable("facts", methods, methods[:1], streams=("models degrade",), seeds=2)
        about, [single, latest] = table.rows(warehouse)
    assert (about["models"], about["documents"]) == (6, 60)
    assert single["above"]["frozen"][0] == 0  # it learns nothing online
    assert set(latest["above"]) == {"frozen", "best_single"}
    gain = latest["accuracy"] - single["accuracy"]
    assert latest["above"]["best_single"][0] == pytest.approx(gain, abs=2e-6)
    assert single["accuracy"] < 0.85
    assert latest["mean_pool_size"] == 3

"""Data made harder, and only so: what a stress changes, and what it must leave alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.datasets import make_answers, make_logits

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.evaluation.planning import split_anew
from rlfocal.evaluation.studies.sweeps import corrupt_labels, drop_answers, keep_labels

CHOICES = make_logits(0, T=200, N=4, C=4)
ANSWERS = make_answers(*[("aabb", "a"), ("dcba", "b"), ("eeea", "z"), ("bb--", "b")] * 20)
BOTH = pytest.mark.parametrize("data", [CHOICES, ANSWERS], ids=["choices", "answers"])


def same(one: Dataset, other: Dataset) -> bool:
    return one.fingerprint() == other.fingerprint()


@BOTH
def test_fewer_labels_are_part_of_more_and_test_stays(data: Dataset) -> None:
    few, more = keep_labels(data, 10), keep_labels(data, 25)
    assert (len(few.train), len(more.train)) == (10, 25)
    assert set(few.train.doc_ids.tolist()) < set(more.train.doc_ids.tolist())
    assert same(few.test, data.test)
    assert same(keep_labels(data, len(data)), data)


@BOTH
def test_models_fail_in_test_alone_and_as_often_as_said(data: Dataset) -> None:
    harder = drop_answers(data, 0.3)
    assert same(harder.train, data.train)
    gone = (harder.predictions == -1) & (data.predictions >= 0)
    there = (data.predictions >= 0) & ~data.is_train[:, None]
    assert 0.15 < gone[there].mean() < 0.45
    assert not harder.probs[gone].any()
    kept = harder.predictions >= 0
    assert (harder.predictions[kept] == data.predictions[kept]).all()
    assert same(drop_answers(data, 0.0), data)


@BOTH
def test_wrong_labels_are_other_slots_in_train(data: Dataset) -> None:
    harder = corrupt_labels(data, 0.4)
    assert same(harder.test, data.test)
    wrong = harder.labels != data.labels
    can = data.is_train & (data.labels >= 0) & (data.n_choices > 1)
    assert 0.25 < wrong[can].mean() < 0.55
    assert not wrong[~can].any()
    assert ((harder.labels >= 0) == (data.labels >= 0)).all()
    assert (harder.labels < np.maximum(data.n_choices, 1)).all()


@given(st.lists(st.integers(1, 30), min_size=5, max_size=12))
def test_splits_cover_and_do_not_overlap(sizes: list[int]) -> None:
    names = np.repeat([f"t{at:02d}" for at in range(len(sizes))], sizes)
    n = len(names)
    data = make_logits(0, T=n, N=2)
    data = Dataset(**{**vars(data), "tasks": names, "doc_ids": np.concatenate([np.arange(s) for s in sizes])})
    last, random = split_anew(data, "last"), split_anew(data, "random")
    for at, size in enumerate(sizes):
        rows = names == f"t{at:02d}"
        assert last.is_train[rows].sum() == random.is_train[rows].sum() == int(0.8 * size)
        assert last.is_train[rows].tolist() == sorted(last.is_train[rows].tolist(), reverse=True)
    held_out = [~split_anew(data, f"tasks:{part}/5").is_train for part in range(1, 6)]
    assert (np.sum(held_out, axis=0) == 1).all()
    for mask in held_out:
        assert not set(names[mask]) & set(names[~mask])
    assert (split_anew(data, "tasks").is_train == ~held_out[0]).all()


@pytest.mark.parametrize("split", ["last", "random", "tasks:2/3"])
def test_splits_of_train_see_no_test_row(split: str) -> None:
    tasks = np.repeat(["a", "b", "c"], [50, 60, 90])
    data = replace(CHOICES, tasks=tasks, is_train=np.arange(200) % 4 > 0)
    made = split_anew(data, f"train-{split}")
    assert made.fingerprint() == split_anew(data.train, split).fingerprint()
    assert len(made) == len(data.train)
    assert 0 < made.is_train.sum() < len(made)
    assert set(zip(made.tasks, made.doc_ids, strict=True)) == set(
        zip(data.train.tasks, data.train.doc_ids, strict=True)
    )


@pytest.mark.parametrize(
    ("split", "told"),
    [
        ("tasks", "too few to hold out"),
        ("tasks:0/5", "'0/5'"),
        ("last:1/2", "unknown split 'last:1/2'"),
        ("train-given", "unknown split 'train-given'"),
    ],
)
def test_splits_that_cannot_be_are_refused(split: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        split_anew(CHOICES, split)

"""Splits of a benchmark cover its documents and do not overlap; those of train see no test document."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.datasets import make_logits

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.loading import load_dataset
from rlfocal.evaluation.planning import split_anew
from rlfocal.evaluation.running import evaluate
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.statistics.homogeneity import count_shares
from warehouse import Warehouse

CHOICES = make_logits(0, T=200, N=4, C=4)


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


def test_train_and_test_of_a_run_are_its_own(warehouse: Warehouse) -> None:
    """Runs with other splits of the same benchmark decided other documents."""
    labels = np.random.default_rng(0).choice(["A", "B"], 60)
    table = pd.DataFrame({"id": range(60), "model": "m", "A": -1.0, "B": -2.0, "label": labels})
    import_predictions(warehouse, table, benchmark="b")
    runs = {
        split: evaluate(warehouse, "b", methods=["constant_choice"], split=split).rows[0].run_id
        for split in ("last", "random")
    }
    for split, run in runs.items():
        made = split_anew(load_dataset(warehouse, "b"), split)
        sides = made.labels[made.is_train], made.labels[~made.is_train]
        counted = {s.property: s for s in count_shares(warehouse, "b", made.models, run)}
        for label in range(2):
            share = counted[f"label {label}"]
            assert (share.n_train, share.n_test) == tuple(map(len, sides))
            assert (share.k_train, share.k_test) == tuple((of == label).sum() for of in sides)

"""Folds of documents and of tasks, and their rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agents_data import asked_about, skilled

from rlfocal.base.errors import InputError
from rlfocal.data.folds import folds, split_folds


@given(n=st.integers(2, 60), k=st.integers(2, 7), seed=st.integers(0, 5))
def test_folds_are_equal_parts(n: int, k: int, seed: int) -> None:
    fold = folds(skilled([0.5, 0.5], n_docs=n), k, seed=seed)
    sizes = np.bincount(fold)
    assert len(sizes) == min(k, n)
    assert sizes.max() - sizes.min() <= 1


def test_tasks_are_held_out_whole() -> None:
    data = asked_about(skilled([0.5, 0.5], n_docs=90))
    fold = folds(data, 3, by="task")
    assert sorted({(str(task), int(part)) for task, part in zip(data.tasks, fold, strict=True)}, key=str)
    assert len({(str(task), int(part)) for task, part in zip(data.tasks, fold, strict=True)}) == 3
    with pytest.raises(InputError, match="1 tasks"):
        folds(data.hide_tasks(), 3, by="task")


def test_each_row_is_held_out_once() -> None:
    fold = folds(skilled([0.5, 0.5], n_docs=7), 3)
    parts = list(split_folds(fold))
    assert sorted(np.concatenate([out for _, out in parts]).tolist()) == list(range(7))
    for number, (rest, out) in enumerate(parts):
        assert (fold[out] == number).all()
        assert sorted([*rest.tolist(), *out.tolist()]) == list(range(7))

"""Folds of documents and of tasks, and what is decided out of fold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agents_data import asked_about, skilled

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.data.folds import folds, out_of_fold
from rlfocal.data.policy import Fitted
from rlfocal.methods.log_linear import fit_log_linear


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


def test_no_document_is_decided_by_what_was_fitted_to_it() -> None:
    data, seen = skilled([0.6, 0.7, 0.5], n_docs=60), []

    def fit(rows: Dataset) -> list[Fitted]:
        seen.append(set(rows.doc_ids.tolist()))
        everyone = np.ones(3, dtype=np.bool_)
        return [fit_log_linear(rows, everyone), fit_log_linear(rows, np.arange(3) == 1)]

    fold = folds(data, 3)
    pool, single = out_of_fold(fit, data, fold)
    for number, documents in enumerate(seen):
        assert documents == set(data.doc_ids[fold != number].tolist())
    np.testing.assert_array_equal(single.predictions, data.predictions[:, 1])
    assert pool.pools.all()
    assert single.pools.sum(axis=1).tolist() == [1] * 60

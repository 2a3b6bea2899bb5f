"""Which train documents are held out together, and which sample stands for all of them."""

from __future__ import annotations

import numpy as np

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.dataset import Dataset
from rlfocal.methods.rl_focal_sequential.observations import MANY_TASKS

_TELLING = 3_000


def telling(n: int) -> Ints:
    """Evenly spaced positions among n documents, on which models and recipes are compared."""
    return np.linspace(0, n - 1, min(n, _TELLING)).round().astype(np.int64)


def task_counts(train_rows: Dataset) -> Floats:
    """(T,) weights that sum to T; each of many tasks weighs the same: test has others, of any size."""
    tasks = np.unique(train_rows.tasks, return_inverse=True)[1]
    sizes = np.bincount(tasks)
    if len(sizes) < MANY_TASKS:
        return np.ones(len(tasks))
    return np.asarray(len(tasks) / len(sizes) / sizes[tasks])


def hold_out(train_rows: Dataset, folds: int, seed: int) -> Ints:
    """(T,) each document's fold: whole tasks where there are many."""
    tasks = np.unique(train_rows.tasks, return_inverse=True)[1]
    if tasks.max() + 1 < MANY_TASKS:
        return hold_out_rows(len(train_rows), folds, seed)
    return hold_out_rows(int(tasks.max()) + 1, folds, seed)[tasks]


def hold_out_rows(n: int, folds: int, seed: int) -> Ints:
    """(n,) folds of equal size, drawn at random."""
    return np.asarray(np.random.default_rng(seed).permutation(np.arange(n) % folds))

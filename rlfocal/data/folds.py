"""Cross-validation on train documents: which fold holds each document, and which rows a fit may see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from rlfocal.base.arrays import Ints
from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset


def draw_folds(n: int, k: int, seed: int = 0) -> Ints:
    """(n,) the fold of each of n rows, from 0 to k - 1, drawn by the seed; sizes differ by at most one."""
    return np.asarray(np.random.default_rng(seed).permutation(np.arange(n) % k))


def folds(
    data: Dataset,
    k: int,
    by: Literal["document", "task", "document of each task"] = "document",
    seed: int = 0,
) -> Ints:
    """(T,) the fold of each document, from 0 to k - 1, drawn by the seed.

    Sizes of folds differ by at most one document, or by one task if `by` is task. By `document of each task`,
    their numbers of documents of any one task also differ by at most one. There are fewer folds if there are
    fewer documents or tasks than k. Raises InputError for fewer than two.
    """
    names, tasks = np.unique(data.tasks, return_inverse=True)
    n, what = (len(names), "tasks") if by == "task" else (len(data), "documents")
    k = min(k, n)
    if k < 2:
        raise InputError(
            f"benchmark {data.benchmark!r} has {n} {what}, too few to hold out in folds of two or more"
        )
    if by == "document of each task":
        rng = np.random.default_rng(seed)
        shuffled = [rng.permutation(np.flatnonzero(tasks == task)) for task in range(len(names))]
        fold = np.empty(n, dtype=np.int64)
        fold[np.concatenate(shuffled)] = np.arange(n) % k
        return fold
    drawn = draw_folds(n, k, seed)
    return drawn[tasks] if by == "task" else drawn


def split_folds(fold: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yields, for each fold, the rows of the other folds, to fit on, and the fold's rows, which are held out.

    `fold` (T,): the fold of each row, from 0.
    """
    for number in range(int(fold.max(initial=-1)) + 1):
        yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)

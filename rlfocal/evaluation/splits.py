"""Which documents are train and which test: as given, or split anew to ask a harder question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rlfocal.base.arrays import Bools, Ints
from rlfocal.base.errors import InputError, unknown
from rlfocal.data.dataset import Dataset

GIVEN = "given"
TRAIN_SHARE = 0.8
FOLDS = 5
"""Parts of the tasks, one of which is held out."""
_OF_TRAIN = "train-"


def split_anew(dataset: Dataset, split: str) -> Dataset:
    """The dataset with another split of its documents.

    `given`: as it is. `last`: of each task in order, the first floor(0.8 n) documents train. `random`: as
    many of each task, drawn with seed 0. `tasks`: whole tasks are held out, a fifth of them; `tasks:2/5`
    holds out the second fifth, so that all five cover every document. `train-last`, `train-random` and
    `train-tasks:1/3` do so among the given train rows alone: for choices, so that no test row is looked at.
    Raises InputError for another name, and for fewer tasks than parts.
    """
    name, _, part = split.removeprefix(_OF_TRAIN).partition(":")
    is_of_train = split.startswith(_OF_TRAIN)
    if name not in _SPLITS or (part and name != "tasks") or (is_of_train and name == GIVEN):
        raise unknown("split", split, SPLITS)
    rows = dataset.train if is_of_train else dataset
    return rows if name == GIVEN else replace(rows, is_train=_SPLITS[name](rows, part))


def _last(dataset: Dataset, _: str) -> Bools:
    return _of_each_task(dataset, lambda n: np.arange(n))


def _random(dataset: Dataset, _: str) -> Bools:
    rng = np.random.default_rng(0)
    return _of_each_task(dataset, rng.permutation)


def _of_each_task(dataset: Dataset, order: Callable[[int], Ints]) -> Bools:
    is_train = np.zeros(len(dataset), dtype=np.bool_)
    for task in dict.fromkeys(dataset.tasks.tolist()):
        rows = np.flatnonzero(dataset.tasks == task)
        is_train[rows[order(len(rows))[: int(TRAIN_SHARE * len(rows))]]] = True
    return is_train


def _tasks(dataset: Dataset, part: str) -> Bools:
    at, folds = _part(part or f"1/{FOLDS}")
    tasks = sorted(set(dataset.tasks.tolist()))
    if len(tasks) < folds:
        raise InputError(
            f"benchmark {dataset.benchmark!r} has {len(tasks)} tasks, too few to hold out one of {folds} "
            "parts; use "
            + (f"--split tasks:1/{len(tasks)}" if len(tasks) > 1 else "--split random or --split last")
        )
    drawn = np.random.default_rng(0).permutation(tasks)
    return ~np.isin(dataset.tasks, drawn[at - 1 :: folds])


def _part(text: str) -> tuple[int, int]:
    at, _, folds = text.partition("/")
    if not (at.isdecimal() and folds.isdecimal() and 1 <= int(at) <= int(folds) and int(folds) > 1):
        raise InputError(f"{text!r} does not name a part of the tasks; give one such as tasks:2/5")
    return int(at), int(folds)


_SPLITS: dict[str, Callable[[Dataset, str], Bools]] = {
    GIVEN: lambda dataset, _: dataset.is_train,
    "last": _last,
    "random": _random,
    "tasks": _tasks,
}
SPLITS = (*_SPLITS, *(f"{_OF_TRAIN}{name}" for name in _SPLITS if name != GIVEN))

"""Which documents are train and which test: as given, or split anew to ask a harder question."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlfocal.base.arrays import Bools
from rlfocal.base.errors import InputError, unknown
from rlfocal.data.dataset import Dataset

GIVEN = "given"
TRAIN_SHARE = 0.8
FOLDS = 5
"""Parts of the tasks, one of which is held out."""
_OF_TRAIN = "train-"
_ANEW = ("last", "random", "tasks")
SPLITS = (GIVEN, *_ANEW, *(f"{_OF_TRAIN}{name}" for name in _ANEW))


def split_anew(dataset: Dataset, split: str) -> Dataset:
    """The dataset with another split of its documents.

    `given`: as it is. `last`: of each task in order, the first floor(0.8 n) documents train. `random`: as
    many of each task, drawn with seed 0. `tasks`: whole tasks are held out, a fifth of them; `tasks:2/5`
    holds out the second fifth, so that all five cover every document. `train-last`, `train-random` and
    `train-tasks:1/3` do so among the given train rows alone: for choices, so that no test row is looked at.
    Raises InputError for another name, and for fewer tasks than parts.
    """
    whole, _, part = split.partition(":")
    name = whole.removeprefix(_OF_TRAIN)
    if whole not in SPLITS or (part and name != "tasks"):
        raise unknown("split", split, SPLITS)
    if name == GIVEN:
        return dataset
    rows = dataset.train if whole != name else dataset
    if name == "tasks":
        return replace(rows, is_train=_hold_out_tasks(rows, part or f"1/{FOLDS}"))
    order = np.random.default_rng(0).permutation if name == "random" else np.arange
    is_train = np.zeros(len(rows), dtype=np.bool_)
    for task in dict.fromkeys(rows.tasks.tolist()):
        of_task = np.flatnonzero(rows.tasks == task)
        is_train[of_task[order(len(of_task))[: int(TRAIN_SHARE * len(of_task))]]] = True
    return replace(rows, is_train=is_train)


def _hold_out_tasks(dataset: Dataset, part: str) -> Bools:
    number, folds = _read_part(part)
    tasks = sorted(set(dataset.tasks.tolist()))
    if len(tasks) < folds:
        raise InputError(
            f"benchmark {dataset.benchmark!r} has {len(tasks)} tasks, too few to hold out one of {folds} "
            "parts; use "
            + (f"--split tasks:1/{len(tasks)}" if len(tasks) > 1 else "--split random or --split last")
        )
    drawn = np.random.default_rng(0).permutation(tasks)
    return ~np.isin(dataset.tasks, drawn[number - 1 :: folds])


def _read_part(text: str) -> tuple[int, int]:
    number, _, folds = text.partition("/")
    if not (number.isdecimal() and folds.isdecimal() and 1 <= int(number) <= int(folds) and int(folds) > 1):
        raise InputError(f"{text!r} does not name a part of the tasks; give one such as tasks:2/5")
    return int(number), int(folds)

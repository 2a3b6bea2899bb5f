"""The study of a stream that switches from one task to another, with frozen agents and with online ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args

import numpy as np

from benchmarks.studies.study import (
    Arm,
    Conditions,
    Point,
    StudyResult,
    point,
    reference_arm,
    run_arm,
    tuned_arm,
)
from benchmarks.studies.sweeps import decisions
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.base.names import Protocol
from rlfocal.data.dataset import Dataset

FURTHEST_APART = "furthest-apart"
DOCUMENTS_PER_POINT = 50
"""The number of the stream's documents that a point summarises, roughly."""


def switch(conditions: Conditions, values: Sequence[Any]) -> StudyResult:
    """Points of agents trained on one task, on its test documents and then on all documents of another."""
    before, after = _choose_pair(conditions.setup.dataset, [str(value) for value in values])
    data = stream(conditions.setup.dataset, before, after)
    about = {"switch": [before, after]}
    arms = [tuned_arm(conditions.replace_rows(data, name), name, beside=about) for name in get_args(Protocol)]
    arms.append(reference_arm(conditions.replace_rows(data), "best_single", beside=about))
    n_before = int((data.test.tasks == before).sum())
    points = [p for arm in arms for p in _make_points(conditions, arm, data.test, n_before)]
    best = data.models[int(data.test.correct[n_before:].sum(axis=0).argmax())]
    alone = float(data.test.correct[n_before:, data.models.index(best)].mean())
    notes = [
        f"Trained on {before}; after its {n_before} test documents come all {len(data.test) - n_before} of "
        f"{after}. In hindsight the best single model there is {best}, with {100 * alone:.2f} %."
    ]
    return StudyResult(points, notes)


def stream(data: Dataset, before: str, after: str) -> Dataset:
    """The documents of task `before`, then all documents of task `after` as test documents."""
    order = np.concatenate([np.flatnonzero(data.tasks == task) for task in (before, after)])
    chosen = data.take(order)
    return replace(chosen, is_train=chosen.is_train & (chosen.tasks == before))


def furthest_apart(train: Dataset) -> tuple[str, str]:
    """The pair of tasks (A, B) with the largest gap on B between B's best model and A's; ties: the first."""
    accuracy = {task: rows.correct.mean(axis=0) for task, rows in train.split_by_task()}
    pairs = [(a, b) for a in accuracy for b in accuracy if a != b]
    return max(pairs, key=lambda ab: accuracy[ab[1]].max() - accuracy[ab[1]][accuracy[ab[0]].argmax()])


def _choose_pair(data: Dataset, named: Sequence[str]) -> tuple[str, str]:
    tasks = list(dict.fromkeys(data.tasks.tolist()))
    if len(tasks) < 2:
        raise InputError(f"benchmark {data.benchmark!r} has one task; a switch needs two")
    if not named or named[0] == FURTHEST_APART:
        return furthest_apart(data.train)
    for task in named:
        if task not in tasks:
            raise unknown_name("task", task, tasks, f"benchmark {data.benchmark!r}")
    if len(set(named)) != 2:
        raise InputError("a switch is between two tasks: give --values BEFORE,AFTER")
    return named[0], named[1]


def _make_points(conditions: Conditions, arm: Arm, test: Dataset, n_before: int) -> list[Point]:
    """An arm's point for each stretch of the stream; x counts documents from the switch to its middle."""
    rows = run_arm(arm)
    correct = [decisions(conditions.setup.warehouse, row.run_id, test).correct for row in rows]
    points = []
    for start, end in stretches(n_before, len(test)):
        x = (start + end) / 2 - n_before
        accuracies = [float(hits[start:end].mean()) for hits in correct]
        points.append(
            point(arm.label, f"documents {start - n_before} to {end - n_before}", x, end - start, accuracies)
        )
    return points


def stretches(n_before: int, total: int) -> list[tuple[int, int]]:
    """The bounds (first, last + 1) of stretches of a stream, each about `DOCUMENTS_PER_POINT` long. No
    stretch contains the switch, which comes after `n_before` documents."""
    bounds: list[int] = []
    for start, end in ((0, n_before), (n_before, total)):
        parts = max(1, round((end - start) / DOCUMENTS_PER_POINT))
        bounds += [start + (end - start) * i // parts for i in range(parts)]
    bounds.append(total)
    return [(a, b) for a, b in pairwise(bounds) if b > a]

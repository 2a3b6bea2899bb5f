"""The mean over tasks of the methods' accuracies on a board, every task weighted equally."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rlfocal.evaluation.leaderboard import Board, correct_by_document
from rlfocal.statistics.intervals import (
    Difference,
    Hits,
    Interval,
    Tasks,
    mean_over_tasks,
    paired_over_tasks,
)
from warehouse import Warehouse
from warehouse.scripts import script

DRAWS = 2000
"""Fewer draws than for one difference: every task is resampled separately, for every method."""


@dataclass(frozen=True)
class OverTasks:
    """One method's mean over tasks, as a fraction, with 95 % intervals from two resampling schemes."""

    n_tasks: int
    by_documents: Interval
    """Documents resampled within each task: how certain the mean over these tasks is."""
    by_tasks: Interval
    """Whole tasks resampled: how certain the mean over tasks like these is. Too narrow for few tasks."""
    above_by_documents: Difference | None
    """The same of the paired difference to best_single; None for itself, or where it was not evaluated."""
    above_by_tasks: Difference | None


def over_tasks(warehouse: Warehouse, board: Board) -> Mapping[str, OverTasks]:
    """By method; empty where the board has one task. Only documents that all of a method's seeds decided."""
    runs = {s.method: [run.run_id for run in s.runs] for s in board.standings}
    every = [run for of_method in runs.values() for run in of_method]
    about = (board.benchmark, every)
    tasks = warehouse.query(script("queries/tasks_of_documents"), about)["task"].to_numpy().astype(np.str_)
    if len(set(tasks.tolist())) < 2:
        return {}
    by_run = correct_by_document(warehouse, *about)
    hits = {name: np.stack([by_run[run] for run in of_method]) for name, of_method in runs.items()}
    baseline = hits.get(board.baseline)
    return {
        name: _of(own, None if name == board.baseline else baseline, tasks)
        for name, own in hits.items()
        if not np.isnan(own).any(axis=0).all()
    }


def _of(own: Hits, baseline: Hits | None, tasks: Tasks) -> OverTasks:
    decided = ~np.isnan(own).any(axis=0)
    hits, of = own[:, decided], tasks[decided]
    shared = decided if baseline is None else decided & ~np.isnan(baseline).any(axis=0)
    above: list[Difference | None] = [None, None]
    if baseline is not None and shared.any():
        pair = own[:, shared], baseline[:, shared], tasks[shared]
        above = [paired_over_tasks(*pair, whole=whole, draws=DRAWS) for whole in (False, True)]
    return OverTasks(
        len(np.unique(of)),
        mean_over_tasks(hits, of, draws=DRAWS),
        mean_over_tasks(hits, of, whole=True, draws=DRAWS),
        *above,
    )

"""How RL-Focal learned: mean and band over seeds for every episode of its two phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warehouse import Warehouse

PHASES = ("decider", "fusion")


@dataclass(frozen=True)
class Curve:
    """One quantity by episode: the mean over seeds between the lowest and the highest seed."""

    episodes: NDArray[np.int64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


@dataclass(frozen=True)
class Learning:
    """The curves of one phase."""

    phase: str
    seeds: int
    accuracy: Curve
    mean_pool_size: Curve


def learning(warehouse: Warehouse, runs: Sequence[str]) -> list[Learning]:
    """The phases of the given runs in `training_history`; where agents were trained per task, their mean."""
    found = []
    for phase in PHASES:
        rows = warehouse.rows(
            "SELECT run_id, episode, avg(accuracy), avg(mean_pool_size) FROM training_history "
            "WHERE list_contains(?, run_id) AND phase = ? GROUP BY run_id, episode ORDER BY episode, run_id",
            (list(runs), phase),
        )
        if rows:
            seeds = {run for run, *_ in rows}
            accuracy = _curve([(episode, value) for _, episode, value, _ in rows])
            size = _curve([(episode, value) for _, episode, _, value in rows])
            found.append(Learning(phase, len(seeds), accuracy, size))
    return found


def _curve(points: Sequence[tuple[int, float | None]]) -> Curve:
    values: dict[int, list[float]] = {}
    for episode, value in points:
        values.setdefault(episode, []).append(np.nan if value is None else value)
    columns = [np.array(v) for v in values.values()]
    return Curve(
        np.array(list(values)),
        np.array([v.mean() for v in columns]),
        np.array([v.min() for v in columns]),
        np.array([v.max() for v in columns]),
    )

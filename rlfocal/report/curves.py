"""How RL-Focal's methods learned: mean and band over seeds, by episode, or by stage where that is how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from warehouse import Warehouse
from warehouse.scripts import script

PHASES = ("decider", "fusion", "stage")
_BAND = "the mean over seeds, in a band from the lowest to the highest seed"
_TWO_PHASES = (
    f"Each episode is one pass over the train documents, {{}}: {_BAND}. First the Decider learns which "
    "models to ask, judged by their plurality; then it is frozen and Fusion learns to combine their answers."
)
CAPTIONS = {
    "rl_focal": _TWO_PHASES.format("with sampled pools and answers"),
    "rl_focal_released": _TWO_PHASES.format("with sampled pools"),
    "rl_focal_sequential": (
        "Fusion is fitted once for each number of models that have answered. Its accuracy is on train "
        f"documents that it was not fitted on: {_BAND}. From this the Decider learns when asking more models "
        "does not pay."
    ),
}
"""What the learning figure of each method shows."""


@dataclass(frozen=True)
class Curve:
    """One quantity along training: the mean over seeds between the lowest and the highest seed."""

    x: NDArray[np.float64]
    """Episodes, or models that have answered."""
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
            script("queries/learning_curve"),
            (list(runs), phase),
        )
        if rows:
            seeds = {run for run, *_ in rows}
            accuracy = _curve([(size if phase == "stage" else at, value) for _, at, value, size in rows])
            size = _curve([(at, size) for _, at, _, size in rows])
            found.append(Learning(phase, len(seeds), accuracy, size))
    return found


def _curve(points: Sequence[tuple[float, float | None]]) -> Curve:
    values: dict[float, list[float]] = {}
    for x, value in points:
        values.setdefault(x, []).append(np.nan if value is None else value)
    columns = [np.array(v) for v in values.values()]
    return Curve(
        np.array(list(values), dtype=np.float64),
        np.array([v.mean() for v in columns]),
        np.array([v.min() for v in columns]),
        np.array([v.max() for v in columns]),
    )

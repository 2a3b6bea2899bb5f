"""How RL-Focal's methods learned: mean and band over seeds, by episode, or by stage where that is how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.data.policy import PHASES
from warehouse import Warehouse
from warehouse.scripts import script

_SAYS = {
    "decider": "the Decider learns which models to ask, judged by their plurality",
    "fusion": "Fusion learns to combine the answers of the pools that the Decider picks",
    "joint": "both agents learn together",
    "stage": (
        "Fusion is fitted once for each number of models that have answered, and judged on train documents "
        "that it was not fitted on; from this the Decider learns when asking more models does not pay"
    ),
}


@dataclass(frozen=True)
class Curve:
    """One quantity along training: the mean over seeds between the lowest and the highest seed."""

    x: Floats
    """Episodes, or models that have answered."""
    mean: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Learning:
    """The curves of one phase."""

    phase: str
    seeds: int
    accuracy: Curve
    mean_pool_size: Curve


def learning(warehouse: Warehouse, runs: Sequence[str]) -> list[Learning]:
    """Every phase of the given runs in `training_history`, in the order of training.

    Where agents were trained per task, their mean.
    """
    of_phase: dict[str, list[tuple[str, int, float, float]]] = {}
    for phase, *row in warehouse.rows(script("queries/learning_curve"), [list(runs)]):
        of_phase.setdefault(phase, []).append(tuple(row))
    order = sorted(
        of_phase, key=lambda phase: (PHASES.index(phase) if phase in PHASES else len(PHASES), phase)
    )
    return [_learning(phase, of_phase[phase]) for phase in order]


def caption(phases: Sequence[Learning]) -> str:
    """What the learning figure shows, in words."""
    says = [_SAYS.get(one.phase, f"phase {one.phase}") for one in phases]
    text = f"{says[0]}{''.join(f'; then {more}' for more in says[1:])}."
    band = "the mean over seeds, in a band from the lowest to the highest seed"
    unit = "" if phases[0].phase == "stage" else "Each episode is one pass over the train documents. "
    return f"{unit}{text[0].upper()}{text[1:]} Shown is {band}."


def _learning(phase: str, rows: Sequence[tuple[str, int, float, float]]) -> Learning:
    accuracy = _curve([(size if phase == "stage" else at, value) for _, at, value, size in rows])
    size = _curve([(at, size) for _, at, _, size in rows])
    return Learning(phase, len({run for run, *_ in rows}), accuracy, size)


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

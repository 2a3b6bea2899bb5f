"""The study pool-scale: how time and accuracy change with the size of the pool, models repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.studies.study import Arm, Conditions, StudyResult, reference_arm, run_arms, tuned_arm
from rlfocal.data.dataset import Dataset
from rlfocal.methods.checking import read_value


def scale(conditions: Conditions, values: Sequence[Any]) -> StudyResult:
    """Points of pools of the given sizes, made by repeating models; agents are trained anew for each."""
    arms: list[Arm] = []
    for size in (read_value(str(value), 1, "size") for value in values):
        on, text = conditions.replace_rows(repeat_models(conditions.setup.dataset, size)), f"{size} models"
        arms.append(tuned_arm(on, text, float(size), keep=False))
        arms.append(reference_arm(on, "soft_vote", text, float(size)))
    n = len(conditions.setup.dataset.models)
    note = f"Pools beyond {n} models repeat the same models; smaller ones hold the alphabetically first."
    return StudyResult(run_arms(arms), [note])


def repeat_models(data: Dataset, size: int) -> Dataset:
    """The data of `size` models: the first ones, which are repeated after the last as `m#2`, `m#3` and so on.

    Slots and labels do not change.
    """
    n = len(data.models)
    names = [data.models[i % n] + (f"#{i // n + 1}" if i >= n else "") for i in range(size)]
    order = sorted(range(size), key=names.__getitem__)
    at = np.array([i % n for i in order])
    return replace(
        data,
        models=tuple(names[i] for i in order),
        first_names=(),
        prices=data.prices[at],
        token_costs=data.token_costs[:, at] if data.token_costs.size else data.token_costs,
        probs=data.probs[:, at],
        logprobs=data.logprobs[:, at],
        predictions=data.predictions[:, at],
    )

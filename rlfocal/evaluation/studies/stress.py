"""Studies on data made harder: fewer labels, wrong labels, models that fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Dataset
from rlfocal.evaluation.studies.study import ALL, Arm, Conditions, Found, reference_arm, run_arms, tuned_arm
from rlfocal.methods import entry_of
from rlfocal.methods.checking import read_value

BESIDE = ("best_single", "plurality", "soft_vote", "log_linear", "stacking")
"""What runs beside RL-Focal unless `--beside` says otherwise."""


def labels(conditions: Conditions, values: Sequence[Any]) -> Found:
    """With the first n of train's documents in a random order, the same for every method."""
    data = conditions.setup.dataset
    most = int(data.is_train.sum())
    counts = [most if value == ALL else min(_whole(value), most) for value in values]
    arms = [
        arm
        for n in dict.fromkeys(counts)
        for arm in _arms(conditions.on(keep_labels(data, n)), f"{n:,} labels", float(n), {"train_labels": n})
    ]
    note = "The test set is always the same; each set of labels is part of every larger one."
    return Found(run_arms(arms), [note])


def keep_labels(data: Dataset, n: int) -> Dataset:
    """All test documents, and n of train."""
    train = np.flatnonzero(data.is_train)
    kept = np.random.default_rng(0).permutation(train)[:n]
    return data.rows(~data.is_train | np.isin(np.arange(len(data)), kept))


def drop_answers(data: Dataset, share: float) -> Dataset:
    """In test, each answer of each model is missing with this probability."""
    lost = (np.random.default_rng(0).random(data.predictions.shape) < share) & ~data.is_train[:, None]
    return data.silenced(lost)


def corrupt_labels(data: Dataset, share: float) -> Dataset:
    """In train, each label becomes another slot of its document, if there is one, with this probability."""
    rng = np.random.default_rng(0)
    wrong = (rng.random(len(data)) < share) & data.is_train & (data.labels >= 0) & (data.n_choices > 1)
    moved = data.labels + 1 + (rng.random(len(data)) * (data.n_choices - 1)).astype(np.int64)
    return replace(data, labels=np.where(wrong, moved % np.maximum(data.n_choices, 1), data.labels))


def shares(
    harder: Callable[[Dataset, float], Dataset], what: str, setting: str
) -> Callable[[Conditions, Sequence[Any]], Found]:
    """Tries shares of data made harder in one way, which its rows name as a setting."""

    def answer(conditions: Conditions, values: Sequence[Any]) -> Found:
        arms = []
        for share in (float(read_value(str(value), 0.5, "share")) for value in values):
            if not 0 <= share < 1:
                raise InputError(f"{share} is not a share; give numbers from 0 to below 1")
            on = conditions.on(harder(conditions.setup.dataset, share))
            arms += _arms(on, f"{100 * share:g} % {what}", share, {setting: share})
        return Found(run_arms(arms))

    return answer


def _arms(conditions: Conditions, label: str, x: float, beside: dict[str, Any]) -> list[Arm]:
    """RL-Focal and what runs beside it."""
    kind = conditions.setup.dataset.kind
    names = [name for name in conditions.beside or BESIDE if kind in entry_of(name).kinds]
    others = [reference_arm(conditions, name, label, x, beside=beside) for name in names]
    return [tuned_arm(conditions, label, x, beside=beside), *others]


def _whole(value: Any) -> int:
    count: int = read_value(str(value), 1, "number of labels")
    if count < 2:
        raise InputError(f"{count} labels teach nothing; give 2 or more")
    return count

"""Studies on data made harder: fewer labels, wrong labels, models that fail, another order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlfocal.base.arrays import Bools, Ints
from rlfocal.base.errors import InputError, unknown
from rlfocal.base.names import Protocol
from rlfocal.data.dataset import Dataset
from rlfocal.evaluation.studies.arms import Arm, Conditions, reference_arm, run_arms, tuned_arm
from rlfocal.evaluation.studies.findings import OURS
from rlfocal.evaluation.studies.study import ALL, Found
from rlfocal.methods import entry_of
from rlfocal.methods.checking import read_value

BESIDE = ("best_single", "plurality", "soft_vote", "log_linear", "stacking")
"""What runs beside RL-Focal unless `--beside` says otherwise."""
ORDERS = ("as it is", "shuffled")
CHOICES = ("as they are", "permuted in test", "permuted")


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


def failures(conditions: Conditions, values: Sequence[Any]) -> Found:
    """With a share of all answers missing in test: a model that fails is called but gives no answer."""
    return _shares(conditions, values, drop_answers, "fail", "failing")


def noise(conditions: Conditions, values: Sequence[Any]) -> Found:
    """With a share of train's labels replaced by another slot."""
    return _shares(conditions, values, corrupt_labels, "wrong labels", "label_noise")


def order(conditions: Conditions, values: Sequence[Any]) -> Found:
    """Online, with the test documents as they come, and shuffled: does learning depend on their order?"""
    data = conditions.setup.dataset
    orders = {ORDERS[0]: data, ORDERS[1]: shuffle_test(data)}
    return _orders(conditions, values, orders, "the stream", "order", protocol="online")


def choices(conditions: Conditions, values: Sequence[Any]) -> Found:
    """With every document's choices in another order: what relies on A being right more often than D?"""
    data = conditions.setup.dataset
    if data.kind == "answers":
        raise InputError(f"{data.benchmark!r} has free answers, which have no order; use another benchmark")
    orders = {
        CHOICES[0]: data,
        CHOICES[1]: permute_choices(data, ~data.is_train),
        CHOICES[2]: permute_choices(data, np.ones(len(data), dtype=np.bool_)),
    }
    return _orders(conditions, values, orders, "choices", "choices")


def keep_labels(data: Dataset, n: int) -> Dataset:
    """All test documents, and n of train."""
    train = np.flatnonzero(data.is_train)
    kept = np.random.default_rng(0).permutation(train)[:n]
    return data.rows(~data.is_train | np.isin(np.arange(len(data)), kept))


def drop_answers(data: Dataset, share: float) -> Dataset:
    """In test, each answer of each model is missing with this probability."""
    lost = (np.random.default_rng(0).random(data.predictions.shape) < share) & ~data.is_train[:, None]
    logprobs = data.logprobs
    if data.kind == "choices":
        exists = np.isfinite(data.logprobs)
        logprobs = np.where(lost[:, :, None] & exists, 0.0, data.logprobs)
    return replace(
        data,
        probs=np.where(lost[:, :, None], 0.0, data.probs),
        logprobs=logprobs,
        predictions=np.where(lost, -1, data.predictions),
    )


def corrupt_labels(data: Dataset, share: float) -> Dataset:
    """In train, each label becomes another slot of its document, if there is one, with this probability."""
    rng = np.random.default_rng(0)
    wrong = (rng.random(len(data)) < share) & data.is_train & (data.labels >= 0) & (data.n_choices > 1)
    moved = data.labels + 1 + (rng.random(len(data)) * (data.n_choices - 1)).astype(np.int64)
    return replace(data, labels=np.where(wrong, moved % np.maximum(data.n_choices, 1), data.labels))


def shuffle_test(data: Dataset) -> Dataset:
    """Train as it is, then test in random order."""
    test = np.random.default_rng(0).permutation(np.flatnonzero(~data.is_train))
    return data.take(np.concatenate([np.flatnonzero(data.is_train), test]))


def permute_choices(data: Dataset, rows: Bools) -> Dataset:
    """The choices of these documents in a random order per document, the same for all models."""
    rng, width = np.random.default_rng(0), data.probs.shape[2]
    keys = np.where(np.arange(width) < data.n_choices[:, None], rng.random((len(data), width)), 2.0)
    order = np.where(rows[:, None], keys.argsort(axis=1, kind="stable"), np.arange(width))
    place = order.argsort(axis=1)

    def moved(slots: Ints) -> Ints:
        """(T, K) the new places of slots."""
        return np.where(slots >= 0, np.take_along_axis(place, np.maximum(slots, 0), axis=1), -1)

    texts = tuple(
        tuple(of_row[slot] for slot in order[row, : len(of_row)]) for row, of_row in enumerate(data.choices)
    )
    return replace(
        data,
        probs=np.take_along_axis(data.probs, order[:, None], axis=2),
        logprobs=np.take_along_axis(data.logprobs, order[:, None], axis=2),
        predictions=moved(data.predictions),
        labels=moved(data.labels[:, None])[:, 0],
        choices=texts,
    )


def _shares(
    conditions: Conditions,
    values: Sequence[Any],
    harder: Callable[[Dataset, float], Dataset],
    what: str,
    setting: str,
) -> Found:
    shares = [read_value(str(value), 0.5, "share") for value in values]
    if bad := [share for share in shares if not 0 <= share < 1]:
        raise InputError(f"{bad[0]} is not a share; give numbers from 0 to below 1")
    arms = []
    for share in shares:
        on = conditions.on(harder(conditions.setup.dataset, share))
        arms += _arms(on, f"{100 * share:g} % {what}", float(share), {setting: share})
    return Found(run_arms(arms))


def _orders(
    conditions: Conditions,
    values: Sequence[Any],
    orders: Mapping[str, Dataset],
    what: str,
    setting: str,
    protocol: Protocol = "frozen",
) -> Found:
    arms = []
    for name in map(str, values):
        if name not in orders:
            raise unknown("order", name, list(orders))
        on = conditions.on(orders[name], protocol)
        arms += _arms(on, f"{what} {name}", None, {setting: name})
    return Found(run_arms(arms))


def _arms(conditions: Conditions, text: str, x: float | None, beside: dict[str, Any]) -> list[Arm]:
    """RL-Focal and what runs beside it."""
    kind = conditions.setup.dataset.kind
    names = [name for name in conditions.beside or BESIDE if kind in entry_of(name).kinds]
    # Without an axis, the label must say it all.
    label = {name: text if x is not None else f"{name}, {text}" for name in (OURS, *names)}
    others = [reference_arm(conditions, name, label[name], x, beside=beside) for name in names]
    return [tuned_arm(conditions, label[OURS], x, beside=beside), *others]


def _whole(value: Any) -> int:
    count: int = read_value(str(value), 1, "number of labels")
    if count < 2:
        raise InputError(f"{count} labels teach nothing; give 2 or more")
    return count

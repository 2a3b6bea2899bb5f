"""Scenarios: changes of stored answers, prices or labels, or of a method's settings, read from text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from rlfocal.base.errors import InputError, unknown_name
from rlfocal.data.dataset import Dataset
from rlfocal.data.loading import load_dataset, with_prices
from rlfocal.data.policy import FailingModels, find_down_models, parse_swaps
from rlfocal.exchange.imports.prices import read_prices
from rlfocal.methods.checking import read_value
from warehouse import Warehouse

MIN_TRAIN_LABELS = 2


@dataclass(frozen=True)
class Scenario:
    """Changes to stored data or settings.

    `drop`, `labels`, `label_noise` and `settings` need a method that is fitted anew.
    """

    down: tuple[str, ...] = ()
    """Models that give no answer on test documents."""
    only: tuple[str, ...] = ()
    """The models that may be asked; empty: all of the policy's pool."""
    swap: tuple[str, ...] = ()
    """Texts `A=B`: the answers of model B replace those of model A."""
    prices: str | None = None
    """A file of prices, as `rlfocal import prices` reads it."""
    missing: float = 0.0
    """The share of answers to test documents that are missing."""
    drop: tuple[str, ...] = ()
    """Models that are removed from the pool, in train and in test."""
    labels: int | None = None
    """The number of train documents, drawn from all; a smaller draw is part of a larger one."""
    label_noise: float = 0.0
    """The share of train labels that are replaced by wrong ones."""
    settings: tuple[str, ...] = ()
    """Texts `NAME=VALUE`: settings of the method."""

    @classmethod
    def parse(cls, text: str, **more: Any) -> Scenario:
        """Reads a text `KIND=VALUE,...`, such as `drop=phi,labels=100`; `more`: other fields of the scenario.

        Raises InputError for an unknown kind, two values of a kind that takes one, and an unreadable value.
        """
        differences: dict[str, Any] = {name: value for name, value in more.items() if value}
        for part in filter(None, (part.strip() for part in text.split(","))):
            kind, _, value = part.partition("=")
            if kind not in _KINDS:
                raise unknown_name("kind of change", kind, _KINDS, f"--scenario {text!r}")
            name, read, example = _KINDS[kind]
            if not value:
                raise InputError(f"--scenario {text!r}: {part!r} has no value; give one, as in {example}")
            if read is None:
                differences[name] = (*differences.get(name, ()), value)
            elif name in differences:
                raise InputError(f"--scenario {text!r} gives {kind} twice; give a single value")
            else:
                differences[name] = read(value)
        return cls(**differences)

    @property
    def refits(self) -> bool:
        """Whether the scenario needs a new fit of the method."""
        return bool(self.drop or self.labels is not None or self.label_noise or self.settings)

    def apply(self, warehouse: Warehouse, dataset: Dataset) -> ScenarioData:
        """The benchmark under the scenario.

        Raises InputError for impossible models, swaps, prices and settings.
        """
        every, dataset = dataset, self._without_dropped(warehouse, dataset)
        trained, priced, names = (
            self._change_labels(dataset),
            self._set_prices(warehouse, dataset),
            dataset.models,
        )
        mask, swaps = (
            find_down_models(names, self.down, only=self.only or None),
            parse_swaps(names, self.swap),
        )
        down = [name for name, is_down in zip(names, mask, strict=True) if is_down]
        differs = not np.array_equal(priced.costs, dataset.costs, equal_nan=True)
        differences = {
            "drop": [name for name in every.models if name not in names],
            "labels": self.labels if len(trained) < len(dataset) else None,
            "label_noise": self.label_noise,
            **dict(map(_read_setting, self.settings)),
            "swap": swaps,
            "prices": dict(zip(names, priced.mean_costs.tolist(), strict=True)) if differs else None,
            "down": down,
            "missing": self.missing,
        }
        answers = load_dataset(warehouse, dataset.benchmark, names, swaps) if swaps else dataset
        answers = replace(answers, prices=priced.prices, token_costs=priced.token_costs)
        relabelled = self._change_labels(answers)
        right = np.where(mask, -1, trained.train.correct.sum(axis=0))
        return ScenarioData(
            trained,
            drop_answers(relabelled, self.missing) if self.missing else relabelled,
            FailingModels(mask, int(right.argmax())) if down else None,
            {name: value for name, value in differences.items() if value},
        )

    def _without_dropped(self, warehouse: Warehouse, dataset: Dataset) -> Dataset:
        if not self.drop:
            return dataset
        is_out = find_down_models(dataset.models, self.drop, "--scenario drop")
        kept = [name for name, out in zip(dataset.models, is_out, strict=True) if not out]
        return load_dataset(warehouse, dataset.benchmark, kept)

    def _set_prices(self, warehouse: Warehouse, dataset: Dataset) -> Dataset:
        if self.prices is None:
            return dataset
        given = read_prices(self.prices)
        if lacking := [name for name in dataset.models if name not in given]:
            raise InputError(f"--prices {self.prices} has no price of {', '.join(lacking)}; add one")
        return with_prices(warehouse, dataset, given)

    def _change_labels(self, dataset: Dataset) -> Dataset:
        few = dataset if self.labels is None else keep_labels(dataset, self.labels)
        return corrupt_labels(few, self.label_noise) if self.label_noise else few


class ScenarioData(NamedTuple):
    """A benchmark under a scenario."""

    train: Dataset
    """The dataset whose train documents a method is fitted to."""
    answers: Dataset
    """The dataset whose test documents have the models' answers and prices under the scenario."""
    failing: FailingModels | None
    differences: dict[str, Any]
    """The changes of the scenario, as `evaluations.settings` holds them; empty if nothing differs."""


def keep_labels(data: Dataset, n: int, seed: int = 0) -> Dataset:
    """The dataset with all test documents and n random train documents.

    A smaller draw with the same seed is part of a larger one.
    """
    train = np.flatnonzero(data.is_train)
    kept = np.random.default_rng(seed).permutation(train)[:n]
    return data.rows(~data.is_train | np.isin(np.arange(len(data)), kept))


def drop_answers(data: Dataset, share: float) -> Dataset:
    """The dataset in which each model's answer to a test document is missing with probability `share`."""
    lost = (np.random.default_rng(0).random(data.predictions.shape) < share) & ~data.is_train[:, None]
    return data.drop_answers(lost)


def corrupt_labels(data: Dataset, share: float) -> Dataset:
    """The dataset in which each train label is replaced by another slot with probability `share`.

    Labels of documents with a single slot stay.
    """
    rng = np.random.default_rng(0)
    wrong = (rng.random(len(data)) < share) & data.is_train & (data.labels >= 0) & (data.n_choices > 1)
    moved = data.labels + 1 + (rng.random(len(data)) * (data.n_choices - 1)).astype(np.int64)
    return replace(data, labels=np.where(wrong, moved % np.maximum(data.n_choices, 1), data.labels))


def _read_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--scenario set={text} has no value; write set=NAME=VALUE")
    return name, value


def read_label_count(text: str) -> int:
    """Reads a number of labels.

    Raises InputError for fewer than `MIN_TRAIN_LABELS`, and for text that is no whole number.
    """
    count: int = read_value(text, 1, "number of labels")
    if count < MIN_TRAIN_LABELS:
        raise InputError(f"{count} labels are too few to learn from; give {MIN_TRAIN_LABELS} or more")
    return count


def _read_share(text: str) -> float:
    """Reads a share. Raises InputError for a text that is no number from 0 to below 1."""
    share = float(read_value(text, 0.5, "share"))
    if not 0 <= share < 1:
        raise InputError(f"{share} is not a share; give numbers from 0 to below 1")
    return share


class _Kind(NamedTuple):
    field: str
    """The field of `Scenario` that this kind of change sets."""
    reader: Callable[[str], Any] | None
    """The function that reads a value; None: the values are texts, of which several may be given."""
    example: str


_KINDS = {
    "down": _Kind("down", None, "down=MODEL"),
    "swap": _Kind("swap", None, "swap=A=B"),
    "prices": _Kind("prices", str, "prices=FILE"),
    "missing": _Kind("missing", _read_share, "missing=0.1"),
    "drop": _Kind("drop", None, "drop=MODEL"),
    "labels": _Kind("labels", read_label_count, "labels=100"),
    "label-noise": _Kind("label_noise", _read_share, "label-noise=0.1"),
    "set": _Kind("settings", None, "set=NAME=VALUE"),
}

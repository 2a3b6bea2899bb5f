"""The models' answers to the documents that one of them answered: T documents × N models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlfocal.base.arrays import Bools, Ints, Texts
from rlfocal.data.dataset import Kind
from warehouse import Warehouse
from warehouse.scripts import script


@dataclass(frozen=True)
class PairedAnswers:
    """A model and those that answered all the documents it did, be it the whole benchmark or part of it."""

    benchmark: str
    kind: Kind
    model: str
    models: tuple[str, ...]
    """N names, in alphabetical order."""
    tasks: Texts
    """(T,)"""
    is_train: Bools
    """(T,)"""
    predictions: Ints
    """(T, N) choices, or numbers that stand for a document's distinct answers; -1 for none."""
    labels: Ints
    """(T,) the right one of these; -1 if no model is right."""
    has_several_wrong: Bools
    """(T,) whether there is more than one way to be wrong: False for two choices."""

    @property
    def at(self) -> int:
        """The place of the model among the models."""
        return self.models.index(self.model)

    @property
    def wrong(self) -> Bools:
        """(T, N)"""
        wrong: Bools = (self.predictions != self.labels[:, None]) | (self.labels[:, None] < 0)
        return wrong


def read_paired_answers(
    warehouse: Warehouse, benchmark: str, model: str, others: Sequence[str]
) -> PairedAnswers | None:
    """The answers of `model` and the others to the documents it answered; None if it answered none.

    Others that missed one of these documents are left out.
    """
    about = {"benchmark": benchmark, "model": model, "models": [model, *others]}
    found = warehouse.query(script("queries/said_beside"), about)
    if not len(found):
        return None
    models = tuple(sorted(set(found["model"].to_pylist())))

    def column(name: str) -> NDArray[Any]:
        return np.asarray(found[name].to_numpy(zero_copy_only=False)).reshape(-1, len(models))

    predictions, correct = column("said").astype(np.int64), column("correct").astype(np.bool_)
    n_choices = column("n_choices")[:, 0].astype(np.float64)
    return PairedAnswers(
        benchmark,
        "answers" if np.isnan(n_choices).any() else "choices",
        model,
        models,
        tasks=column("task")[:, 0].astype(np.str_),
        is_train=column("is_train")[:, 0].astype(np.bool_),
        predictions=predictions,
        labels=np.where(correct, predictions, -1).max(axis=1),
        has_several_wrong=np.isnan(n_choices) | (n_choices > 2),
    )

"""What is said of benchmarks with few documents, with many choices, or that no model gets right."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from support.rows import put_choices

from rlfocal.evaluation.explaining import _mean_with_interval
from rlfocal.evaluation.notes import note_graded, note_guessing
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.methods.stacking import fit_regression
from warehouse import Warehouse


def test_a_pool_that_is_always_wrong_is_below_guessing(warehouse: Warehouse) -> None:
    put_choices(warehouse, {"m": [False] * 100}, benchmark="wrong")
    told = note_guessing(warehouse, "wrong", ["m"]) or ""
    assert "below guessing" in told
    assert "chance" not in told


def test_documents_that_nobody_answers_are_not_graded(warehouse: Warehouse) -> None:
    frame = pd.DataFrame({"id": range(9), "model": "m", "gold": "7", "answer": ["", "8", "8"] * 3})
    import_predictions(warehouse, frame[frame.answer == ""], benchmark="silent")
    import_predictions(warehouse, frame, benchmark="wrong")
    assert [note_graded(warehouse, name, ["m"]) for name in ("silent", "wrong")] == [None, None]


def test_no_loss_is_above_a_hundred_points() -> None:
    found = _mean_with_interval(np.array([-1.0, 0.0]), most=1.0)
    assert (found.mean, found.low, found.high) == (-0.5, -1.0, 1.0)


def test_many_choices_of_few_documents_fit_in_silence() -> None:
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_regression(rng.normal(size=(30, 4)), rng.normal(size=(30, 2)), np.arange(30) % 26, 0.1)

"""Shared by tests: turning stream."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from rlfocal.data.dataset import Dataset
from support.skilled_models import stream
from support.worded_data import in_words

BEFORE, AFTER = (0.95, 0.45, 0.5, 0.6), (0.05, 0.45, 0.5, 0.95)


N_TRAIN, N_TEST, TURN, LATE = 120, 900, 200, 200


@cache
def turning() -> Dataset:
    """The best model turns into the worst at a document of test, and another into the best."""
    rng = np.random.default_rng(3)
    n = N_TRAIN + N_TEST
    labels = rng.integers(0, 4, n)
    right = rng.random((n, 4)) < np.where(np.arange(n)[:, None] < N_TRAIN + TURN, BEFORE, AFTER)
    wrong = (labels[:, None] + rng.integers(1, 4, right.shape)) % 4
    said = stream(np.where(right, labels[:, None], wrong), labels, 4)
    data = replace(said, is_train=np.arange(n) < N_TRAIN, prices=np.array([1.0, 2.0, 3.0, 4.0]))
    return in_words(data, rng.integers(3, size=n))

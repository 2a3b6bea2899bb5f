"""Focal diversity read off the paper's Eq (8), pool by pool: the reference of the benchmark."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def focal_diversity_of_pool(correct: NDArray[np.bool_]) -> float:
    """The mean of 1 - P(2)/P(1) over the members that fail; `correct` is (T, S), NaN where none does."""
    size = correct.shape[1]
    j = np.arange(size + 1)
    diversity = []
    for focal in range(size):
        failing = (~correct[~correct[:, focal]]).sum(axis=1)
        if len(failing):
            p = np.bincount(failing, minlength=size + 1) / len(failing)
            p1, p2 = (j / size * p).sum(), (j * (j - 1) / (size * (size - 1)) * p).sum()
            diversity.append(1 - p2 / p1)
    return float(np.mean(diversity)) if diversity else float("nan")

"""Whether a model's confidence can be believed: the twin of the macro `calibration`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Reliability(NamedTuple):
    """The bins that hold a document, in order."""

    bin: NDArray[np.int64]
    n: NDArray[np.int64]
    confidence: NDArray[np.float64]
    """Mean confidence of a bin's documents."""
    accuracy: NDArray[np.float64]
    """Share of them that are right."""

    @property
    def expected_error(self) -> float:
        """The mean distance of confidence and accuracy over documents (ECE)."""
        return float((self.n * np.abs(self.confidence - self.accuracy)).sum() / self.n.sum())


def reliability(confidence: NDArray[np.float64], correct: NDArray[np.bool_], bins: int = 10) -> Reliability:
    """One model's documents by confidence, in `bins` of equal width, the last one closed.

    `confidence` (T,) is in [0, 1], NaN where the model has no answer: such a document is in no bin.
    """
    known = ~np.isnan(confidence)
    # Shares of passes such as 0.29 must not fall below their bin by a rounding.
    at = np.minimum(np.floor(np.round(confidence[known] * bins, 9)), bins - 1).astype(np.int64)
    n = np.bincount(at, minlength=bins)
    there = np.flatnonzero(n)
    return Reliability(
        there,
        n[there],
        np.bincount(at, confidence[known], bins)[there] / n[there],
        np.bincount(at, correct[known], bins)[there] / n[there],
    )

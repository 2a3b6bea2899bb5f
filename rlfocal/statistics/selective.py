"""What answering only the likeliest answers costs: risk over coverage, and figures of that curve."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError


class RiskCoverage(NamedTuple):
    """One step per probability, highest first: all documents with at least that probability are accepted."""

    threshold: Floats
    n: Ints
    """Accepted documents."""
    coverage: Floats
    """Their share of all documents."""
    risk: Floats
    """Share of the accepted that is wrong."""

    @property
    def area(self) -> float:
        """AURC (Geifman & El-Yaniv 2017): the mean over accepted documents of their step's risk.

        NaN if no document has a probability.
        """
        if not len(self.n):
            return float("nan")
        return float((np.diff(self.n, prepend=0) * self.risk).sum() / self.n[-1])

    def accuracy_at(self, coverage: float) -> float:
        """Accuracy of the smallest step that covers `coverage`; NaN if none does."""
        reached = np.flatnonzero(self.coverage >= coverage)
        return float(1 - self.risk[reached[0]]) if len(reached) else float("nan")

    def coverage_at(self, error: float) -> float:
        """The largest coverage of a step with a risk of at most `error`; 0 if none has."""
        return float(self.coverage[self.risk <= error].max(initial=0.0))


def risk_coverage(probability: Floats, correct: Bools) -> RiskCoverage:
    """The curve of El-Yaniv & Wiener (2010) over all documents.

    `probability` (T,) is in [0, 1], NaN where a document has no answer or no probability: it is never
    accepted, but counts among all documents. `correct` (T,) says whether the answer is right.

    InputError: a value is not a probability, or the two arrays have different lengths.
    """
    if probability.shape != correct.shape:
        raise InputError(
            f"{probability.shape} probabilities for {correct.shape} documents: give one for each"
        )
    known = ~np.isnan(probability)
    outside = known & ~((probability >= 0) & (probability <= 1))
    if outside.any():
        raise InputError(f"{probability[outside][0]} is no probability: give values from 0 to 1")
    rising, step, count = np.unique(probability[known], return_inverse=True, return_counts=True)
    wrong = np.bincount(step, ~correct[known].astype(bool), len(rising))
    n = np.cumsum(count[::-1])
    return RiskCoverage(rising[::-1], n, n / max(len(probability), 1), np.cumsum(wrong[::-1]) / n)

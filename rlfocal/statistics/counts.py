"""Two accuracies on the same documents, compared by counts alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from scipy.special import bdtr

from rlfocal.statistics.intervals import Interval

_Z = 1.959963984540054
"""Of 95 %, two-sided."""


@dataclass(frozen=True)
class Change(Interval):
    """How an accuracy changed, as a fraction, with its 95 % interval."""

    p_value: float
    """McNemar's exact p-value: how likely chance alone would split the changed documents as unevenly."""


def paired_counts(n: int, gained: int, lost: int) -> Change:
    """How an accuracy changed on n documents (1 at least), of which `gained` became right and `lost` wrong.

    The interval is Agresti and Min's (2005, "Simple improved confidence intervals for comparing matched
    proportions"): Wald's with half a document added to each of the four kinds, so that it has a width where
    nothing changed.
    """
    total, difference = n + 2, gained - lost
    middle = difference / total
    half = _Z * sqrt(gained + lost + 1 - difference**2 / total) / total
    p_value = min(1.0, 2 * float(bdtr(min(gained, lost), gained + lost, 0.5)))
    return Change(difference / n, max(-1.0, middle - half), min(1.0, middle + half), p_value)

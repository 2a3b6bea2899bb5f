"""What answering only the likeliest answers costs: risk over coverage, and figures of that curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError
from rlfocal.statistics.intervals import Interval


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
        reached = np.flatnonzero(self.coverage >= coverage - 1e-12)
        return float(1 - self.risk[reached[0]]) if len(reached) else float("nan")

    def coverage_at(self, error: float) -> float:
        """The largest coverage of a step with a risk of at most `error`; 0 if none has."""
        return float(self.coverage[self.risk <= error + 1e-12].max(initial=0.0))


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


COVERAGES, ERRORS = (0.5, 0.8, 0.9, 0.95), (0.01, 0.02, 0.05, 0.1)
DRAWS = 1_000
_BLOCK = 100
"""Draws at once: a row of weights per document each."""


class Selective(NamedTuple):
    """Figures of the curve, means over seeds with 95 % bootstrap intervals over documents."""

    area: Interval
    accuracy_at: Mapping[str, Interval]
    """By coverage; NaN where fewer documents have an answer."""
    coverage_at: Mapping[str, Interval]
    """By share of wrong answers."""


def selective(probability: Floats, correct: Bools, draws: int = DRAWS) -> Selective:
    """Of S seeds' answers to the same documents, both (S, T); the same documents are drawn for all seeds."""
    curves = [risk_coverage(*pair) for pair in zip(probability, correct, strict=True)]
    found = np.mean([_figures(c.coverage[None], c.risk[None], c.n[None]) for c in curves], axis=0)[:, 0]
    rng, n = np.random.default_rng(0), probability.shape[1]
    parts = []
    for start in range(0, draws, _BLOCK):
        weights = rng.multinomial(n, np.full(n, 1 / n), size=min(_BLOCK, draws - start))
        parts.append(
            np.mean([_drawn(*pair, weights) for pair in zip(probability, correct, strict=True)], axis=0)
        )
    low, high = np.quantile(np.concatenate(parts, axis=1), [0.025, 0.975], axis=1)
    each = [Interval(*map(float, row)) for row in zip(found, low, high, strict=True)]
    at = len(COVERAGES) + 1
    return Selective(
        each[0],
        {f"{share:g}": one for share, one in zip(COVERAGES, each[1:at], strict=True)},
        {f"{share:g}": one for share, one in zip(ERRORS, each[at:], strict=True)},
    )


def _drawn(probability: Floats, correct: Bools, weights: Ints) -> Floats:
    """(K, B) the figures where document t counts `weights` (B, T) times."""
    order = np.argsort(-probability, kind="stable")[: int((~np.isnan(probability)).sum())]
    last = np.flatnonzero(np.diff(probability[order], append=-1.0))  # ties are accepted together
    n = np.cumsum(weights[:, order], axis=1)[:, last]
    wrong = np.cumsum(weights[:, order] * ~correct[order], axis=1)[:, last]
    return _figures(n / probability.shape[0], wrong / np.maximum(n, 1), n)


def _figures(coverage: Floats, risk: Floats, n: Ints) -> Floats:
    """(K, B) area, accuracies and coverages of B curves (B, steps)."""
    if not coverage.shape[1]:
        nothing = np.full((1 + len(COVERAGES), len(coverage)), np.nan)
        return np.vstack([nothing, np.zeros((len(ERRORS), len(coverage)))])
    area = (np.diff(n, prepend=0, axis=1) * risk).sum(axis=1) / np.maximum(n[:, -1], 1)
    rows = np.arange(len(coverage))
    accuracies = [
        np.where(reached.any(axis=1), 1 - risk[rows, reached.argmax(axis=1)], np.nan)
        for share in COVERAGES
        for reached in [coverage >= share - 1e-12]
    ]
    coverages = [np.where(risk <= share + 1e-12, coverage, 0.0).max(axis=1) for share in ERRORS]
    return np.array([area, *accuracies, *coverages])

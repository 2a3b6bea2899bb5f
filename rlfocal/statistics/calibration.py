"""The calibration of probabilities (the twin of the SQL macro `calibration`), and temperature scaling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError


class Reliability(NamedTuple):
    """The bins of confidence that contain documents, in rising order; fields have an item per bin."""

    bin: Ints
    n: Ints
    confidence: Floats
    """The mean confidence of a bin's documents."""
    accuracy: Floats
    """The share of a bin's documents that are right."""

    @property
    def expected_error(self) -> float:
        """The expected calibration error: the mean distance of confidence and accuracy over documents.

        NaN without documents.
        """
        if not len(self.n):
            return float("nan")
        return float((self.n * np.abs(self.confidence - self.accuracy)).sum() / self.n.sum())


def reliability(confidence: Floats, correct: Bools, bins: int = 10) -> Reliability:
    """Bins documents by the probability of their answer, in `bins` of equal width, the last one closed.

    `confidence` (T,) is in [0, 1], or NaN for a document without an answer, which is in no bin. `correct`
    (T,) says whether the answer is right.

    Raises InputError if a confidence is not a probability, or the two arrays have different lengths.
    """
    confidence, correct = _select_answered(confidence, correct)
    # Rounding must not push shares of samples such as 0.29 into the bin below.
    bin_of = np.minimum(np.floor(np.round(confidence * bins, 9)), bins - 1).astype(np.int64)
    n = np.bincount(bin_of, minlength=bins)
    there = np.flatnonzero(n)
    return Reliability(
        there,
        n[there],
        np.bincount(bin_of, confidence, bins)[there] / n[there],
        np.bincount(bin_of, correct, bins)[there] / n[there],
    )


def brier_score(confidence: Floats, correct: Bools) -> float:
    """The mean squared difference of confidence and correctness (Brier 1950, for the given answer only).

    Arrays and errors are as in `reliability`. The score is from 0, for sure right answers, to 1; answers of
    probability 0.5 have 0.25. NaN if no document has an answer.
    """
    confidence, correct = _select_answered(confidence, correct)
    return float(((confidence - correct) ** 2).mean()) if len(correct) else float("nan")


def top_probability(logits: Floats, exists: Bools) -> Floats:
    """(T,) the highest softmax probability of `logits` (T, C) over slots that exist (T, C); 0 without any."""
    above = np.where(exists, logits, -np.inf).max(axis=1, initial=-1e300, keepdims=True)
    total = np.where(exists, np.exp(np.minimum(logits - above, 0.0)), 0.0).sum(axis=1)
    return np.where(total > 0, 1 / np.maximum(total, 1.0), 0.0)


def _select_answered(confidence: Floats, correct: Bools) -> tuple[Floats, Bools]:
    """The probabilities, clipped to [0, 1], and correctness of the documents that have an answer."""
    if np.ndim(confidence) != 1 or np.shape(confidence) != np.shape(correct):
        raise InputError(
            f"confidence has the shape {np.shape(confidence)}, and correct {np.shape(correct)}: "
            "give one number per document in each"
        )
    is_known = ~np.isnan(confidence)
    bad = is_known & ~((confidence >= -1e-9) & (confidence <= 1 + 1e-9))
    if bad.any():
        raise InputError(f"confidence {confidence[bad][0]:g} of document {bad.argmax()} is not from 0 to 1")
    return confidence[is_known].clip(0, 1), correct[is_known]


_PRIOR_DEVIATION = 0.5
"""The prior standard deviation of the temperature's logarithm."""
_MIN_PROBABILITY = 1e-12


def apply_temperature(distributions: Floats, temperature: float) -> Floats:
    """(..., C) distributions after temperature scaling (Guo et al. 2017).

    The likeliest slot stays the same, slots of probability 0 stay at 0, and so do rows of zeros.
    """
    powers = np.where(
        distributions > 0, np.maximum(distributions, _MIN_PROBABILITY) ** (1 / temperature), 0.0
    )
    total = powers.sum(axis=-1, keepdims=True)
    return np.asarray(powers / np.where(total > 0, total, 1.0))


def fit_temperature(held_out: Sequence[Floats], labels: Sequence[Ints]) -> float:
    """The temperature at which held-out distributions (T, C) give the right slots the highest likelihood.

    `held_out` and `labels` (T,) have an item for each stage of asking, over which the log-likelihood is a
    mean. Labels are -1 where no slot is right. A prior is around the temperature 1.
    """
    labelled = [np.flatnonzero(right >= 0) for right in labels]

    def loss(logarithm: float) -> float:
        losses = []
        for distributions, right, rows in zip(held_out, labels, labelled, strict=True):
            of_label = apply_temperature(distributions[rows], np.exp(logarithm))[
                np.arange(len(rows)), right[rows]
            ]
            losses.append(-np.log(np.maximum(of_label, _MIN_PROBABILITY)).sum())
        return float(np.mean(losses) + 0.5 * (logarithm / _PRIOR_DEVIATION) ** 2)

    minimum = minimize_scalar(loss, bounds=(-1.5, 1.5), method="bounded")
    return float(np.exp(minimum.x))

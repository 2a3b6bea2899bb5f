"""A temperature that calibrates Fusion's probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize_scalar

from rlfocal.base.arrays import Floats, Ints

_PRIOR = 0.5
"""Prior standard deviation of the temperature's logarithm."""
_LEAST = 1e-12


def tempered(distributions: Floats, temperature: float) -> Floats:
    """(..., C) distributions after temperature scaling (Guo et al. 2017).

    The likeliest slot stays the same, slots of probability 0 stay at 0, and a row of zeros stays zero.
    """
    powers = np.where(distributions > 0, np.maximum(distributions, _LEAST) ** (1 / temperature), 0.0)
    total = powers.sum(axis=-1, keepdims=True)
    return np.asarray(powers / np.where(total > 0, total, 1.0))


def fit_temperature(held_out: Sequence[Floats], labels: Sequence[Ints]) -> float:
    """The temperature at which out-of-fold distributions (T, C) give the right slots the highest likelihood;
    the mean over stages of asking, with a prior around 1.

    `labels` (T,) of each stage, -1 where no slot is right.
    """
    known = [np.flatnonzero(right >= 0) for right in labels]

    def loss(logarithm: float) -> float:
        losses = []
        for distributions, right, at in zip(held_out, labels, known, strict=True):
            of_label = tempered(distributions[at], np.exp(logarithm))[np.arange(len(at)), right[at]]
            losses.append(-np.log(np.maximum(of_label, _LEAST)).sum())
        return float(np.mean(losses) + 0.5 * (logarithm / _PRIOR) ** 2)

    found = minimize_scalar(loss, bounds=(-1.5, 1.5), method="bounded")
    return float(np.exp(found.x))

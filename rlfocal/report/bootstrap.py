"""The paired bootstrap over documents: how sure a difference between two methods is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Difference:
    """A difference of two accuracies on the same documents, as a fraction, with its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def paired_bootstrap(differences: NDArray[np.float64], *, seed: int = 0, draws: int = 10_000) -> Difference:
    """The mean of per-document differences (T,) and its percentile interval over resampled documents.

    Documents with equal differences are exchangeable, so a resample of T documents is one multinomial draw
    over the few distinct differences: the distribution of resampling rows, at a cost that T does not raise.
    """
    values, counts = np.unique(np.round(differences, 12), return_counts=True)
    total = int(counts.sum())
    resampled = np.random.default_rng(seed).multinomial(total, counts / total, size=draws) @ values / total
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Difference(float(np.mean(differences)), float(low), float(high))

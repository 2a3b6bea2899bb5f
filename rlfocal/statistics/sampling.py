"""Stratified samples of documents, and estimates of means over all documents that wrong guesses do not bias.

Documents are divided into strata of equal total interest. From each, equally many are drawn at random,
without replacement (Neyman, 1934). Estimates weight a drawn document by the inverse of its probability.
Predicted values are only subtracted and their mean is added back (Särndal, Swensson and Wretman, 1992, ch.
6). They are fitted on other drawn documents, so that a wrong guess widens an interval, but does not bias it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.folds import draw_folds

N_STRATA = 12
MIN_STRATUM_DOCUMENTS = 4
"""The fewest documents of a stratum, unless there are fewer in all."""
EFFECT_FOLDS = 5
REGRESSION_RIDGE = 10.0
"""The ridge penalty of the regression of answers on other models' answers, whose features have unit size."""
GUESSED_RATE_DOCUMENTS = 2.0
"""The number of drawn documents as which the guessed rate of rare effects counts in each stratum."""

UNSEEN_SQUARED_EFFECTS = 1.92
"""The number of effects that a sample may have missed: half of 1.96², as in Wilson's interval (1927).

It enters the variance. The interval of a sample without effects then reaches up to 2.7 effects, and a sample
misses three in 5 % of cases.
"""


@dataclass(frozen=True)
class Strata:
    """T documents in H strata, with the random order in which each stratum is drawn."""

    stratum_of: Ints
    """(T,) the stratum of each document."""
    place: Ints
    """(T,) each document's place in its stratum's random order."""

    @property
    def sizes(self) -> Ints:
        """(H,) the number of documents of each stratum."""
        return np.bincount(self.stratum_of)

    @property
    def min_draw(self) -> int:
        """The fewest documents from which a standard error can be estimated: two of each stratum."""
        return min(len(self.stratum_of), 2 * len(self.sizes))

    def counts(self, n: int) -> Ints:
        """(H,) the number of drawn documents of each stratum, n in all: equally many, if there are enough.

        For a larger n, no stratum has fewer.
        """
        sizes = self.sizes
        totals = np.minimum(sizes[:, None], np.arange(sizes.max() + 1)).sum(axis=0)
        level = int(np.searchsorted(totals, n, side="right")) - 1
        drawn: Ints = np.minimum(sizes, level)
        drawn[np.flatnonzero(sizes > level)[: n - drawn.sum()]] += 1
        return drawn

    def draw(self, n: int) -> Ints:
        """(n,) the rising positions of drawn documents; a smaller draw is part of a larger one."""
        return np.flatnonzero(self.place < self.counts(n)[self.stratum_of])

    def probabilities(self, n: int) -> Floats:
        """(T,) the probability of each document to be among n drawn ones."""
        return (self.counts(n) / self.sizes)[self.stratum_of]


def stratify(interest: Floats, seed: int, n_strata: int = N_STRATA) -> Strata:
    """Divides documents by their interest (T,) into strata, each with about the same total interest."""
    rng, n = np.random.default_rng(seed), len(interest)
    order = np.argsort(interest, kind="stable")
    reached = np.cumsum(interest[order])
    starts = [0]
    for start in np.searchsorted(reached, reached[-1] * np.arange(1, n_strata) / n_strata, side="right"):
        if start - starts[-1] >= MIN_STRATUM_DOCUMENTS and n - start >= MIN_STRATUM_DOCUMENTS:
            starts.append(int(start))
    of = np.empty(n, dtype=np.int64)
    of[order] = np.searchsorted(starts, np.arange(n), side="right") - 1
    shuffled = rng.permutation(n)
    shuffled = shuffled[np.argsort(of[shuffled], kind="stable")]
    place = np.empty(n, dtype=np.int64)
    place[shuffled] = np.arange(n) - np.array(starts)[of[shuffled]]
    return Strata(of, place)


def double(least: int, most: int) -> tuple[int, ...]:
    """Numbers of documents to draw one after the other, each twice the one before, from `least` to `most`.

    >>> double(100, 450), double(100, 60)
    ((100, 200, 450), (60,))
    """
    sizes = [least]
    while 2 * sizes[-1] < most:
        sizes.append(2 * sizes[-1])
    return (*(n for n in sizes if n < most), most)


@dataclass(frozen=True)
class Estimate:
    """An estimate of a mean over all documents from drawn ones, which is exact if all are drawn."""

    value: float
    stderr: float

    def interval(self, error: float = 0.05) -> tuple[float, float]:
        """The ends of the normal interval that misses the true mean with probability `error`."""
        reach = float(ndtri(1 - error / 2)) * self.stderr
        return self.value - reach, self.value + reach


@dataclass(frozen=True)
class StratifiedSample:
    """A sample of documents from strata, and estimates of means over all documents from it."""

    strata: Strata
    rows: Ints
    """(n,) the positions of the drawn documents among all."""

    @property
    def stratum_of(self) -> Ints:
        """(n,) the stratum of each drawn document."""
        return self.strata.stratum_of[self.rows]

    @property
    def weights(self) -> Floats:
        """(n,) the number of documents that each drawn document represents."""
        return (self.strata.sizes / self._n)[self.stratum_of]

    @property
    def _n(self) -> Ints:
        return np.bincount(self.stratum_of, minlength=len(self.strata.sizes))

    def mean(self, values: Floats) -> float:
        """The estimated mean over all documents, from the values (n,) of drawn documents."""
        return float(self.weights @ values) / len(self.strata.stratum_of)

    def estimate(self, values: Floats) -> Estimate:
        """The estimated mean over all documents with its error, from the values (n,) of drawn documents."""
        mean = np.bincount(self.stratum_of, values, minlength=len(self._n)) / self._n
        squares = np.bincount(self.stratum_of, (values - mean[self.stratum_of]) ** 2, minlength=len(self._n))
        return Estimate(self.mean(values), self._stderr(squares / np.maximum(self._n - 1, 1)))

    def estimate_rare(self, effects: Floats, guesses: Floats) -> Estimate:
        """The estimated mean over all documents of effects (n,), which are 0 for most documents, else ±1.

        `guesses` (T,): the guessed probability of an effect on each document. With them, the error is above 0
        even if the sample, or a stratum, has no effect.
        """
        guess = np.maximum(np.bincount(self.strata.stratum_of, guesses) / self.strata.sizes, 0.0)
        seen = np.bincount(self.stratum_of, np.abs(effects), minlength=len(guess))
        stderr = self._stderr((seen + GUESSED_RATE_DOCUMENTS * guess) / (self._n + GUESSED_RATE_DOCUMENTS))
        unseen = UNSEEN_SQUARED_EFFECTS * self._stderr(np.ones(len(guess))) ** 4
        return Estimate(self.mean(effects), float(np.sqrt(stderr**2 + unseen)))

    def estimate_by(self, values: Floats, features: Floats) -> Estimate:
        """The estimated mean over all documents of values (n,), with a regression on features (T, F)."""
        x = np.column_stack([np.ones(len(features)), features - features.mean(axis=0)])
        folds = draw_folds(len(x), EFFECT_FOLDS)
        guessed = np.empty(len(x))
        for fold in range(EFFECT_FOLDS):
            away = folds[self.rows] != fold
            here, weights = x[self.rows[away]], self.weights[away] / self.weights.mean()
            penalty = REGRESSION_RIDGE * np.eye(x.shape[1])
            penalty[0, 0] = 1e-9
            slopes = np.linalg.solve(
                here.T @ (here * weights[:, None]) + penalty, here.T @ (weights * values[away])
            )
            guessed[folds == fold] = x[folds == fold] @ slopes
        rest = self.estimate(values - guessed[self.rows])
        return Estimate(float(guessed.mean()) + rest.value, rest.stderr)

    def redraw(self, n_draws: int) -> Floats:
        """(n_draws, n) weights of drawn documents in bootstrap samples (Rao and Wu, 1988)."""
        rng, weights = np.random.default_rng(0), np.empty((n_draws, len(self.rows)))
        for stratum, (n, size) in enumerate(zip(self._n, self.strata.sizes, strict=True)):
            rows = np.flatnonzero(self.stratum_of == stratum)
            times = np.ones((n_draws, n))
            if n > 1:
                drawn = rng.multinomial(n - 1, np.full(n, 1 / n), size=n_draws) * n / (n - 1)
                times += np.sqrt(1 - n / size) * (drawn - 1)
            weights[:, rows] = times * size / n
        return weights

    def _stderr(self, variances: Floats) -> float:
        """The standard error of a mean over all documents, from the variance (H,) within each stratum."""
        sizes = self.strata.sizes
        left_out = (1 - self._n / sizes) / self._n
        return float(np.sqrt(np.sum((sizes / sizes.sum()) ** 2 * variances * left_out)))

"""Intervals of a mean accuracy or a difference of two, over documents or tasks and over training seeds.

They take `one` (K, T) and `other` (J, T), on the same documents: 1 where a seed of a method is right, 0 where
it is wrong. A method is averaged over its seeds. Three things vary, as in an analysis of variance of
documents crossed with seeds: documents, seeds (training luck, the same for all documents), and what a seed
does on a document. The last is in the variance between documents and in that between seeds, so it is taken
from one of them. Owen (2007, "The pigeonhole bootstrap") has the double count.

The interval is Student's t around the estimate. The variance between K seeds has K - 1 degrees of freedom.
Satterthwaite's (1946) for the sum of both covers the truth in 87 % of cases at worst with 2 seeds and 92 %
with 3. Student's factor of each part by itself covers in 99 and 98 %. So seeds have theirs as their share of
the variance grows (`_Error.reach`). It covers in 94 to 96.5 % with 2, 3, 5 and 10 seeds, whatever that share
is; `make bench WHAT=statistics` simulates it. With 2 seeds that differ, such an interval is wide: take 5.
With a single seed nothing is known of training luck: the interval is that of this very fit, over documents.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, inf, isfinite, log, nan, sqrt
from statistics import fmean, stdev

import numpy as np
from scipy.special import bdtr, betaincinv, stdtr, stdtrit

from rlfocal.base.arrays import Floats, Ints, Texts
from rlfocal.base.errors import InputError

_Z = 1.959963984540054
"""The normal distribution's 97.5 % quantile, for two-sided 95 % intervals."""
PRIOR_SQUARED_DIFFERENCES = 1.0
"""Added to the squared differences of the documents, so that an interval has a width where all documents say
the same.

Agresti and Min (2005) add half a document to each kind.
"""

Hits = Floats
Tasks = Texts | Ints


@dataclass(frozen=True)
class Interval:
    """A mean accuracy, as a fraction, with its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference(Interval):
    """A difference of two accuracies on the same documents, as a fraction, with its 95 % interval."""

    p_value: float
    """The smallest level at which the interval excludes zero: below 0.05 exactly where the 95 % interval
    does."""


@dataclass(frozen=True)
class Change(Interval):
    """A change of an accuracy, as a fraction, with its 95 % interval."""

    p_value: float
    """McNemar's exact p-value: the probability that chance alone splits the changed documents as unevenly."""


def mean_over_seeds(accuracies: Sequence[float], n: int) -> tuple[float, float | None, float]:
    """The mean; its standard error over seeds, None for one seed; and its standard error over n documents.

    The latter is sqrt(p (1 - p) / n), as if all seeds erred on the same documents.
    """
    p = fmean(accuracies)
    over_seeds = stdev(accuracies) / sqrt(len(accuracies)) if len(accuracies) > 1 else None
    return p, over_seeds, sqrt(max(p * (1 - p), 0.0) / max(n, 1))  # a mean may exceed 1 by a float's width


def paired_difference(one: Hits, other: Hits, *, clusters: Tasks | None = None) -> Difference:
    """The accuracy of `one` minus that of `other` over all documents.

    With `clusters` (T,), the task of each document, whole tasks vary instead of documents: the interval then
    holds for tasks like these, not only for these tasks. With a single task, nothing is known of others.
    """
    _check(one, other, clusters)
    return _find_difference(one, other, _Documents() if clusters is None else _Clusters(_number(clusters)))


def paired_by_seed(one: Hits, other: Hits) -> Difference:
    """The difference of `paired_difference`, where row k of both (K, T) is of the same draw or training seed.

    What a draw does to both alike is no part of the difference. Raises InputError for other numbers of rows.
    """
    _check(one, other, None)
    if len(one) != len(other):
        raise InputError(f"{len(one)} and {len(other)} seeds: give both methods of the same seeds")
    found = _find_difference(one - other, np.zeros((1, one.shape[1])), _Documents())
    return replace(found, low=max(found.low, -1.0), high=min(found.high, 1.0))


def documents_needed(one: Hits, other: Hits, half_width: float) -> int | None:
    """The number of documents like these at which the interval of `paired_difference` is at most
    ±`half_width`.

    None where differences between seeds alone make it wider, which more seeds would mend.
    """
    _check(one, other, None)
    n, error = one.shape[1], _estimate_error(one, other, _Documents())

    def is_narrow(wanted: int) -> bool:
        scaled = replace(error, units=error.units * n / wanted, unit_freedom=wanted - 1)
        return scaled.reach(0.05) <= half_width

    most = 10**9
    return bisect_left(range(most), True, lo=2, key=is_narrow) if is_narrow(most) else None


def paired_over_tasks(one: Hits, other: Hits, tasks: Tasks, *, whole: bool = False) -> Difference:
    """The mean over tasks of the accuracy of `one` minus that of `other`.

    Every task counts equally, however many documents it has. The tasks (`tasks` (T,)) are fixed, and
    documents vary within each. A task of one document varies as the others do on average. `whole`: tasks vary
    instead, with all their documents.
    """
    _check(one, other, tasks)
    return _find_difference(one, other, _Tasks(_number(tasks)) if whole else _TaskStrata(_number(tasks)))


def mean_over_tasks(one: Hits, tasks: Tasks, *, whole: bool = False) -> Interval:
    """The mean over tasks of one method's accuracy, with an interval as in `paired_over_tasks`."""
    found = paired_over_tasks(one, np.zeros((1, one.shape[-1])), tasks, whole=whole)
    return Interval(found.mean, max(found.low, min(0.0, float(one.min()))), found.high)


def paired_counts(n: int, gained: int, lost: int) -> Change:
    """The change of an accuracy on n documents (1 at least), of which `gained` became right and `lost` wrong.

    The interval is Agresti and Min's (2005, "Simple improved confidence intervals for comparing matched
    proportions"). It is Wald's with half a document added to each of the four kinds, so that it has a width
    where nothing changed.
    """
    total, difference = n + 2, gained - lost
    middle = difference / total
    half = _Z * sqrt(gained + lost + 1 - difference**2 / total) / total
    p_value = min(1.0, 2 * float(bdtr(min(gained, lost), gained + lost, 0.5)))
    return Change(difference / n, max(-1.0, middle - half), min(1.0, middle + half), p_value)


def clopper_pearson(n_right: int, n: int) -> Interval:
    """The share n_right / n with its exact interval (1934, "The use of confidence or fiducial limits"); NaN
    for n = 0.

    The twin of the function `clopper_pearson` in SQL.
    """
    if n == 0:
        return Interval(nan, nan, nan)
    low = float(betaincinv(n_right, n - n_right + 1, 0.025)) if n_right > 0 else 0.0
    high = float(betaincinv(n_right + 1, n - n_right, 0.975)) if n_right < n else 1.0
    return Interval(n_right / n, low, high)


def mean_over_units(values: Floats) -> Difference:
    """The mean of differences (U,) of two or more units, such as tasks, with Student's t-interval."""
    mean, n = float(values.mean()), len(values)
    error = float(values.std(ddof=1)) / sqrt(n)
    if error < 1e-12:
        return Difference(mean, mean, mean, float(abs(mean) < 1e-12))
    half = float(stdtrit(n - 1, 0.975)) * error
    p_value = 2 * float(stdtr(n - 1, -abs(mean) / error))
    return Difference(mean, mean - half, mean + half, p_value)


def holm(p_values: Floats) -> Floats:
    """(M,) the p-values of M comparisons made at once, adjusted by Holm's step-down method (1979).

    Rejecting those below 0.05 errs in any of the M true null hypotheses with probability 0.05 at most.
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    if not ((p_values >= 0) & (p_values <= 1)).all():
        raise InputError(
            f"p-values {p_values.tolist()}: each must be from 0 to 1; leave out what is not compared"
        )
    order = np.argsort(p_values)
    stepped = np.maximum.accumulate(p_values[order] * np.arange(len(order), 0, -1))
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(stepped, 1)
    return adjusted


@dataclass(frozen=True)
class _Documents:
    """The estimate of a mean over documents, where documents vary."""

    def means(self, values: Floats) -> Floats:
        """(R,) the estimate from each row of (R, T)."""
        return np.asarray(values.mean(axis=1))

    def variances(self, values: Floats) -> Floats:
        """(R,) the variance of the estimate from each row of (R, T), by how its units vary; NaN for a
        single unit."""
        n = values.shape[1]
        return np.asarray(values.var(axis=1) / (n - 1)) if n > 1 else np.full(len(values), nan)

    def freedom(self, n: int) -> int:
        """The degrees of freedom of the variance over units, with n documents."""
        return n - 1


@dataclass(frozen=True)
class _Clusters(_Documents):
    """The estimate of a mean over documents, where whole tasks vary: it is a ratio."""

    units: Ints
    """(T,) the task of each document, from 0."""

    def variances(self, values: Floats) -> Floats:
        rest = _sum_by_task(values - values.mean(axis=1, keepdims=True), self.units)
        n = rest.shape[1]
        return np.asarray((rest**2).sum(axis=1) * n / max(n - 1, 1) / len(self.units) ** 2)

    def freedom(self, n: int) -> int:
        return int(self.units.max())


@dataclass(frozen=True)
class _TaskStrata(_Documents):
    """The estimate of a mean over tasks, where the documents of each vary."""

    units: Ints

    def means(self, values: Floats) -> Floats:
        return np.asarray((_sum_by_task(values, self.units) / np.bincount(self.units)).mean(axis=1))

    def variances(self, values: Floats) -> Floats:
        n = np.bincount(self.units)
        rest = values - (_sum_by_task(values, self.units) / n)[:, self.units]
        within = _sum_by_task(rest**2, self.units) / np.maximum(n - 1, 1)
        known = n > 1
        within[:, ~known] = within[:, known].mean(axis=1, keepdims=True) if known.any() else 0.0
        return np.asarray((within / n).sum(axis=1) / len(n) ** 2)

    def freedom(self, n: int) -> int:
        return n - int(self.units.max()) - 1


@dataclass(frozen=True)
class _Tasks(_TaskStrata):
    """The estimate of a mean over tasks, where tasks vary."""

    def variances(self, values: Floats) -> Floats:
        return _Documents().variances(_sum_by_task(values, self.units) / np.bincount(self.units))

    def freedom(self, n: int) -> int:
        return int(self.units.max())


@dataclass(frozen=True)
class _Error:
    """The error of an estimate: a variance, with its degrees of freedom, over units and over seeds."""

    units: float
    unit_freedom: float
    seeds: float
    seed_freedom: float

    def reach(self, level: float) -> float:
        """The distance from the estimate that the truth exceeds in a share `level` of cases at most.

        From a share of 1 / (1 + 4 / df) of the variance, the seeds' part gets Student's factor for its `df`
        degrees of freedom. Below, it nears the units' factor by the share's fourth power. This shape was
        chosen by coverage, computed for a `df` of 1, 2, 4 and 9 and every ratio of the two variances.
        """
        if self.unit_freedom < 1:
            return inf
        whole, usual = self.units + self.seeds, _quantile(self.unit_freedom, level) ** 2
        if self.seeds == 0:
            return sqrt(usual * whole)
        near = min(1.0, (1 + 4 / self.seed_freedom) * self.seeds / whole) ** 4
        more = max(0.0, _quantile(self.seed_freedom, level) ** 2 - usual)
        return sqrt(usual * whole + more * near * self.seeds)

    def p_value(self, mean: float) -> float:
        """The smallest level at which 0 is excluded as the truth."""
        low, high = log(1e-18), 0.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if self.reach(exp(middle)) < abs(mean) else (middle, high)
        return exp(high)


def _quantile(freedom: float, level: float) -> float:
    return float(-stdtrit(freedom, level / 2))


def _estimate_error(one: Hits, other: Hits, scheme: _Documents) -> _Error:
    n = one.shape[1]
    least = PRIOR_SQUARED_DIFFERENCES / n**2
    both = float(scheme.variances((one.mean(axis=0) - other.mean(axis=0))[None])[0]) + least
    parts: list[tuple[float, int]] = []
    for hits in (one, other):
        k = len(hits)
        if k > 1:
            # What seeds do on single documents, in the mean over seeds.
            alone = float(scheme.variances(hits - hits.mean(axis=0)).sum()) / (k * (k - 1))
            both -= alone
            parts.append((float(scheme.means(hits).var(ddof=1)) / k, k - 1))
    seeds = sum(variance for variance, _ in parts)
    units = max(both, least)
    if seeds < 1e-18:
        return _Error(units, scheme.freedom(n), 0.0, 1.0)
    # Welch's degrees of freedom of two, which on average fall short by less than Satterthwaite's.
    welch = seeds**2 / sum(variance**2 / (freedom + 2) for variance, freedom in parts) - 2
    each = [freedom for _, freedom in parts]
    return _Error(units, scheme.freedom(n), seeds, min(max(welch, min(each)), sum(each)))


def _find_difference(one: Hits, other: Hits, scheme: _Documents) -> Difference:
    mean = float(scheme.means(one).mean() - scheme.means(other).mean())
    error = _estimate_error(one, other, scheme)
    reach = error.reach(0.05)
    # No further off than any hits could be, which are 0 or 1 as a rule.
    values = np.concatenate([one.ravel(), other.ravel(), [0.0, 1.0]])
    most = float(values.max() - values.min())
    p_value = error.p_value(mean) if isfinite(reach) else 1.0
    return Difference(mean, max(mean - reach, -most), min(mean + reach, most), p_value)


def _sum_by_task(values: Floats, units: Ints) -> Floats:
    """(R, G) the sum of each row of (R, T) over each task."""
    return np.stack([np.bincount(units, row) for row in values])


def _number(tasks: Tasks) -> Ints:
    """(T,) each document's task as a number from 0."""
    return np.asarray(np.unique(tasks, return_inverse=True)[1], dtype=np.int64)


def _check(one: Hits, other: Hits, tasks: Tasks | None) -> None:
    """Raises InputError unless both methods decided the same documents."""
    shapes = [one.shape, other.shape] + ([] if tasks is None else [tasks.shape])
    if one.ndim != 2 or other.ndim != 2 or not one.size or not other.size or len({s[-1] for s in shapes}) > 1:
        raise InputError(
            f"hits of shapes {', '.join(map(str, shapes))}: give (seeds, documents) of the same documents, "
            "and a task for each"
        )
    if n := int(np.isnan(one).sum() + np.isnan(other).sum()):
        raise InputError(f"{n} hits are NaN: leave out undecided documents")

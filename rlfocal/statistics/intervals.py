"""Intervals of a mean accuracy or a difference of two, over documents or tasks and over training seeds.

They take `hits` (K, T) and `other_hits` (J, T) of two methods on the same documents: 1 where a seed of the
method is right, 0 where it is wrong. A method's accuracy is a mean over its seeds. Three things vary, as in
an analysis of variance of documents crossed with seeds: documents, seeds (training luck, the same for all
documents), and the effect of a seed on a document. The variances over documents and over seeds both contain
the last, so it is subtracted from one of them (Owen, 2007, "The pigeonhole bootstrap").

The interval is Student's t around the estimate. The variance over K seeds has K - 1 degrees of freedom.
Satterthwaite's degrees of freedom (1946) of the sum cover the truth in 87 % of cases at worst with 2 seeds,
and 92 % with 3. Separate factors for both parts cover in 99 and 98 %. So the seeds' part gets its own factor
only as its share of the variance grows (`_Error.reach`). That covers in 94 to 96.5 % with 2, 3, 5 and 10
seeds, whatever the share; `make bench WHAT=statistics` simulates it. With 2 seeds that differ, intervals are
wide, so take 5. With a single seed, the interval is over documents alone, without training luck.
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
"""A constant in the sum of squared differences over documents, so that no interval has a width of 0.

Agresti and Min (2005) add half a document of each kind for the same purpose.
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
    """The smallest level at which the interval excludes 0: below 0.05 if and only if the 95 % interval does.
    """


@dataclass(frozen=True)
class Change(Interval):
    """A change of an accuracy, as a fraction, with its 95 % interval."""

    p_value: float
    """McNemar's exact p-value, of the split of changed documents into those now right and those now wrong."""


def mean_over_seeds(accuracies: Sequence[float], n: int) -> tuple[float, float | None, float]:
    """The mean accuracy, its standard error over seeds (None for one seed), and that over n documents.

    The last is sqrt(p (1 - p) / n), as if all seeds erred on the same documents.
    """
    p = fmean(accuracies)
    over_seeds = stdev(accuracies) / sqrt(len(accuracies)) if len(accuracies) > 1 else None
    return p, over_seeds, sqrt(max(p * (1 - p), 0.0) / max(n, 1))  # a mean may exceed 1 by a float's width


def paired_difference(hits: Hits, other_hits: Hits, *, clusters: Tasks | None = None) -> Difference:
    """The accuracy of `hits` (K, T) minus that of `other_hits` (J, T) over all documents.

    `clusters` (T,): the task of each document. With it, whole tasks vary instead of documents, so that the
    interval is for other tasks like these. It is then unbounded for a single task.
    """
    _check(hits, other_hits, clusters)
    return _find_difference(
        hits, other_hits, _Documents() if clusters is None else _Clusters(_number(clusters))
    )


def paired_by_seed(hits: Hits, other_hits: Hits) -> Difference:
    """The difference as in `paired_difference`, where row k of both (K, T) has the same draw or seed.

    Effects of a draw on both rows cancel. Raises InputError if the numbers of rows differ.
    """
    _check(hits, other_hits, None)
    if len(hits) != len(other_hits):
        raise InputError(f"{len(hits)} and {len(other_hits)} seeds: give both methods with the same seeds")
    found = _find_difference(hits - other_hits, np.zeros((1, hits.shape[1])), _Documents())
    return replace(found, low=max(found.low, -1.0), high=min(found.high, 1.0))


def documents_needed(hits: Hits, other_hits: Hits, half_width: float) -> int | None:
    """The number of documents like these at which `paired_difference` has an interval of ±`half_width`.

    None if differences between seeds alone make the interval wider.
    """
    _check(hits, other_hits, None)
    n, error = hits.shape[1], _estimate_error(hits, other_hits, _Documents())

    def is_narrow(n_documents: int) -> bool:
        scaled = replace(error, units=error.units * n / n_documents, unit_freedom=n_documents - 1)
        return scaled.reach(0.05) <= half_width

    most = 10**9
    return bisect_left(range(most), True, lo=2, key=is_narrow) if is_narrow(most) else None


def paired_over_tasks(hits: Hits, other_hits: Hits, tasks: Tasks, *, whole: bool = False) -> Difference:
    """The mean over tasks of the accuracy of `hits` minus that of `other_hits`; every task counts equally.

    `tasks` (T,): the task of each document. Tasks are fixed, and documents vary within each task. A task of
    one document gets the mean variance of the others. `whole`: tasks vary instead, with all their documents.
    """
    _check(hits, other_hits, tasks)
    return _find_difference(
        hits, other_hits, _Tasks(_number(tasks)) if whole else _TaskStrata(_number(tasks))
    )


def mean_over_tasks(hits: Hits, tasks: Tasks, *, whole: bool = False) -> Interval:
    """The mean over tasks of one method's accuracy, with an interval as in `paired_over_tasks`."""
    found = paired_over_tasks(hits, np.zeros((1, hits.shape[-1])), tasks, whole=whole)
    return Interval(found.mean, max(found.low, min(0.0, float(hits.min()))), found.high)


def paired_counts(n: int, n_gained: int, n_lost: int) -> Change:
    """The change of an accuracy on n ≥ 1 documents, of which `n_gained` became right and `n_lost` wrong.

    The interval is Agresti and Min's (2005, "Simple improved confidence intervals for comparing matched
    proportions"). It is Wald's with half a document added to each of the four kinds, so that it never has a
    width of 0.
    """
    total, difference = n + 2, n_gained - n_lost
    middle = difference / total
    half = _Z * sqrt(n_gained + n_lost + 1 - difference**2 / total) / total
    p_value = min(1.0, 2 * float(bdtr(min(n_gained, n_lost), n_gained + n_lost, 0.5)))
    return Change(difference / n, max(-1.0, middle - half), min(1.0, middle + half), p_value)


def clopper_pearson(n_right: int, n: int) -> Interval:
    """The share n_right / n with Clopper and Pearson's exact interval (1934); NaN for n = 0.

    It is the twin of the SQL function `clopper_pearson`.
    """
    if n == 0:
        return Interval(nan, nan, nan)
    low = float(betaincinv(n_right, n - n_right + 1, 0.025)) if n_right > 0 else 0.0
    high = float(betaincinv(n_right + 1, n - n_right, 0.975)) if n_right < n else 1.0
    return Interval(n_right / n, low, high)


def mean_over_units(values: Floats) -> Difference:
    """The mean of values (U,), one of each of two or more units such as tasks, with Student's t-interval."""
    mean, n = float(values.mean()), len(values)
    error = float(values.std(ddof=1)) / sqrt(n)
    if error < 1e-12:
        return Difference(mean, mean, mean, float(abs(mean) < 1e-12))
    half = float(stdtrit(n - 1, 0.975)) * error
    p_value = 2 * float(stdtr(n - 1, -abs(mean) / error))
    return Difference(mean, mean - half, mean + half, p_value)


def holm(p_values: Floats) -> Floats:
    """(M,) the p-values of M comparisons, adjusted by Holm's step-down method (1979).

    If adjusted p-values below 0.05 are rejected, any true null hypothesis is rejected with a probability of
    at most 0.05.
    """
    p_values = np.asarray(p_values, dtype=np.float64)
    if not ((p_values >= 0) & (p_values <= 1)).all():
        raise InputError(
            f"p-values {p_values.tolist()}: each must be from 0 to 1; leave out missing comparisons"
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
        """(R,) the estimate from each row of values (R, T)."""
        return np.asarray(values.mean(axis=1))

    def variances(self, values: Floats) -> Floats:
        """(R,) the variance of the estimate from each row of values (R, T), over units; NaN for one unit."""
        n = values.shape[1]
        return np.asarray(values.var(axis=1) / (n - 1)) if n > 1 else np.full(len(values), nan)

    def freedom(self, n: int) -> int:
        """The degrees of freedom of the variance over units, with n documents."""
        return n - 1


@dataclass(frozen=True)
class _Clusters(_Documents):
    """The estimate of a mean over documents, where whole tasks vary."""

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
    """The estimate of a mean over tasks, where the documents of each task vary."""

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
    """The error of an estimate: its variances over units and over seeds, and their degrees of freedom."""

    units: float
    unit_freedom: float
    seeds: float
    seed_freedom: float

    def reach(self, level: float) -> float:
        """The half-width of the interval outside of which the truth lies in a share `level` of cases.

        If the seeds' share of the variance is 1 / (1 + 4 / df) or more, their part gets Student's factor for
        its df degrees of freedom. Below, the factor falls to that of units with the fourth power of the
        share. This shape was chosen by coverage, for df = 1, 2, 4 and 9 and all ratios of the variances.
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
        """The smallest level at which the interval around `mean` excludes 0."""
        low, high = log(1e-18), 0.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if self.reach(exp(middle)) < abs(mean) else (middle, high)
        return exp(high)


def _quantile(freedom: float, level: float) -> float:
    return float(-stdtrit(freedom, level / 2))


def _estimate_error(hits: Hits, other_hits: Hits, scheme: _Documents) -> _Error:
    n = hits.shape[1]
    least = PRIOR_SQUARED_DIFFERENCES / n**2
    both = float(scheme.variances((hits.mean(axis=0) - other_hits.mean(axis=0))[None])[0]) + least
    parts: list[tuple[float, int]] = []
    for part in (hits, other_hits):
        k = len(part)
        if k > 1:
            # What seeds do on single documents, in the mean over seeds.
            alone = float(scheme.variances(part - part.mean(axis=0)).sum()) / (k * (k - 1))
            both -= alone
            parts.append((float(scheme.means(part).var(ddof=1)) / k, k - 1))
    seeds = sum(variance for variance, _ in parts)
    units = max(both, least)
    if seeds < 1e-18:
        return _Error(units, scheme.freedom(n), 0.0, 1.0)
    # Welch's degrees of freedom of two, which on average fall short by less than Satterthwaite's.
    welch = seeds**2 / sum(variance**2 / (freedom + 2) for variance, freedom in parts) - 2
    each = [freedom for _, freedom in parts]
    return _Error(units, scheme.freedom(n), seeds, min(max(welch, min(each)), sum(each)))


def _find_difference(hits: Hits, other_hits: Hits, scheme: _Documents) -> Difference:
    mean = float(scheme.means(hits).mean() - scheme.means(other_hits).mean())
    error = _estimate_error(hits, other_hits, scheme)
    reach = error.reach(0.05)
    # No further off than any hits could be, which are 0 or 1 as a rule.
    values = np.concatenate([hits.ravel(), other_hits.ravel(), [0.0, 1.0]])
    most = float(values.max() - values.min())
    p_value = error.p_value(mean) if isfinite(reach) else 1.0
    return Difference(mean, max(mean - reach, -most), min(mean + reach, most), p_value)


def _sum_by_task(values: Floats, units: Ints) -> Floats:
    """(R, G) the sum of each row of values (R, T) over each task; `units` (T,) are tasks from 0."""
    return np.stack([np.bincount(units, row) for row in values])


def _number(tasks: Tasks) -> Ints:
    """(T,) each document's task as a number from 0."""
    return np.asarray(np.unique(tasks, return_inverse=True)[1], dtype=np.int64)


def _check(hits: Hits, other_hits: Hits, tasks: Tasks | None) -> None:
    """Raises InputError unless both methods decided the same documents."""
    shapes = [hits.shape, other_hits.shape] + ([] if tasks is None else [tasks.shape])
    if (
        hits.ndim != 2
        or other_hits.ndim != 2
        or not hits.size
        or not other_hits.size
        or len({s[-1] for s in shapes}) > 1
    ):
        raise InputError(
            f"hits of shapes {', '.join(map(str, shapes))}: give (seeds, documents) on the same documents, "
            "and a task for each document"
        )
    if n := int(np.isnan(hits).sum() + np.isnan(other_hits).sum()):
        raise InputError(f"{n} hits are NaN: leave out documents that a seed did not decide")

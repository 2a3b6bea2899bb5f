"""Selective prediction, which gives only the likeliest answers: risk-coverage curves and promises."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import binom

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError
from rlfocal.statistics.intervals import Interval


class RiskCoverage(NamedTuple):
    """A risk-coverage curve: at each step, all documents with at least its probability are accepted.

    All fields but the threshold may be of several draws of the same documents: (..., steps).
    """

    threshold: Floats
    n: Ints
    """The number of accepted documents."""
    coverage: Floats
    """The share of all documents that are accepted."""
    risk: Floats
    """The share of wrong answers among the accepted documents."""

    @property
    def area(self) -> Floats:
        """(...,) the AURC (Geifman & El-Yaniv 2017): the mean, over documents, of the risk of their step.

        NaN if no document has a probability.
        """
        if not len(self.threshold):
            return np.full(self.n.shape[:-1], np.nan)
        total = np.maximum(self.n[..., -1], 1)
        return np.asarray((np.diff(self.n, prepend=0, axis=-1) * self.risk).sum(axis=-1) / total)

    def accuracy_at(self, coverage: float) -> Floats:
        """(...,) the accuracy at the first step with at least this coverage; NaN if there is none."""
        if not len(self.threshold):
            return np.full(self.n.shape[:-1], np.nan)
        reached = self.coverage >= coverage - 1e-12
        first = reached.argmax(axis=-1)[..., None]
        risk = np.take_along_axis(self.risk, first, axis=-1)[..., 0]
        return np.where(reached.any(axis=-1), 1 - risk, np.nan)

    def coverage_at(self, error: float) -> Floats:
        """(...,) the largest coverage of a step with a risk of at most `error`; 0 if there is none."""
        within = self.risk <= error + 1e-12
        return np.asarray(np.where(within, self.coverage, 0.0).max(axis=-1, initial=0.0))


def risk_coverage(probability: Floats, correct: Bools) -> RiskCoverage:
    """The risk-coverage curve of El-Yaniv & Wiener (2010) over all documents.

    `probability` (T,) is in [0, 1], or NaN for a document without an answer or probability. Such a document
    is never accepted, but counts among all documents. `correct` (T,) says whether the answer is right.

    Raises InputError if a value is not a probability, or the two arrays have different lengths.
    """
    if probability.shape != correct.shape:
        raise InputError(
            f"{probability.shape} probabilities for {correct.shape} documents: give one for each"
        )
    is_known = ~np.isnan(probability)
    outside = is_known & ~((probability >= 0) & (probability <= 1))
    if outside.any():
        raise InputError(f"{probability[outside][0]} is no probability: give values from 0 to 1")
    rising, step, count = np.unique(probability[is_known], return_inverse=True, return_counts=True)
    wrong = np.bincount(step, ~correct[is_known].astype(bool), len(rising))
    n = np.cumsum(count[::-1])
    return RiskCoverage(rising[::-1], n, n / max(len(probability), 1), np.cumsum(wrong[::-1]) / n)


REPORTED_COVERAGES, REPORTED_ERRORS = (0.5, 0.8, 0.9, 0.95), (0.01, 0.02, 0.05, 0.1)
BOOTSTRAP_DRAWS = 1_000
_DRAWS_PER_BLOCK = 100
"""The number of bootstrap draws in one array, which has a weight for each draw and document."""


class SelectiveFigures(NamedTuple):
    """Figures of risk-coverage curves: means over seeds, with 95 % bootstrap intervals over documents."""

    area: Interval
    accuracy_at: Mapping[str, Interval]
    """For each coverage, the accuracy; NaN if fewer documents have an answer."""
    coverage_at: Mapping[str, Interval]
    """For each allowed share of wrong answers, the largest coverage."""


def selective(probability: Floats, correct: Bools, draws: int = BOOTSTRAP_DRAWS) -> SelectiveFigures:
    """The figures of S seeds' answers to the same documents; both arrays are (S, T).

    All seeds have the same bootstrap draws.
    """
    curves = [risk_coverage(*pair) for pair in zip(probability, correct, strict=True)]
    values = np.mean([_compute_figures(curve) for curve in curves], axis=0)
    rng, n = np.random.default_rng(0), probability.shape[1]
    parts = []
    for start in range(0, draws, _DRAWS_PER_BLOCK):
        weights = rng.multinomial(n, np.full(n, 1 / n), size=min(_DRAWS_PER_BLOCK, draws - start))
        parts.append(
            np.mean(
                [_bootstrap_figures(*pair, weights) for pair in zip(probability, correct, strict=True)],
                axis=0,
            )
        )
    low, high = np.quantile(np.concatenate(parts, axis=1), [0.025, 0.975], axis=1)
    each = [Interval(*map(float, row)) for row in zip(values, low, high, strict=True)]
    n_first = len(REPORTED_COVERAGES) + 1
    return SelectiveFigures(
        each[0],
        {f"{share:g}": interval for share, interval in zip(REPORTED_COVERAGES, each[1:n_first], strict=True)},
        {f"{share:g}": interval for share, interval in zip(REPORTED_ERRORS, each[n_first:], strict=True)},
    )


def _bootstrap_figures(probability: Floats, correct: Bools, weights: Ints) -> Floats:
    """(K, B) the K figures in B bootstrap draws, in which each document counts `weights` (B, T) times."""
    order = np.argsort(-probability, kind="stable")[: int((~np.isnan(probability)).sum())]
    last = np.flatnonzero(np.diff(probability[order], append=-1.0))  # ties are accepted together
    n = np.cumsum(weights[:, order], axis=1)[:, last]
    wrong = np.cumsum(weights[:, order] * ~correct[order], axis=1)[:, last]
    threshold = probability[order][last]
    return _compute_figures(RiskCoverage(threshold, n, n / probability.shape[0], wrong / np.maximum(n, 1)))


def _compute_figures(curve: RiskCoverage) -> Floats:
    """(K, ...) the area, accuracies and coverages of a curve, which may be of several draws."""
    return np.array(
        [curve.area, *map(curve.accuracy_at, REPORTED_COVERAGES), *map(curve.coverage_at, REPORTED_ERRORS)]
    )


PROMISE_CONFIDENCE = 0.9
"""The probability that a promise holds, over draws of the train documents."""
GRID_STEPS, GRID_STARTS = 20, 5
"""The number of thresholds in the grid, at equal steps of coverage, and of those that begin a sequence."""

WITHDRAWN_LABEL = "withdrawn"
"""The text that is stored in place of a threshold after a promise was withdrawn."""


class Promise(NamedTuple):
    """A promise that, of the answers with at least a threshold probability, at most a share is wrong."""

    target: float
    threshold: float | None
    """The least probability of an accepted answer; None after too few documents or too many errors."""
    n: int
    """The number of documents on which the promise was made or tested."""
    answered: int
    """The number of these documents whose answer reaches the threshold."""
    wrong: int
    """The number of these answers that are wrong."""


def make_promise(
    probability: Floats, right: Bools, target: float, sure: float = PROMISE_CONFIDENCE
) -> Promise:
    """Promises the lowest threshold at which at most a share `target` of answers is wrong.

    The promise holds with probability `sure`. `probability` (T,) is of held-out answers, NaN without an
    answer, and `right` (T,) says whether they are right. It is the fixed-sequence testing of Learn then Test
    (Angelopoulos et al., arXiv 2110.01052), whose grid of thresholds depends on no label. From each of
    GRID_STARTS thresholds on, lower ones are tested until one fails. The test is the exact binomial one at
    level (1 - sure) / GRID_STARTS.
    """
    n, level = len(probability), (1 - sure) / GRID_STARTS
    sorted_known = np.sort(probability[~np.isnan(probability)])[::-1]
    nothing = Promise(target, None, n, 0, 0)
    if not len(sorted_known):
        return nothing
    places = np.ceil(np.arange(1, GRID_STEPS + 1) / GRID_STEPS * len(sorted_known)).astype(np.int64) - 1
    thresholds = sorted_known[places]
    answered = np.array([int((probability >= threshold).sum()) for threshold in thresholds])
    wrong = np.array([int((~right[probability >= threshold]).sum()) for threshold in thresholds])
    passes = binom.cdf(wrong, answered, target) <= level
    best = -1
    for start in range(0, GRID_STEPS, GRID_STEPS // GRID_STARTS):
        failed = np.flatnonzero(~passes[start:])
        best = max(best, (start + int(failed[0]) if len(failed) else GRID_STEPS) - 1 if passes[start] else -1)
    if best < 0:
        return nothing
    return Promise(target, float(thresholds[best]), n, int(answered[best]), int(wrong[best]))


def share(given: str | float) -> float:
    """Reads a share of errors, such as "5%", "0.05" or 0.05.

    Raises InputError for anything that is no share above 0 and below 1.
    """
    text = str(given)
    try:
        value = round(float(text.removesuffix("%")) / (100 if text.endswith("%") else 1), 12)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise InputError(f"{given!r} is not a share of errors between 0 and 100 %; give 5% or 0.05")
    return value


def promises_file(checkpoint: Path) -> Path:
    """The file of the promises that were made for a checkpoint's agents."""
    return checkpoint.with_suffix(".promises.json")


def read_promises(checkpoint: Path) -> dict[str, float | str | None]:
    """For each target of a checkpoint's promises, the threshold, WITHDRAWN_LABEL, or None for neither."""
    path = promises_file(checkpoint)
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


def active_thresholds(checkpoint: Path) -> dict[float, float]:
    """For each target of a checkpoint's promises in force, the threshold."""
    made = read_promises(checkpoint)
    return {float(target): threshold for target, threshold in made.items() if isinstance(threshold, float)}


def promised_threshold(checkpoint: Path, target: float) -> float:
    """The threshold that was promised for a checkpoint's agents and this target.

    Raises InputError if no such promise is in force.
    """
    path, made = promises_file(checkpoint), read_promises(checkpoint)
    command = f"rlfocal evaluate -b BENCHMARK --methods METHOD --target-error {100 * target:g}%"
    if f"{target:g}" not in made:
        raise InputError(
            f"{path} has no promise of at most {100 * target:g} % errors; make it by `{command}`, or copy "
            "the file along with its checkpoint"
        )
    threshold = made[f"{target:g}"]
    if threshold is None:
        raise InputError(
            f"{path}: train had too few documents, or too many errors, to promise at most {100 * target:g} % "
            "errors; ask for a higher share, or add labelled documents"
        )
    if threshold == WITHDRAWN_LABEL:
        raise InputError(
            f"{path}: the promise of at most {100 * target:g} % errors is withdrawn, because new answers "
            "broke it; train and promise again on the present answers"
        )
    return float(threshold)

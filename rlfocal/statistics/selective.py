"""Answering only the likeliest answers: the curve of risk over coverage, its figures, and promises."""

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
    """Steps of the probability, highest first: at each, all documents with at least that probability are
    accepted.

    All fields but the threshold may be of several draws of the same documents: (..., steps).
    """

    threshold: Floats
    n: Ints
    """The number of accepted documents."""
    coverage: Floats
    """The share of all documents that each step accepts."""
    risk: Floats
    """The share of wrong answers among accepted documents."""

    @property
    def area(self) -> Floats:
        """(...,) AURC (Geifman & El-Yaniv 2017): the mean over accepted documents of their step's risk.

        NaN if no document has a probability.
        """
        if not len(self.threshold):
            return np.full(self.n.shape[:-1], np.nan)
        total = np.maximum(self.n[..., -1], 1)
        return np.asarray((np.diff(self.n, prepend=0, axis=-1) * self.risk).sum(axis=-1) / total)

    def accuracy_at(self, coverage: float) -> Floats:
        """(...,) the accuracy of the smallest step that covers `coverage`; NaN if no step does."""
        if not len(self.threshold):
            return np.full(self.n.shape[:-1], np.nan)
        reached = self.coverage >= coverage - 1e-12
        first = reached.argmax(axis=-1)[..., None]
        risk = np.take_along_axis(self.risk, first, axis=-1)[..., 0]
        return np.where(reached.any(axis=-1), 1 - risk, np.nan)

    def coverage_at(self, error: float) -> Floats:
        """(...,) the largest coverage of a step with a risk of at most `error`; 0 if no step has one."""
        within = self.risk <= error + 1e-12
        return np.asarray(np.where(within, self.coverage, 0.0).max(axis=-1, initial=0.0))


def risk_coverage(probability: Floats, correct: Bools) -> RiskCoverage:
    """The risk-coverage curve of El-Yaniv & Wiener (2010) over all documents.

    `probability` (T,) is in [0, 1], NaN where a document has no answer or no probability: it is never
    accepted, but counts among all documents. `correct` (T,) says whether the answer is right.

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
"""The number of bootstrap draws made at once: each has a weight per document."""


class SelectiveFigures(NamedTuple):
    """Figures of the risk-coverage curve: means over seeds with 95 % bootstrap intervals over documents."""

    area: Interval
    accuracy_at: Mapping[str, Interval]
    """By coverage, the accuracy; NaN where fewer documents have an answer."""
    coverage_at: Mapping[str, Interval]
    """By allowed share of wrong answers, the coverage."""


def selective(probability: Floats, correct: Bools, draws: int = BOOTSTRAP_DRAWS) -> SelectiveFigures:
    """The figures of S seeds' answers to the same documents, both (S, T).

    Each bootstrap draw is the same for all seeds.
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
    """(K, B) the figures where document t counts `weights` (B, T) times."""
    order = np.argsort(-probability, kind="stable")[: int((~np.isnan(probability)).sum())]
    last = np.flatnonzero(np.diff(probability[order], append=-1.0))  # ties are accepted together
    n = np.cumsum(weights[:, order], axis=1)[:, last]
    wrong = np.cumsum(weights[:, order] * ~correct[order], axis=1)[:, last]
    threshold = probability[order][last]
    return _compute_figures(RiskCoverage(threshold, n, n / probability.shape[0], wrong / np.maximum(n, 1)))


def _compute_figures(curve: RiskCoverage) -> Floats:
    """(K, ...) area, accuracies and coverages of one curve, or of several draws."""
    return np.array(
        [curve.area, *map(curve.accuracy_at, REPORTED_COVERAGES), *map(curve.coverage_at, REPORTED_ERRORS)]
    )


PROMISE_CONFIDENCE = 0.9
"""The probability that a promise holds, over draws of the train documents."""
GRID_STEPS, GRID_STARTS = 20, 5
"""The fixed grid: thresholds at every twentieth of the answers; and at how many of them a sequence starts."""

WITHDRAWN_LABEL = "withdrawn"
"""What is stored in place of a threshold once a promise is broken."""


class Promise(NamedTuple):
    """A promise: of the answers with at least this probability, at most a share `target` is wrong."""

    target: float
    threshold: float | None
    """The least probability of an accepted answer; None: train has too few documents, or too many errors."""
    n: int
    """The number of documents on which the promise was made or tested."""
    answered: int
    """The number of those documents whose answer reaches the threshold."""
    wrong: int
    """The number of those answers that are wrong."""


def make_promise(
    probability: Floats, right: Bools, target: float, sure: float = PROMISE_CONFIDENCE
) -> Promise:
    """The lowest threshold at which the share of wrong answers is at most `target` with certainty `sure`.

    `probability` (T,) is of held-out answers, NaN where there is none; `right` (T,) says whether they are
    right. It is fixed-sequence testing of Learn then Test (Angelopoulos et al., arXiv 2110.01052): the grid
    depends on no label. From each of GRID_STARTS thresholds on, looser ones are tested until one fails, by
    the exact binomial test at level (1 - sure) / GRID_STARTS.
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


def share(text: str) -> float:
    """A share of errors, from "5%" or "0.05".

    Raises InputError for a text that is no share between 0 and 1.
    """
    try:
        value = round(float(text.removesuffix("%")) / (100 if text.endswith("%") else 1), 12)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise InputError(f"{text!r} is not a share of errors between 0 and 100 %; give 5% or 0.05")
    return value


def promises_file(checkpoint: Path) -> Path:
    """The file that holds the thresholds promised for a checkpoint's agents."""
    return checkpoint.with_suffix(".promises.json")


def read_promises(checkpoint: Path) -> dict[str, float | str | None]:
    """The promises of a checkpoint by target: a threshold, None where nothing was promised, or
    `WITHDRAWN_LABEL`."""
    path = promises_file(checkpoint)
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


def active_thresholds(checkpoint: Path) -> dict[float, float]:
    """By target, the thresholds of promises that are in force."""
    made = read_promises(checkpoint)
    return {float(target): threshold for target, threshold in made.items() if isinstance(threshold, float)}


def promised_threshold(checkpoint: Path, target: float) -> float:
    """The threshold promised for a checkpoint's agents.

    Raises InputError where there is none, with what to do.
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
            f"{path}: the promise of at most {100 * target:g} % errors is withdrawn: new answers broke it; "
            "train and promise again on the answers of today"
        )
    return float(threshold)

"""Estimates what a model is worth to a pool, from its answers to a few documents of a benchmark.

Two kinds of documents are informative. On some, the team's answer is close, as shown by leaving members out.
Others are right for some members and wrong for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from math import ceil, sqrt
from statistics import fmean
from typing import Literal

import numpy as np
from scipy.special import ndtri

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.dataset import Dataset
from rlfocal.new_model.team import TEAM_FOLDS, Team, TeamEvidence, form_team
from rlfocal.report.pools import largest_enumerable
from rlfocal.statistics.diversity import every_pool, plurality_accuracy
from rlfocal.statistics.metrics import PairCounts, focal_correlation, ratio
from rlfocal.statistics.sampling import Estimate, Strata, StratifiedSample, double, stratify
from rlfocal.statistics.votes import plurality

SMALLEST_GAIN = 0.005
"""The least gain, as a fraction, that makes a model worth its place."""
FIRST_LOOK = 100
MAX_ASKED_SHARE = 0.1
"""The largest share of a benchmark's documents that is asked for a clear verdict."""
MAX_FIRST_DOCUMENTS = 200
POOL_SIZES = (2, 3, 4)
LEAD_STANDARD_ERRORS = 2.5
"""The lead over all others, in standard errors, with which a model answers a task alone."""
BOOTSTRAP_FITS = 10
"""The number of fits of the newcomer's weight on bootstrap samples. They show how uncertain a fit on few
documents is."""
BOOTSTRAP_DRAWS = 500
"""The number of bootstrap samples behind the intervals of a newcomer's pairs with members."""

Verdict = Literal["join", "do not join", "unclear"]


@dataclass(frozen=True)
class PairEstimate:
    """Estimates of how a model fails in comparison with one member of the pool."""

    member: str
    correlation: Interval
    """The correlation of the model's failures with the member's."""
    focal_diversity: Interval
    """The focal diversity of the model and the member as a pool, Eq (8) of the paper."""


Interval = tuple[float, float, float]
"""An estimate, and both ends of its 95 % interval."""


@dataclass(frozen=True)
class PoolEstimate:
    """The best pool of its size by plurality, and its gain in accuracy if the model replaces a member."""

    size: int
    models: tuple[str, ...]
    leaves: str
    """The name of the member that the model replaces."""
    gain: Interval


@dataclass(frozen=True)
class Assessment:
    """An estimate of what a model is worth, from its answers to `n` documents of a benchmark. Figures are
    fractions; intervals are of 95 %."""

    benchmark: str
    n: int
    n_docs: int
    accuracy: Interval
    gain: Interval
    """The log-linear team's gain in accuracy when the model joins it."""
    gain_by_task: Interval
    """The gain in accuracy if the model alone answers the tasks on which it is ahead of the team and all
    members."""
    verdict: Verdict
    """The verdict, from intervals that hold at all looks together."""
    leaning: Verdict
    """The verdict. If it is unclear, the verdict that the estimated gains alone suggest."""
    more: int
    """The number of further documents that should make the verdict clear; 0 if it is clear."""
    pairs: tuple[PairEstimate, ...]
    pools: tuple[PoolEstimate, ...]


@dataclass(frozen=True)
class Design:
    """The design of a probe on one benchmark: the order in which documents are asked, and how answers are
    judged."""

    team: Team
    strata: Strata

    @property
    def dataset(self) -> Dataset:
        """The members' answers to all documents."""
        return self.team.dataset

    def judge(self, rows: Ints, newcomer: TeamEvidence, error: float) -> Verdict:
        """The verdict from answers to the documents at `rows`. `error` is the probability that a clear
        verdict may be wrong."""
        return judge_gains(self.estimate_gains(StratifiedSample(self.strata, rows), newcomer), error)

    def assess(self, rows: Ints, newcomer: TeamEvidence, error: float) -> Assessment:
        """The verdict of `judge`, with all estimates from the answers to the documents at `rows`."""
        sample = StratifiedSample(self.strata, rows)
        gains = self.estimate_gains(sample, newcomer)
        verdict = judge_gains(gains, error)
        likely: Verdict = "join" if max(gain.value for gain in gains) > SMALLEST_GAIN / 2 else "do not join"
        correct = newcomer.correct.astype(np.float64)
        return Assessment(
            benchmark=self.dataset.benchmark,
            n=len(rows),
            n_docs=len(self.dataset),
            accuracy=_clip_interval(sample.estimate_by(correct, self._features), 0.0, 1.0),
            gain=_clip_interval(gains[0]),
            gain_by_task=_clip_interval(gains[1]),
            verdict=verdict,
            leaning=likely if verdict == "unclear" else verdict,
            more=0 if verdict != "unclear" else self._count_more(sample, gains[0], error / len(gains)),
            pairs=self._compare(sample, newcomer),
            pools=tuple(self._try_pools(sample, newcomer)),
        )

    def estimate_gains(self, sample: StratifiedSample, newcomer: TeamEvidence) -> tuple[Estimate, Estimate]:
        """The gain of the log-linear team, and the gain if the model alone answers its best tasks.

        The standard error of the team's gain includes how much fits on bootstrap samples differ. Those fits
        shrink the newcomer's weight only as much as a fit on all documents does.
        """
        value = sample.mean(self.team.effects(sample.rows, sample.weights, newcomer)[0])
        squares = []
        for weights in sample.redraw(BOOTSTRAP_FITS):
            effects, moved = self.team.effects(sample.rows, weights, newcomer, is_sure=True)
            expected = self.team.expected_effects(moved, sample.weights)
            one = sample.estimate_rare(effects, expected)
            squares.append(one.stderr**2 + (one.value - value) ** 2)
        by_task = self._estimate_gain_by_task(sample, newcomer)
        return Estimate(value, sqrt(fmean(squares))), by_task

    def _estimate_gain_by_task(self, sample: StratifiedSample, newcomer: TeamEvidence) -> Estimate:
        lead = newcomer.correct.astype(np.float64) - self.best_by_task[sample.rows]
        tasks, of = np.unique(self.dataset.tasks[sample.rows], return_inverse=True)
        fold, effects = self.team.folds[sample.rows], np.zeros(len(lead))
        for k in np.unique(fold):
            away, weights = fold != k, sample.weights
            total = np.bincount(of[away], (weights * lead)[away], minlength=len(tasks))
            spread = np.sqrt(np.bincount(of[away], ((weights * lead) ** 2)[away], minlength=len(tasks)))
            ahead = total > LEAD_STANDARD_ERRORS * spread
            effects[~away] = (lead * ahead[of])[~away]
        return sample.estimate_rare(effects, np.zeros(len(self.dataset)))

    @cached_property
    def best_by_task(self) -> Bools:
        """Whether the best answerer of a document's task is right: the team, or a member that is more often
        right there: (T,)."""
        every = np.column_stack([self.team.right, self.dataset.correct])
        of = np.unique(self.dataset.tasks, return_inverse=True)[1]
        hits = np.zeros((of.max() + 1, every.shape[1]))
        np.add.at(hits, of, every)
        best: Bools = every[np.arange(len(of)), hits.argmax(axis=1)[of]]
        return best

    def _count_more(self, sample: StratifiedSample, gain: Estimate, error: float) -> int:
        """The number of further documents after which the gain's interval should lie above 0 or below
        SMALLEST_GAIN."""
        away = max(abs(gain.value), abs(SMALLEST_GAIN - gain.value), SMALLEST_GAIN / 2)
        times = (float(ndtri(1 - error / 2)) * gain.stderr / away) ** 2
        n, n_docs = len(sample.rows), len(self.dataset)
        return min(n_docs - n, max(ceil(n * (times - 1)), FIRST_LOOK))

    @cached_property
    def _features(self) -> Floats:
        """Features of a document's difficulty: which members are right, how sure they are, and the accuracy
        on its task: (T, 2 N + 1)."""
        correct = self.dataset.correct.astype(np.float64)
        of = np.unique(self.dataset.tasks, return_inverse=True)[1]
        by_task = np.bincount(of, correct.mean(axis=1)) / np.bincount(of)
        return np.column_stack([correct, self.dataset.chances, by_task[of]])

    def _compare(self, sample: StratifiedSample, newcomer: TeamEvidence) -> tuple[PairEstimate, ...]:
        """Estimates for the model beside each member. The members' failures on all documents are known."""
        wrong = ~self.dataset.correct
        share = wrong.mean(axis=0)
        weights = np.vstack([sample.weights, sample.redraw(BOOTSTRAP_DRAWS)])
        here, own = wrong[sample.rows].astype(np.float64), ~newcomer.correct
        failed, passed = here, 1 - here
        both_wrong = share * ratio(weights @ (failed * own[:, None]), weights @ failed)
        only_newcomer_wrong = (1 - share) * ratio(weights @ (passed * own[:, None]), weights @ passed)
        both_wrong, only_newcomer_wrong = np.nan_to_num(both_wrong), np.nan_to_num(only_newcomer_wrong)
        counts = PairCounts(
            n=np.ones_like(both_wrong),
            both_right=1 - share - only_newcomer_wrong,
            both_wrong=both_wrong,
            only_a=share - both_wrong,
            only_b=only_newcomer_wrong,
        )
        focal = _estimate_focal_diversity(both_wrong, share, both_wrong + only_newcomer_wrong)
        by_member = zip(self.dataset.models, counts.correlation.T, focal.T, strict=True)
        return tuple(
            PairEstimate(name, _find_interval_of_draws(correlation), _find_interval_of_draws(diversity))
            for name, correlation, diversity in by_member
        )

    def _try_pools(self, sample: StratifiedSample, newcomer: TeamEvidence) -> list[PoolEstimate]:
        """The best pool of each size on train documents, and its gain if the model replaces a member. For the
        gain on a document, answers to other documents choose the member."""
        estimates = []
        data, rows = self.dataset, sample.rows
        own = newcomer.predictions[:, None]
        predictions = np.concatenate([data.predictions[rows], own], axis=1)
        fold = self.team.folds[rows]
        for pool in self.best_pools:
            decided = plurality(data.predictions, pool, data.kind)
            without = data.is_right(decided)[rows].astype(np.float64)
            members = np.flatnonzero(pool)
            hits = []
            for member in members:
                joined = np.append(pool, True)
                joined[member] = False
                winner = plurality(predictions, joined, data.kind)
                hits.append((winner == newcomer.labels) & (newcomer.labels >= 0))
            effects = np.array(hits, dtype=np.float64) - without
            scores = sample.weights * effects
            chosen = np.array([scores[:, fold != k].sum(axis=1).argmax() for k in range(TEAM_FOLDS)])
            gain = sample.estimate(effects[chosen[fold], np.arange(len(rows))])
            leaves = data.models[members[scores.sum(axis=1).argmax()]]
            names = tuple(compress(data.models, pool))
            estimates.append(PoolEstimate(len(names), names, leaves, _clip_interval(gain)))
        return estimates

    @cached_property
    def best_pools(self) -> Bools:
        """The best pool of each size on train documents, as masks of members: (K, N)."""
        n_models = len(self.dataset.models)
        sizes = [size for size in POOL_SIZES if size <= min(n_models, largest_enumerable(n_models))]
        train = self.dataset.train if self.dataset.is_train.any() else self.dataset
        if not sizes:
            return np.zeros((0, n_models), dtype=np.bool_)
        pools = every_pool(n_models, sizes[-1])
        accuracies = plurality_accuracy(train.predictions, train.labels, pools, train.kind)
        of_size = pools.sum(axis=1)
        return pools[[int(np.where(of_size == size, accuracies, -1).argmax()) for size in sizes]]


def plan_looks(n_docs: int) -> tuple[int, ...]:
    """The numbers of asked documents after which the verdict on a benchmark is looked at."""
    return double(FIRST_LOOK, min(n_docs, max(MAX_FIRST_DOCUMENTS, ceil(MAX_ASKED_SHARE * n_docs))))


def design_probe(dataset: Dataset, seed: int) -> Design:
    """The design of a probe on a benchmark that the pool's members answered. Raises RunError if the team's
    fit does not converge."""
    from sklearn.isotonic import isotonic_regression

    team = form_team(dataset, seed)
    order = np.argsort(np.abs(team.lead), kind="stable")
    usual = np.empty(len(dataset))
    usual[order] = isotonic_regression(team.upsets[order], increasing=False)
    close = 0.7 * usual + 0.3 * team.upsets
    # One right and one wrong member more: where all agree, a newcomer still may not.
    share = (dataset.correct.sum(axis=1) + 1) / (len(dataset.models) + 2)
    interest = np.sqrt(_scale(close) + _scale(share * (1 - share)))
    return Design(team, stratify(interest, seed))


def judge_gains(gains: Sequence[Estimate], error: float) -> Verdict:
    ends = [gain.interval(error / len(gains)) for gain in gains]
    if all(high < SMALLEST_GAIN for _, high in ends):
        return "do not join"
    return "join" if any(low > 0 for low, _ in ends) else "unclear"


def _scale(values: Floats) -> Floats:
    """The values scaled to a mean of 1, plus 0.02, so that every document can be drawn."""
    mean = float(values.mean())
    return values / mean + 0.02 if mean > 0 else np.ones_like(values)


def _estimate_focal_diversity(both: Floats, first: Floats, second: Floats) -> Floats:
    """The focal diversity of pairs, from how often both models fail, and how often each does. It is a mean
    over those models of a pair that ever fail."""
    each: Floats = np.stack(
        [np.asarray(focal_correlation(fails + both, 2 * both, np.float64(2))) for fails in (first, second)]
    )
    fails = np.isfinite(each)
    return ratio(np.where(fails, each, 0.0).sum(axis=0), fails.sum(axis=0).astype(np.float64))


def _find_interval_of_draws(values: Floats) -> Interval:
    """The first of `values`, which is the sample's own, and the middle 95 % of the others, from bootstrap
    samples."""
    if np.isnan(values[0]):
        return float("nan"), float("nan"), float("nan")
    low, high = np.nanquantile(values[1:], [0.025, 0.975])
    return float(values[0]), float(low), float(high)


def _clip_interval(estimate: Estimate, least: float = -1.0, most: float = 1.0) -> Interval:
    low, high = estimate.interval()
    return (
        float(np.clip(estimate.value, least, most)), float(np.clip(low, least, most)),
        float(np.clip(high, least, most)),
    )  # fmt: skip

"""Diversity of models and pools, counted in numpy: equal to the warehouse's table macros to 1e-9.

Shapes are of T documents, N models in alphabetical order, and P pools. `predictions` (T, N) are choice
indices, or codes that are equal for equal answers, with -1 for no answer (which is wrong). `labels` (T,) are
codes of the same kind, -1 where no model can be right. The formulas and their NaNs are those of `metrics`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.data.dataset import Kind
from rlfocal.statistics import metrics
from rlfocal.statistics.metrics import METRICS, Counts, PairCounts, focal_correlation, mean_over_pairs, ratio
from rlfocal.statistics.votes import blocks, mark_correct, pluralities

PairStatistics = PairCounts[Floats]


@dataclass(frozen=True)
class PoolStatistics:
    """Statistics of P pools, (P,), or of one pool over time, (T,); each is an attribute under its name."""

    n: Floats
    """The number of documents that every member answered."""
    size: Floats
    metrics: Mapping[str, Floats]
    """The diversity metrics of `rlfocal.statistics.metrics`, by name."""

    def __getattr__(self, name: str) -> Floats:
        metrics: Mapping[str, Floats] = vars(self).get("metrics", {})
        if name not in metrics:
            raise AttributeError(name)
        return metrics[name]


def every_pool(n_models: int, max_size: int) -> Bools:
    """(P, N) every pool of 2 to `max_size` of N models, smaller pools first."""
    members = [c for size in range(2, max_size + 1) for c in combinations(range(n_models), size)]
    pools = np.zeros((len(members), n_models), dtype=np.bool_)
    for row, chosen in enumerate(members):
        pools[row, chosen] = True
    return pools


def pairwise_diversity(correct: Bools, answered: Bools | None = None) -> PairStatistics:
    """(N, N) counts of every two models over the documents that both answered.

    `correct` (T, N): whether models are right. `answered` (T, N): whether they answered; None: all did.
    """
    taken = np.ones_like(correct) if answered is None else answered
    right, wrong = _to_float(correct & taken), _to_float(~correct & taken)
    return PairStatistics(
        n=_to_float(taken).T @ _to_float(taken),
        both_right=right.T @ right,
        both_wrong=wrong.T @ wrong,
        only_a=right.T @ wrong,
        only_b=wrong.T @ right,
    )


def focal_diversity(correct: Bools, pools: Bools) -> Floats:
    """(P,) the focal diversity of the pools (P, N), Eq (8), from which models are right (T, N)."""
    return metrics.focal_diversity(_Failures(correct, pools))


def plurality_accuracy(predictions: Ints, labels: Ints, pools: Bools, kind: Kind = "choices") -> Floats:
    """(P,) the accuracy of each pool's plurality, with ties as in `rlfocal.statistics.votes.plurality`."""
    return metrics.plurality_accuracy(_Pools(predictions, labels, pools, kind))


def pool_diversity(
    predictions: Ints,
    labels: Ints,
    pools: Bools,
    *,
    kind: Kind = "choices",
    answered: Bools | None = None,
    wanted: Collection[str] = METRICS,
) -> PoolStatistics:
    """The metrics `wanted` of pools (P, N), each over documents that all its members `answered` (T, N)."""
    if answered is None or answered.all() or not len(pools):
        return _compute_statistics(_Pools(predictions, labels, pools, kind), wanted)
    # Pools whose members miss the same documents are counted together.
    misses, which = np.unique(pools & ~answered.all(axis=0), axis=0, return_inverse=True)
    each, order = [], np.argsort(which.ravel(), kind="stable")
    for place, members in enumerate(misses):
        rows, mine = answered[:, members].all(axis=1), pools[which.ravel() == place]
        used = mine.any(axis=0)
        each.append(
            _compute_statistics(_Pools(predictions[rows][:, used], labels[rows], mine[:, used], kind), wanted)
        )
    back = np.argsort(order)
    by_name = {name: np.concatenate([s.metrics[name] for s in each])[back] for name in wanted}
    n, size = (np.concatenate([getattr(s, name) for s in each])[back] for name in ("n", "size"))
    return PoolStatistics(n, size, by_name)


def pool_diversity_over_time(
    predictions: Ints, labels: Ints, pool: Bools, window: int, *, kind: Kind = "choices"
) -> PoolStatistics:
    """(T,) the metrics of one pool (N,) over the `window` documents before each one, or all if fewer."""
    return _compute_statistics(_Windows(predictions[:, pool], labels, window, kind))


def focal_diversity_over_time(correct: Bools, pools: Bools, window: int) -> Iterator[tuple[slice, Floats]]:
    """Yields blocks of t documents and (t, P) each pool's focal diversity over the `window` documents before.

    How often every three models fail together in a window is a difference of sums. These counts give Σ F_tf
    k_t and Σ F_tf k_t² of every pool. Memory is bounded per block, whatever T.
    """
    n_models = correct.shape[1]
    g, h = np.triu_indices(n_models)
    failed, members = _to_float(~correct), _to_float(pools)
    both, pairs = failed[:, g] * failed[:, h] * np.where(g == h, 1, 2), members[:, g] * members[:, h]
    holders, size = [np.flatnonzero(pool) for pool in pools.T], members.sum(axis=1)[:, None]
    joint = np.zeros((n_models, len(g)))  # in the window before a block, as if by _count_triples
    for block in blocks(len(correct), 16 * len(pools)):
        entering = np.arange(len(correct))[block]
        leaving = entering[entering >= window] - window
        rho = np.zeros((len(pools), len(entering)))
        fails = np.empty((n_models, len(entering)))
        for f, holds in enumerate(holders):
            steps = failed[entering, f, None] * both[entering]
            steps[len(steps) - len(leaving) :] -= failed[leaving, f, None] * both[leaving]
            sums = np.vstack([joint[f], steps]).cumsum(axis=0)
            joint[f], before = sums[-1], sums[:-1]
            once, squares = members[holds] @ before[:, g == h].T, pairs[holds] @ before.T
            fails[f] = before[:, (g == f) & (h == f)].T > 0
            rho[holds] += fails[f] * focal_correlation(once + (1 - fails[f]), squares - once, size[holds])
        yield block, ratio(rho, members @ fails).T


class _Failures:
    """Failures of pools (P, N) over all documents of `correct` (T, N)."""

    def __init__(self, correct: Bools, pools: Bools) -> None:
        self.correct, self.pools, self.members = correct, pools, _to_float(pools)
        self.n, self.size = np.full(len(pools), float(len(correct))), self.members.sum(axis=1)

    @cached_property
    def pairs(self) -> PairStatistics:
        return pairwise_diversity(self.correct)

    def average_pairs(self, statistic: Floats) -> Floats:
        return mean_over_pairs(statistic, self.members)

    @cached_property
    def failures(self) -> Floats:
        return self.members @ self.pairs.both_wrong.diagonal()

    @property
    def joint_failures(self) -> Floats:
        return np.asarray(((self.members @ self.pairs.both_wrong) * self.members).sum(axis=1) - self.failures)

    @property
    def failures_beside(self) -> tuple[Floats, Floats]:
        failed, times = _count_failure_patterns(self.correct)
        # For many pools of few models, how often every three fail together is cheaper than the documents.
        if self.pools.shape[1] ** 3 * (len(failed) + len(self.pools)) < len(failed) * self.pools.sum():
            return _sum_triples(_count_triples(failed, times), self.members)
        return _pool_by_pool(failed, times, self.pools)


class _Pools(_Failures):
    """Counts of pools (P, N) over all documents of `predictions` (T, N)."""

    def __init__(self, predictions: Ints, labels: Ints, pools: Bools, kind: Kind) -> None:
        super().__init__(mark_correct(predictions, labels), pools)
        self.predictions, self.labels, self.kind = predictions, labels, kind

    @property
    def same_votes(self) -> Floats:
        # A quadratic form in the agreements of pairs, so that no pool goes over the documents.
        columns = self.predictions.T
        same = np.array([(self.predictions == column[:, None]).sum(axis=0) for column in columns], float)
        return np.asarray(((self.members @ same) * self.members).sum(axis=1) - self.n * self.size)

    @property
    def chance(self) -> Floats:
        codes = np.unique(self.predictions, return_inverse=True)[1].reshape(self.predictions.shape)
        n_codes = codes.max(initial=0) + 1
        counts = np.array([np.bincount(column, minlength=n_codes) for column in codes.T], float)
        return np.asarray((ratio(self.members @ counts, (self.n * self.size)[:, None]) ** 2).sum(axis=1))

    @property
    def plurality_right(self) -> Floats:
        right = np.zeros(len(self.pools))
        for _, pool, is_right in pluralities(self.predictions, self.labels, self.pools, self.kind):
            right[pool] += np.count_nonzero(is_right)
        return right


class _Windows:
    """Counts of one pool, whose `predictions` are (T, S), over the `window` documents before each document.

    Every count is a difference of cumulative sums, so that its cost does not depend on the window.
    """

    def __init__(self, predictions: Ints, labels: Ints, window: int, kind: Kind) -> None:
        self.predictions, self.labels, self.kind = predictions, labels, kind
        self._ends = np.arange(len(labels))
        self._starts = np.maximum(self._ends - window, 0)
        self._right = _to_float(mark_correct(predictions, labels))
        self._k = (1 - self._right).sum(axis=1)
        self._a, self._b = np.triu_indices(predictions.shape[1], 1)
        self.n = (self._ends - self._starts).astype(np.float64)
        self.size, self.members = np.full(len(labels), float(predictions.shape[1])), np.ones(1)

    @cached_property
    def failures(self) -> Floats:
        return self._sum_windows(self._k)

    @property
    def joint_failures(self) -> Floats:
        return self._sum_windows(self._k * (self._k - 1))

    @property
    def failures_beside(self) -> tuple[Floats, Floats]:
        beside = (1 - self._right) * self._k[:, None]
        return self._sum_windows(beside), self._sum_windows(beside * (self._k - 1)[:, None])

    @cached_property
    def pairs(self) -> PairStatistics:
        right_a, right_b = self._right[:, self._a], self._right[:, self._b]
        return PairStatistics(
            n=self.n[:, None],
            both_right=self._sum_windows(right_a * right_b),
            both_wrong=self._sum_windows((1 - right_a) * (1 - right_b)),
            only_a=self._sum_windows(right_a * (1 - right_b)),
            only_b=self._sum_windows((1 - right_a) * right_b),
        )

    def average_pairs(self, statistic: Floats) -> Floats:
        defined = ~np.isnan(statistic)
        return ratio(np.where(defined, statistic, 0.0).sum(axis=1), _to_float(defined).sum(axis=1))

    @property
    def same_votes(self) -> Floats:
        same = self.predictions[:, self._a] == self.predictions[:, self._b]
        return 2 * self._sum_windows(_to_float(same).sum(axis=1))

    @property
    def chance(self) -> Floats:
        codes = np.unique(self.predictions, return_inverse=True)[1].reshape(self.predictions.shape)
        squares = np.zeros(len(self.labels))
        for code in range(int(codes.max(initial=-1)) + 1):
            squares += self._sum_windows(_to_float(codes == code).sum(axis=1)) ** 2
        return ratio(squares, (self.n * self.size) ** 2)

    @property
    def plurality_right(self) -> Floats:
        right, everyone = np.zeros(len(self.labels)), np.ones((1, self.predictions.shape[1]), np.bool_)
        for block, _, is_right in pluralities(self.predictions, self.labels, everyone, self.kind):
            right[block] = is_right
        return self._sum_windows(right)

    def _sum_windows(self, per_document: Floats) -> Floats:
        total = np.concatenate([np.zeros((1, *per_document.shape[1:])), np.cumsum(per_document, axis=0)])
        return np.asarray(total[self._ends] - total[self._starts])


def _compute_statistics(counts: Counts[Floats], wanted: Collection[str] = METRICS) -> PoolStatistics:
    return PoolStatistics(counts.n, counts.size, {name: METRICS[name](counts) for name in wanted})


def _pool_by_pool(failures: Floats, times: Floats, pools: Bools) -> tuple[Floats, Floats]:
    """`failures_beside` of the pools (P, N), from distinct failures (U, N) and their counts (U, 1)."""
    by_model, beside = np.ascontiguousarray(failures.T), np.zeros((2, *pools.shape))
    for place, pool in enumerate(pools):
        mine = by_model[pool]
        k = mine.sum(axis=0)[:, None]
        beside[:, place, pool] = (mine @ (times * np.hstack([k, k * (k - 1)]))).T
    return beside[0], beside[1]


def _sum_triples(triples: Floats, members: Floats) -> tuple[Floats, Floats]:
    """`failures_beside` of pools (P, N), from how often every three models fail together (N, N, N)."""
    once = members @ triples.diagonal()
    squares = np.stack([((members @ pairs) * members).sum(axis=1) for pairs in triples], axis=1)
    return once, squares - once


def _count_triples(failures: Floats, times: Floats) -> Floats:
    """(N, N, N) how often every three models fail together, from failures (U, N) and counts (U, 1)."""
    return np.stack([(failures * times * focal[:, None]).T @ failures for focal in failures.T])


def _count_failure_patterns(correct: Bools) -> tuple[Floats, Floats]:
    """(U, N) the distinct rows of failures, far fewer than documents, and (U, 1) their counts."""
    _, first, times = np.unique(np.packbits(~correct, axis=1), axis=0, return_index=True, return_counts=True)
    return _to_float(~correct[first]), times[:, None].astype(np.float64)


def _to_float(mask: Bools) -> Floats:
    return mask.astype(np.float64)

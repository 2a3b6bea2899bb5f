"""Diversity of models and pools: the numpy twins of the warehouse's table macros, equal to them to 1e-9.

Shapes: T documents, N models in alphabetical order, P pools. `predictions` (T, N) are choice indices, or
codes that are equal where answers are, with -1 for no answer (which is wrong); `labels` (T,) are codes of the
same kind, -1 where nobody can be right. An undefined value (a zero denominator) is NaN.
Definitions: paper sections 1.3 and 1.7.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from rlfocal.dataset import Kind

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

_BLOCK = 1 << 24  # numbers in one temporary array


@dataclass(frozen=True)
class PairStatistics:
    """Statistics of pairs of models; every field has the shape of the counts they come from."""

    n: Floats
    both_right: Floats
    both_wrong: Floats
    only_a: Floats
    only_b: Floats

    @property
    def q_statistic(self) -> Floats:
        """(n11 n00 - n01 n10) / (n11 n00 + n01 n10)."""
        return _ratio(self._excess, self.both_right * self.both_wrong + self.only_a * self.only_b)

    @property
    def correlation(self) -> Floats:
        """Pearson correlation of being right."""
        return _ratio(self._excess, np.sqrt(self._right_a * self._wrong_a * self._right_b * self._wrong_b))

    @property
    def disagreement(self) -> Floats:
        """Share of documents exactly one of the two gets right."""
        return _ratio(self.only_a + self.only_b, self.n)

    @property
    def kappa(self) -> Floats:
        """The paper's pairwise kappa: Cohen's, with each model's own margins in the denominator."""
        return _ratio(2 * self._excess, self._right_a * self._wrong_a + self._right_b * self._wrong_b)

    @property
    def cohens_kappa(self) -> Floats:
        """Cohen's kappa of being right."""
        return _ratio(2 * self._excess, self._right_a * self._wrong_b + self._right_b * self._wrong_a)

    @property
    def double_fault(self) -> Floats:
        """Share of documents both get wrong."""
        return _ratio(self.both_wrong, self.n)

    @property
    def _excess(self) -> Floats:
        return self.both_right * self.both_wrong - self.only_a * self.only_b

    @property
    def _right_a(self) -> Floats:
        return self.both_right + self.only_a

    @property
    def _wrong_a(self) -> Floats:
        return self.both_wrong + self.only_b

    @property
    def _right_b(self) -> Floats:
        return self.both_right + self.only_b

    @property
    def _wrong_b(self) -> Floats:
        return self.both_wrong + self.only_a


@dataclass(frozen=True)
class PoolStatistics:
    """Statistics of pools: every field is (P,), or (T,) over time. Pairwise ones are means over pairs."""

    n: Floats
    """Documents that every member answered."""
    size: Floats
    focal_diversity: Floats
    generalized_diversity: Floats
    fleiss_kappa: Floats
    q_statistic: Floats
    correlation: Floats
    disagreement: Floats
    kappa: Floats
    binary_entropy: Floats
    plurality_accuracy: Floats


def every_pool(n_models: int, max_size: int) -> Mask:
    """(P, N) every pool of 2 to max_size of n_models models, smaller pools first."""
    members = [c for size in range(2, max_size + 1) for c in combinations(range(n_models), size)]
    pools = np.zeros((len(members), n_models), dtype=np.bool_)
    for row, chosen in enumerate(members):
        pools[row, chosen] = True
    return pools


def pairwise_diversity(correct: Mask, answered: Mask | None = None) -> PairStatistics:
    """(N, N) statistics of every two models over the documents both answered; `correct` is (T, N)."""
    taken = np.ones_like(correct) if answered is None else answered
    right, wrong = _float(correct & taken), _float(~correct & taken)
    return PairStatistics(
        n=_float(taken).T @ _float(taken),
        both_right=right.T @ right,
        both_wrong=wrong.T @ wrong,
        only_a=right.T @ wrong,
        only_b=wrong.T @ right,
    )


def focal_diversity(correct: Mask, pools: Mask) -> Floats:
    """(P,) focal diversity, Eq (8): the mean of 1 - P(2)/P(1) on f's failures, over the members f that fail.

    P(1) = Σ F_tf k_t / (S n_f), P(2) = Σ F_tf k_t (k_t - 1) / (S (S-1) n_f), where k_t members fail on t.
    """
    failed, times = _failure_patterns(correct)
    # For many pools of few models, how often every three fail together is cheaper than the documents.
    if pools.shape[1] ** 3 * (len(failed) + len(pools)) < len(failed) * pools.sum():
        return _focal_of_joint_failures(_joint_failures(failed, times), pools)
    by_model = np.ascontiguousarray(failed.T)
    return np.array([_focal_of_failures(by_model[pool], times) for pool in pools])


def generalized_diversity(correct: Mask, pools: Mask) -> Floats:
    """(P,) 1 - P(2)/P(1) over all documents (Partridge & Krzanowski)."""
    failed, members = _float(~correct), _float(pools)
    joint = failed.T @ failed
    once = members @ joint.diagonal()
    twice = ((members @ joint) * members).sum(axis=1) - once
    return 1 - _ratio(twice, (pools.sum(axis=1) - 1) * once)


def fleiss_kappa(predictions: Integers, pools: Mask) -> Floats:
    """(P,) Fleiss' kappa over the predicted choices; no answer is a category of its own.

    A pool's agreement is a quadratic form in the agreements of pairs, so no pool goes over the documents.
    """
    n = len(predictions)
    members, size = _float(pools), pools.sum(axis=1).astype(np.float64)
    agreements = np.array(
        [(predictions == column[:, None]).sum(axis=0) for column in predictions.T], np.float64
    )
    observed = _ratio(((members @ agreements) * members).sum(axis=1) - n * size, n * size * (size - 1))
    codes = np.unique(predictions, return_inverse=True)[1].reshape(predictions.shape)
    counts = np.array(
        [np.bincount(column, minlength=codes.max(initial=0) + 1) for column in codes.T], np.float64
    )
    chance = (_ratio(members @ counts, (n * size)[:, None]) ** 2).sum(axis=1)
    return _ratio(observed - chance, 1 - chance)


def binary_entropy(correct: Mask, pools: Mask) -> Floats:
    """(P,) entropy, in bits, of the share of right entries in documents × pool."""
    return _entropy(_ratio(_float(pools) @ correct.sum(axis=0), len(correct) * pools.sum(axis=1)))


def plurality_accuracy(
    predictions: Integers, labels: Integers, pools: Mask, kind: Kind = "choices"
) -> Floats:
    """(P,) accuracy of each pool's plurality; ties as in `rlfocal.voting.plurality`."""
    right = np.zeros(len(pools))
    for _, pool, is_right in _pluralities(predictions, labels, pools, kind):
        right[pool] += np.count_nonzero(is_right)
    return _ratio(right, len(labels))


def pool_diversity(
    predictions: Integers,
    labels: Integers,
    pools: Mask,
    *,
    kind: Kind = "choices",
    answered: Mask | None = None,
) -> PoolStatistics:
    """Every statistic of every pool (P, N), each over the documents that all its members answered (T, N)."""
    if answered is None or answered.all():
        return _over_all(predictions, labels, pools, kind)
    each = []
    for pool in pools:
        at = answered[:, pool].all(axis=1)
        members = np.ones((1, pool.sum()), np.bool_)
        each.append(_over_all(predictions[at][:, pool], labels[at], members, kind))
    columns = {f.name: np.concatenate([getattr(s, f.name) for s in each]) for f in fields(PoolStatistics)}
    return PoolStatistics(**columns)


def pool_diversity_over_time(
    predictions: Integers, labels: Integers, pool: Mask, window: int, *, kind: Kind = "choices"
) -> PoolStatistics:
    """(T,) the statistics of one pool (N,) over the `window` documents before each, fewer at the start.

    Every window is a difference of cumulative sums, so the cost does not depend on its length.
    """
    voted = predictions[:, pool]
    size = voted.shape[1]
    right = (voted == labels[:, None]) & (voted >= 0)
    failed = _float(~right)
    k = failed.sum(axis=1)
    ends = np.arange(len(labels))
    starts = np.maximum(ends - window, 0)

    def before(per_document: Floats) -> Floats:
        total = np.concatenate([np.zeros((1, *per_document.shape[1:])), np.cumsum(per_document, axis=0)])
        return np.asarray(total[ends] - total[starts])

    n = (ends - starts).astype(np.float64)
    focal = 1 - _ratio(before(failed * (k * (k - 1))[:, None]), (size - 1) * before(failed * k[:, None]))
    a, b = np.triu_indices(size, 1)
    right_a, right_b = _float(right[:, a]), _float(right[:, b])
    pairs = PairStatistics(
        n=n[:, None],
        both_right=before(right_a * right_b),
        both_wrong=before((1 - right_a) * (1 - right_b)),
        only_a=before(right_a * (1 - right_b)),
        only_b=before((1 - right_a) * right_b),
    )
    entries = n * size
    same = _float(voted[:, a] == voted[:, b]).sum(axis=1)
    codes = np.unique(voted, return_inverse=True)[1].reshape(voted.shape)
    squares = np.zeros(len(labels))
    for code in range(int(codes.max(initial=-1)) + 1):
        squares += before(_float(codes == code).sum(axis=1)) ** 2
    observed, chance = _ratio(2 * before(same), entries * (size - 1)), _ratio(squares, entries**2)
    plurality_right = np.zeros(len(labels))
    for block, _, is_right in _pluralities(predictions, labels, pool[None], kind):
        plurality_right[block] = is_right
    return PoolStatistics(
        n=n,
        size=np.full(len(labels), float(size)),
        focal_diversity=_mean_of_defined(focal.T),
        generalized_diversity=1 - _ratio(before(k * (k - 1)), (size - 1) * before(k)),
        fleiss_kappa=_ratio(observed - chance, 1 - chance),
        q_statistic=_mean_of_defined(pairs.q_statistic.T),
        correlation=_mean_of_defined(pairs.correlation.T),
        disagreement=_mean_of_defined(pairs.disagreement.T),
        kappa=_mean_of_defined(pairs.kappa.T),
        binary_entropy=_entropy(_ratio(entries - before(k), entries)),
        plurality_accuracy=_ratio(before(plurality_right), n),
    )


def focal_diversity_over_time(correct: Mask, pools: Mask, window: int) -> Iterator[tuple[slice, Floats]]:
    """(documents, (t, P)) by block: every pool's focal diversity over the `window` documents before each.

    Meant for every pool of a few models: how often every three fail together slides as a difference of sums,
    and says Σ F_tf k_t and Σ F_tf k_t² of every pool. Memory is bounded by a block, whatever T.
    """
    n_models = correct.shape[1]
    g, h = np.triu_indices(n_models)
    failed, members = _float(~correct), _float(pools)
    both, pairs = failed[:, g] * failed[:, h] * np.where(g == h, 1, 2), members[:, g] * members[:, h]
    holders = [np.flatnonzero(pool) for pool in pools.T]
    joint = np.zeros((n_models, len(g)))  # in the window before a block, as if by _joint_failures
    for block in _blocks(len(correct), 8 * len(pools)):
        entering = np.arange(len(correct))[block]
        leaving = entering[entering >= window] - window
        ratios = np.zeros((len(pools), len(entering)))
        fails = np.empty((n_models, len(entering)))
        for f, holds in enumerate(holders):
            steps = failed[entering, f, None] * both[entering]
            steps[len(steps) - len(leaving) :] -= failed[leaving, f, None] * both[leaving]
            sums = np.vstack([joint[f], steps]).cumsum(axis=0)
            joint[f], before = sums[-1], sums[:-1]
            fails[f] = before[:, (g == f) & (h == f)].T > 0
            once, squares = members[holds] @ before[:, g == h].T, pairs[holds] @ before.T
            ratios[holds] += np.where(fails[f], squares - once, 0) / np.where(fails[f], once, 1)
        n_defined, others = members @ fails, members.sum(axis=1)[:, None] - 1
        yield block, (1 - _ratio(ratios, others * n_defined)).T


def _over_all(predictions: Integers, labels: Integers, pools: Mask, kind: Kind) -> PoolStatistics:
    correct = (predictions == labels[:, None]) & (predictions >= 0)
    pairs = pairwise_diversity(correct)
    return PoolStatistics(
        n=np.full(len(pools), float(len(labels))),
        size=pools.sum(axis=1).astype(np.float64),
        focal_diversity=focal_diversity(correct, pools),
        generalized_diversity=generalized_diversity(correct, pools),
        fleiss_kappa=fleiss_kappa(predictions, pools),
        q_statistic=_mean_over_pairs(pairs.q_statistic, pools),
        correlation=_mean_over_pairs(pairs.correlation, pools),
        disagreement=_mean_over_pairs(pairs.disagreement, pools),
        kappa=_mean_over_pairs(pairs.kappa, pools),
        binary_entropy=binary_entropy(correct, pools),
        plurality_accuracy=plurality_accuracy(predictions, labels, pools, kind),
    )


def _pluralities(
    predictions: Integers, labels: Integers, pools: Mask, kind: Kind
) -> Iterator[tuple[slice, int, Mask]]:
    """(a block of documents, a pool, on which of these documents its plurality is right).

    A member's claim is how many members say the same; then, between equals, the lowest choice, or the first
    member; and its last bit is whether it is right. So the highest claim tells whether the plurality is.
    """
    used = np.flatnonzero(pools.any(axis=0))
    said = np.ascontiguousarray(predictions[:, used].T)
    order = len(used) - 1 - np.arange(len(used))[:, None] if kind == "answers" else said.max(initial=0) - said
    rest = 2 * order + ((said == labels) & (said >= 0))
    unit = 2 * (int(order.max(initial=0)) + 1)
    count = np.min_scalar_type(len(used))
    claim = np.min_scalar_type(unit * (len(used) + 1))
    rest = np.where(said >= 0, rest, 0).astype(claim)
    members = [np.flatnonzero(pool) for pool in pools[:, used]]
    for block in _blocks(len(labels), len(used) ** 2):
        here = said[:, block]
        same = ((here[:, None] == here) & (here >= 0)).astype(count)
        for pool, chosen in enumerate(members):
            votes = np.add.reduce(same[chosen[:, None], chosen], axis=1, dtype=count)
            claims = votes.astype(claim) * claim.type(unit) + rest[chosen, block]
            yield block, pool, (np.maximum.reduce(claims, axis=0, initial=0) & 1).astype(np.bool_)


def _focal_of_failures(failed: Floats, times: Floats) -> Floats:
    """() of one pool's failures (S, U), which occur so many times (U, 1)."""
    k = failed.sum(axis=0)[:, None]
    once, twice = (failed @ (times * np.hstack([k, k * (k - 1)]))).T
    return _mean_of_defined(1 - _ratio(twice, (len(failed) - 1) * once))


def _focal_of_joint_failures(joint: Floats, pools: Mask) -> Floats:
    """(P,) of how often every three models fail together: Σ F_tf k_t and Σ F_tf k_t² without documents."""
    members = _float(pools)
    once = joint.diagonal().T @ members.T
    twice = np.stack([((members @ c) * members).sum(axis=1) for c in joint]) - once
    focal = 1 - _ratio(twice, (members.sum(axis=1) - 1) * once)
    return _mean_of_defined(np.where(pools.T, focal, np.nan))


def _joint_failures(failed: Floats, times: Floats) -> Floats:
    """(N, N, N) how often every three models fail together; failed is (U, N), times (U, 1)."""
    return np.stack([(failed * times * focal[:, None]).T @ failed for focal in failed.T])


def _failure_patterns(correct: Mask) -> tuple[Floats, Floats]:
    """(U, N) distinct rows of failures with (U, 1) how often each occurs: far fewer than documents."""
    _, at, times = np.unique(np.packbits(~correct, axis=1), axis=0, return_index=True, return_counts=True)
    return _float(~correct[at]), times[:, None].astype(np.float64)


def _mean_over_pairs(statistic: Floats, pools: Mask) -> Floats:
    upper = np.triu(~np.isnan(statistic), 1)
    members = _float(pools)
    total = ((members @ np.where(upper, statistic, 0.0)) * members).sum(axis=1)
    return _ratio(total, ((members @ _float(upper)) * members).sum(axis=1))


def _mean_of_defined(values: Floats) -> Floats:
    defined = ~np.isnan(values)
    return _ratio(np.where(defined, values, 0.0).sum(axis=0), defined.sum(axis=0))


def _entropy(share: Floats) -> Floats:
    inner = np.clip(share, np.finfo(np.float64).tiny, 1 - np.finfo(np.float64).epsneg)
    entropy = -(share * np.log2(inner) + (1 - share) * np.log2(1 - inner))
    return np.where((share == 0) | (share == 1), 0.0, entropy)


def _ratio(numerator: NDArray[np.generic], denominator: NDArray[np.generic] | float) -> Floats:
    """Element-wise quotient, NaN where the denominator is 0."""
    below = np.asarray(denominator, dtype=np.float64)
    safe = np.where(below == 0, np.nan, below)
    return np.asarray(np.asarray(numerator, dtype=np.float64) / safe)


def _float(mask: Mask) -> Floats:
    return mask.astype(np.float64)


def _blocks(n: int, numbers_each: int) -> Iterator[slice]:
    step = max(1, _BLOCK // max(numbers_each, 1))
    for start in range(0, n, step):
        yield slice(start, start + step)

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
from rlfocal.voting import plurality

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

_EXACT_VOTERS = 44  # votes and their tie-break share one float64 of 53 bits
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

    One pass: P(1) = Σ F_tf k_t / (S n_f), P(2) = Σ F_tf k_t (k_t - 1) / (S (S-1) n_f); k_t members fail on t.
    """
    failed, weight = _failure_patterns(correct)
    diversity = np.empty(len(pools))
    for block in _blocks(len(pools), len(failed)):
        members = _float(pools[block])
        k = failed @ members.T
        once, twice = failed.T @ (weight * k), failed.T @ (weight * k * (k - 1))
        focal = 1 - _ratio(twice, (members.sum(axis=1) - 1) * once)
        diversity[block] = _mean_of_defined(np.where(pools[block].T, focal, np.nan))
    return diversity


def generalized_diversity(correct: Mask, pools: Mask) -> Floats:
    """(P,) 1 - P(2)/P(1) over all documents (Partridge & Krzanowski)."""
    failed, weight = _failure_patterns(correct)
    once, twice = np.empty(len(pools)), np.empty(len(pools))
    for block in _blocks(len(pools), len(failed)):
        k = failed @ _float(pools[block]).T
        once[block], twice[block] = (weight * k).sum(axis=0), (weight * k * (k - 1)).sum(axis=0)
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
    if not len(labels):
        return np.full(len(pools), np.nan)
    n_models = predictions.shape[1]
    if n_models > _EXACT_VOTERS and kind == "answers":
        return np.array([_plurality_is_right(predictions, labels, pool, kind).mean() for pool in pools])
    slots, right = _vote_slots(predictions, labels, kind)
    # For answers, the first voter's bit decides a tie: groups of voters are disjoint, so no sums are equal.
    weight = (
        2.0**n_models + 2.0 ** np.arange(n_models - 1, -1, -1) if kind == "answers" else np.ones(n_models)
    )
    patterns, times = np.unique(np.column_stack([slots, right]), axis=0, return_counts=True)
    n_slots = max(int(patterns.max()) + 1, 1)
    ballots = (patterns[:, None, :-1] == np.arange(n_slots)[None, :, None]) * weight
    accuracy = np.empty(len(pools))
    for block in _blocks(len(pools), len(patterns) * n_slots):
        votes = np.tensordot(ballots, _float(pools[block]), axes=(2, 1))
        winner = np.where(votes.any(axis=1), votes.argmax(axis=1), -2)
        accuracy[block] = times @ (winner == patterns[:, -1:]) / len(labels)
    return accuracy


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
        each.append(_over_all(predictions[at], labels[at], pool[None], kind))
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
        plurality_accuracy=_ratio(before(_float(_plurality_is_right(predictions, labels, pool, kind))), n),
    )


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


def _vote_slots(predictions: Integers, labels: Integers, kind: Kind) -> tuple[Integers, Integers]:
    """Votes and labels as small slots; an answer's slot is the first model that gave it."""
    if kind == "choices":
        return predictions, np.where(labels >= 0, labels, -1)
    same = (predictions[:, :, None] == predictions[:, None, :]) & (predictions >= 0)[:, :, None]
    slots = np.where(predictions >= 0, same.argmax(axis=2), -1)
    gave = (predictions == labels[:, None]) & (predictions >= 0)
    return slots, np.where(gave.any(axis=1), gave.argmax(axis=1), -1)


def _plurality_is_right(predictions: Integers, labels: Integers, pool: Mask, kind: Kind) -> Mask:
    slots, right = _vote_slots(predictions, labels, kind)
    return np.asarray((plurality(slots, pool, kind) == right) & (right >= 0))


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


def _blocks(n_pools: int, numbers_a_pool: int) -> Iterator[slice]:
    step = max(1, _BLOCK // max(numbers_a_pool, 1))
    for start in range(0, n_pools, step):
        yield slice(start, start + step)

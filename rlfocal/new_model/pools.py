"""The best pools of each size with and without a model, and which model it makes redundant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Bools, Floats
from rlfocal.new_model.paired_answers import PairedAnswers
from rlfocal.report.pools import largest_enumerable
from rlfocal.statistics.diversity import every_pool, plurality_accuracy
from rlfocal.statistics.intervals import Difference, paired_bootstrap
from rlfocal.statistics.votes import plurality


@dataclass(frozen=True)
class Pool:
    """Models, and how often their plurality is right."""

    models: tuple[str, ...]
    train: float
    """Accuracy on train documents, by which it was chosen."""
    test: float | None
    """None without test documents."""


@dataclass(frozen=True)
class BestPools:
    """The best pools of one size on train documents."""

    size: int
    without: Pool | None
    """None if there are too few other models."""
    with_it: Pool
    gain: Difference | None
    """On test documents: the accuracy with it minus that without it; None without test documents or other
    pool."""

    @property
    def enters(self) -> bool:
        """Whether the best pool of this size includes it."""
        return self.without is None or self.with_it.train > self.without.train

    @property
    def gains(self) -> bool:
        """Whether the best pool of this size is better for it on test documents: its interval excludes 0."""
        return self.enters and self.gain is not None and self.gain.low > 0


@dataclass(frozen=True)
class ForMoney:
    """The best pools on train documents whose members' prices add up to no more than a budget."""

    cents: float
    """Per 1,000 queries: what the best pool of some size without the model costs."""
    without: Pool
    any_model: Pool
    """With or without it."""


@dataclass(frozen=True)
class Tried:
    """Every pool up to a size on train documents."""

    said: PairedAnswers
    pools: Bools
    """(P, N) smaller pools first, then in the order of names."""
    accuracies: Floats
    """(P,) of their pluralities."""

    @property
    def has_it(self) -> Bools:
        """(P,)"""
        return self.pools[:, self.said.at]

    def best(self, allowed: Bools) -> int | None:
        """The place of the best allowed pool; ties: the first."""
        return int(np.where(allowed, self.accuracies, -1.0).argmax()) if allowed.any() else None


def every_pool_of(said: PairedAnswers, documents: Bools | None = None) -> Tried | None:
    """Every pool of up to as many models as are quick to try, on train documents or those given (T,).

    None if there is no such document.
    """
    n, at = len(said.models), said.is_train if documents is None else documents
    if not at.any():
        return None
    largest = min(largest_enumerable(n), n)
    pools = np.vstack([np.eye(n, dtype=np.bool_), every_pool(n, largest)])
    accuracies = plurality_accuracy(said.predictions[at], said.labels[at], pools, said.kind)
    return Tried(said, pools, accuracies)


def best_pools(tried: Tried) -> tuple[BestPools, ...]:
    """For each size, the smallest first."""
    sizes = tried.pools.sum(axis=1)
    found = []
    for size in range(1, int(sizes.max()) + 1):
        with_it = tried.best((sizes == size) & tried.has_it)
        without = tried.best((sizes == size) & ~tried.has_it)
        assert with_it is not None
        gain = None if without is None else _gain(tried, with_it, without)
        other = None if without is None else _pool(tried, without)
        found.append(BestPools(size, other, _pool(tried, with_it), gain))
    return tuple(found)


def best_for_money(
    tried: Tried, best: Sequence[BestPools], prices: Mapping[str, float | None]
) -> tuple[ForMoney, ...]:
    """At the price of each size's best pool without the model; empty if a price is unknown."""
    each = [prices.get(name) for name in tried.said.models]
    known = [price for price in each if price is not None]
    if len(known) < len(each):
        return ()
    # Rounded, or the order of a sum would decide whether a pool is within its own cost.
    cost = (tried.pools @ np.array(known)).round(9)
    of_best = {pool.models: cost[_at(tried, pool)] for one in best if (pool := one.without) is not None}
    found = []
    for budget in sorted(set(map(float, of_best.values()))):
        without, either = tried.best((cost <= budget) & ~tried.has_it), tried.best(cost <= budget)
        assert without is not None
        assert either is not None
        found.append(ForMoney(budget, _pool(tried, without), _pool(tried, either)))
    return tuple(found)


def losses(tried: Tried) -> dict[str, float]:
    """For each model, how much the best pool of any size loses on train documents without it."""
    best = float(tried.accuracies.max())
    lost = {}
    for place, name in enumerate(tried.said.models):
        left = tried.accuracies[~tried.pools[:, place]]
        lost[name] = best - float(left.max()) if len(left) else best
    return lost


def is_right(said: PairedAnswers, pool: Bools) -> Bools:
    """(T,) whether the plurality of a pool (N,) is right."""
    winner = plurality(said.predictions, pool, said.kind)
    right: Bools = (winner == said.labels) & (said.labels >= 0)
    return right


def _at(tried: Tried, pool: Pool) -> int:
    return int((tried.pools == np.isin(tried.said.models, pool.models)).all(axis=1).argmax())


def _pool(tried: Tried, at: int) -> Pool:
    said, pool = tried.said, tried.pools[at]
    test = is_right(said, pool)[~said.is_train]
    names = tuple(name for name, is_in in zip(said.models, pool, strict=True) if is_in)
    return Pool(names, float(tried.accuracies[at]), float(test.mean()) if len(test) else None)


def _gain(tried: Tried, with_it: int, without: int) -> Difference | None:
    said = tried.said
    hits = [is_right(said, tried.pools[at])[~said.is_train].astype(np.float64) for at in (with_it, without)]
    return paired_bootstrap(hits[0][None], hits[1][None]) if len(hits[0]) else None

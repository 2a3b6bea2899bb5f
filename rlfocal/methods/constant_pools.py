"""The best constant pools: the same few models for every document, chosen on train for a given fusion."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from typing import ClassVar, TypeVar

import numpy as np

from rlfocal.base.arrays import Bools, Floats
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, Policy, decide
from rlfocal.methods.log_linear import fit_log_linear
from rlfocal.methods.registry import Entry, MethodBase, Need, register
from rlfocal.statistics.diversity import every_pool

MAX_POOL_SIZE = 6
"""The most models in a pool, if the method's name gives no size."""


class PoolFusion(ABC):
    """A way to fuse the outputs of a pool's members."""

    enumerable: ClassVar[int] = 200
    """The largest number of pools that are all tried; of more pools, forward selection tries some."""

    @abstractmethod
    def fit(self, train: Dataset, pool: Bools) -> Policy: ...

    def accuracies(self, train: Dataset, pools: Bools) -> Floats:
        """(P,) the train accuracy of each of the pools (P, N), fitted on train."""
        decided = (decide(self.fit(train, pool), train) for pool in pools)
        return np.array([float(train.is_right(each.predictions).mean()) for each in decided])


@dataclass(frozen=True)
class BestPool(MethodBase):
    """The pool of `size` models, or of up to MAX_POOL_SIZE, with the best train accuracy by one fusion.

    At most `enumerable` pools are all tried. Otherwise, models are added one by one, each time the one that
    helps most. Ties go to the smaller pool, then to the alphabetically first. A pool of more models than
    there are has all of them.
    """

    fusion: PoolFusion
    size: int | None = None

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[ChosenPool]:
        n = len(train.models)
        largest = min(self.size or MAX_POOL_SIZE, n)
        sizes = range(1 if self.size is None else largest, largest + 1)
        if sum(comb(n, size) for size in sizes) <= self.fusion.enumerable:
            every = np.vstack([np.eye(n, dtype=np.bool_), every_pool(n, largest)])
            pools = every[np.isin(every.sum(axis=1), sizes)]
        else:
            pools = _grow_pool(self.fusion, train, largest)[sizes[0] - 1 :]
        accuracies = self.fusion.accuracies(train, pools)
        best = self.fusion.fit(train, pools[accuracies.argmax()])
        return [ChosenPool(best, self.fusion, train, pools, accuracies)]


@dataclass(frozen=True)
class ChosenPool:
    """The pool that is best on train, and the pools among which it was chosen."""

    best: Policy
    fusion: PoolFusion
    train: Dataset
    pools: Bools
    """(P, N) the pools that were tried"""
    accuracies: Floats
    """(P,) the train accuracy of each pool"""

    def decide(self, calls: Calls) -> Answers:
        return self.best.decide(calls)

    def hold_to_budget(self, budget: Budget) -> Policy | None:
        """The policy of the best pool that was tried and that the budget covers; None if it covers none."""
        borne = budget.covers(self.pools, self.train.mean_costs)
        if not borne.any():
            return None
        best = np.where(borne, self.accuracies, -1.0).argmax()
        return self.fusion.fit(self.train, self.pools[best])


def _grow_pool(fusion: PoolFusion, train: Dataset, size: int) -> Bools:
    """(size, N) pools of 1, 2, ... models, each the previous pool plus the model that helps most."""
    pool, grown = np.zeros(len(train.models), dtype=np.bool_), []
    for _ in range(size):
        larger = (pool | np.eye(len(pool), dtype=np.bool_))[~pool]
        pool = larger[fusion.accuracies(train, larger).argmax()]
        grown.append(pool)
    return np.stack(grown)


FusionT = TypeVar("FusionT", bound=PoolFusion)


def constant_pool(
    name: str, chosen_by: str, answers: str, *needs: Need
) -> Callable[[type[FusionT]], type[FusionT]]:
    """Registers the best constant pools by the decorated fusion, as NAME, NAME:<size> and NAME+task."""

    def enter(fusion: type[FusionT]) -> type[FusionT]:
        entry = Entry(
            name,
            f"the pool of up to {MAX_POOL_SIZE} models whose {chosen_by} is best on train",
            answers,
            role="constant_pool",
            argument="size",
            has_budgets=True,
            needs=needs,
            make=lambda making: BestPool(fusion(), making.size),
            reads=("outputs",),
            with_task="fitted per task",
        )
        register(entry)(fusion)  # type: ignore[type-var]  # `make` makes the method
        return fusion

    return enter


@constant_pool("best_log_linear", "`log_linear`", "as `log_linear`", "log-probs")
class LogLinearFusion(PoolFusion):
    """A log-linear ensemble of a pool's members: a weight per member and a bias per choice."""

    def fit(self, train: Dataset, pool: Bools) -> Policy:
        return fit_log_linear(train, pool)

"""The best constant pools: the same few models for every document, chosen on train for a given fusion; and,
as controls beside `rl_focal`, the pool from which its training starts, with two fusions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import ClassVar, TypeVar

import numpy as np

from rlfocal.base.arrays import Bools, Floats
from rlfocal.base.names import RL_FOCAL, START_METHOD, TEAM_LOG_LINEAR
from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, Policy, decide
from rlfocal.methods.log_linear import fit_log_linear
from rlfocal.methods.reference import BestSingleModel
from rlfocal.methods.registry import Entry, MethodArguments, MethodBase, Need, register
from rlfocal.methods.trained import RLFocal
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
        return np.array([_accuracy_on(train, self.fit(train, pool)) for pool in pools])


@dataclass(frozen=True)
class _BestPool(MethodBase):
    """The pool of `size` models, or of up to MAX_POOL_SIZE, with the best train accuracy by one fusion.

    At most `enumerable` pools are all tried. Otherwise, models are added one by one, each time the one that
    helps most. Ties go to the smaller pool, then to the alphabetically first. A pool of more models than
    there are has all of them.
    """

    fusion: PoolFusion
    size: int | None = None

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[_ChosenPool]:
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
        return [_ChosenPool(best, self.fusion, train, pools, accuracies)]


@dataclass(frozen=True)
class _ChosenPool:
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


def _accuracy_on(documents: Dataset, policy: Policy) -> float:
    """The share of documents that a policy answers right."""
    return float(documents.is_right(decide(policy, documents).predictions).mean())


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
            make=lambda making: _BestPool(fusion(), making.size),
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


def _enter(name: str, asks: str, answers: str, *, keeps_fusion: bool) -> None:
    def make(making: MethodArguments) -> _Start:
        return _Start(RLFocal(RL_FOCAL[0], store=making.store), keeps_fusion)

    entry = Entry(
        name, asks, answers, role="control", reads=("question", "outputs"), with_task="as an input",
        protocols=("frozen",), fewest_models=2, needs=() if keeps_fusion else ("log-probs",),
        is_default=False, has_budgets=keeps_fusion,
        source="a control, evaluated wherever `rl_focal` is", make=make,
    )  # fmt: skip
    register(entry)(_Start)


@dataclass(frozen=True)
class _Start(MethodBase):
    """The best constant pool of `rl_focal` before training.

    Where answers are only graded, there is no such pool, and the most accurate model decides.
    """

    agents: RLFocal
    keeps_fusion: bool
    """Whether members have the weights of the start; if not, `log_linear` fits their weights."""

    def recipe(self, n_train: int) -> str:
        return f"{self.revision} {self.agents.recipe(n_train)}"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Policy]:
        # torch takes seconds to import, and listing the methods must not.
        from rlfocal.methods.rl_focal.agents import PoolAgents

        # No seed matters to the start, and no episode.
        agents = self.agents.load_agents(train, 0)
        if agents is None:
            [agents] = replace(self.agents, store=None, changes={"joint_episodes": 0}).fit(train, [0])
        if not isinstance(agents, PoolAgents) or agents.simple_policies is None:
            single = BestSingleModel().fit(train, seeds)
            return [*single]
        at_start = agents.restore_start()
        return [at_start if self.keeps_fusion else fit_log_linear(train, at_start.team)]


_enter(
    START_METHOD,
    "the best constant pool: where `rl_focal` starts",
    "as `rl_focal` before training: a log-linear ensemble, weighted by the odds of being right",
    keeps_fusion=True,
)
_enter(TEAM_LOG_LINEAR, f"as `{START_METHOD}`", "as `log_linear`", keeps_fusion=False)

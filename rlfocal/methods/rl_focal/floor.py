"""What agents that choose one pool per document fall back to, and whether they have to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from rlfocal.base.arrays import Bools, Floats
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, decide
from rlfocal.methods.constant_pools import LARGEST, accuracy_on
from rlfocal.methods.learning.earning import Rung, has_earned
from rlfocal.methods.log_linear import fit_log_linear
from rlfocal.methods.rl_focal.config import PoolConfig
from rlfocal.methods.rl_focal_sequential.config import SequentialConfig
from rlfocal.methods.rl_focal_sequential.decider import asking_order

if TYPE_CHECKING:
    from rlfocal.methods.rl_focal.agents import PoolAgents

ENOUGH = 2_000
"""Train documents, spread over all, that constant pools are chosen on."""
FOLDS = 5


class Floor(NamedTuple):
    """The constant policies of one pair of agents, as logits of the branches."""

    singles: Tensor
    """(1 + tasks, N) above 0 for the most accurate model, on all of train and on each of its tasks"""
    pools: Tensor
    """(K, N) above 0 for the members of the pool within each budget, and last without one"""
    kept: tuple[Rung, ...]
    """(K,) what decides within each budget, and last without one"""

    def logits(self, rung: Rung, place: int, tasks: Tensor) -> Tensor:
        """(T, N) of a constant policy, for one-hot `tasks` (T, tasks)."""
        if rung == "constant pool":
            return self.pools[place].expand(len(tasks), -1)
        if rung == "best single" or not tasks.shape[1]:
            return self.singles[0].expand(len(tasks), -1)
        return self.singles[torch.where(tasks.any(1), 1 + tasks.argmax(1), 0)]


def build_floor(train: Dataset, tasks: Sequence[str], config: PoolConfig, budgets: Sequence[int]) -> Floor:
    """The constant policies that train suggests; everything that was learned is kept until it is judged."""
    of_tasks = [train.correct[train.tasks == task] for task in tasks]
    accuracies = [rows.mean(axis=0) for rows in (train.correct, *of_tasks)]
    pools = start_pools(train, config, budgets)
    learned: Rung = "learned"
    return Floor(
        torch.tensor(np.stack([_only_best(accuracy) for accuracy in accuracies]), dtype=torch.float32),
        torch.tensor(pools, dtype=torch.float32),
        (learned,) * len(pools),
    )


def start_pools(train: Dataset, config: PoolConfig, budgets: Sequence[int]) -> Floats:
    """(K, N) branch logits of constant pools: the first models in the order in which `rl_focal_sequential`
    asks. The one without a budget has, of the sizes up to `mean_pool`, the one whose log-linear fusion earns
    most on held-out train documents."""
    n = len(train.models)
    most = min(int(config.mean_pool) or LARGEST, n)
    order = asking_order(train, SequentialConfig())
    pools = np.zeros((most, n), dtype=np.bool_)
    for size in range(most):
        pools[size:, order[size]] = True
    earned = _held_out_accuracies(_spread(train), pools) - config.call_penalty * np.arange(most)
    rank = np.argsort(order)
    return np.stack([size - 0.5 - rank for size in (*budgets, int(earned.argmax()) + 1)])


def judge(floor: Floor, trials: Sequence[tuple[PoolAgents, Dataset]], margin: float) -> Floor:
    """With what decides, from agents trained without a part of train and that part: a policy takes the place
    of a simpler one only if it is ahead there by the margin."""
    return floor._replace(kept=tuple(_climb(trials, place, margin) for place in range(len(floor.kept))))


def _climb(trials: Sequence[tuple[PoolAgents, Dataset]], place: int, margin: float) -> Rung:
    """The highest rung within one budget, or without one, that has earned its place."""
    kept: Rung = "best single"
    earned = None
    for rung in get_args(Rung) if trials else ():
        if rung == "best single per question" or (rung == "best single per task" and not trials[0][0].tasks):
            continue
        worth = np.concatenate([_worth(agents, rung, place, out) for agents, out in trials])
        if earned is None or has_earned(worth, earned, margin):
            kept, earned = rung, worth
    return kept


def _worth(agents: PoolAgents, rung: Rung, place: int, documents: Dataset) -> Floats:
    """(T,) what deciding by a rung earns: 1 for a right answer, less the penalty for each model asked."""
    assert agents.floor is not None
    agents = replace(agents, floor=agents.floor._replace(kept=(rung,) * len(agents.floor.kept)))
    budgets = agents.budgets
    policy = agents if place == len(budgets) else agents.within(Budget(budgets[place]))
    assert policy is not None
    decided = decide(policy, documents)
    right = (decided.predictions == documents.labels) & (documents.labels >= 0)
    return np.asarray(right - agents.config.call_penalty * decided.pools.sum(axis=1))


def _only_best(accuracy: Floats) -> Floats:
    """(N,) logits in the order of the models' accuracies, above 0 for the first alone."""
    return np.asarray(0.5 - np.argsort(np.argsort(-accuracy, kind="stable"), kind="stable"))


def _spread(train: Dataset) -> Dataset:
    """At most `ENOUGH` documents, evenly from all of train."""
    if len(train) <= ENOUGH:
        return train
    return train.take(np.linspace(0, len(train) - 1, ENOUGH).astype(np.int64))


def _held_out_accuracies(train: Dataset, pools: Bools) -> Floats:
    """(P,) of the pools (P, N), on parts of train that their log-linear fusion was not fitted on."""
    fold = np.arange(len(train)) % min(FOLDS, len(train))
    right = np.zeros(len(pools))
    for part in range(fold.max() + 1):
        rest, out = train.take(np.flatnonzero(fold != part)), train.take(np.flatnonzero(fold == part))
        right += [len(out) * accuracy_on(out, fit_log_linear(rest, pool)) for pool in pools]
    return np.asarray(right / len(train))

"""What both agents know before any model is asked: the question's task, its words, and the budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rlfocal.data.calls import Calls
from rlfocal.data.dataset import Dataset
from rlfocal.methods.learning.queries import QueryFeatures, fit_queries
from rlfocal.methods.rl_focal.config import PoolConfig


class FeatureColumns(NamedTuple):
    """How many of the G features describe the task, the words and the budget, in this order, after a constant
    1."""

    tasks: int
    words: int
    budgets: int

    @property
    def size(self) -> int:
        """The number of features, G."""
        return 1 + sum(self)

    def expand(self, constant: float, task: float, word: float, budget: float) -> list[float]:
        """(G,) one value per feature: that of the constant, the tasks, the words or the budgets."""
        return [constant, *[task] * self.tasks, *[word] * self.words, *[budget] * self.budgets]


class Questions(NamedTuple):
    """Turns questions into G features: a constant 1, the train task (one-hot), coordinates along the
    principal directions of its words, and the budget (one-hot)."""

    queries: QueryFeatures
    tasks: tuple[str, ...]
    """The train tasks, if there are several. For any other task, all task features are 0."""
    budgets: tuple[int, ...]
    """The budgets that features can hold, in models, in ascending order."""

    @property
    def columns(self) -> FeatureColumns:
        return FeatureColumns(len(self.tasks), len(self.queries.gate_scale), len(self.budgets))

    def numbers(self, documents: Dataset | Calls, budget: int | None = None) -> Tensor:
        """(T, G) the features of documents, as `features` makes them."""
        return self.features(documents.questions or ("",) * len(documents), documents.tasks.tolist(), budget)

    def features(self, questions: tuple[str, ...], tasks: list[str], budget: int | None = None) -> Tensor:
        """(T, G) features of questions and their tasks, for answers within `budget` or without one.

        Without a text, word features are 0.
        """
        columns = self.columns
        rows = np.zeros((len(tasks), columns.size), dtype=np.float32)
        rows[:, 0] = 1.0
        place = {task: 1 + number for number, task in enumerate(self.tasks)}
        for row, task in zip(rows, tasks, strict=True):
            if task in place:
                row[place[task]] = 1.0
        if columns.words:
            first = 1 + columns.tasks
            rows[:, first : first + columns.words] = self.queries.gates(self.queries.words(questions))
        if budget is not None:
            rows[:, self.budgets.index(budget) - columns.budgets] = 1.0
        return torch.from_numpy(rows)


def fit_questions(train: Dataset, config: PoolConfig) -> Questions | None:
    """Fits question features to train, without labels; None if the agents do not look at questions."""
    if not config.shape.sees_questions:
        return None
    tasks = tuple(dict.fromkeys(train.tasks.tolist()))
    texts = train.questions or ("",) * len(train)
    directions = config.word_directions
    queries = fit_queries(texts, directions, directions, 0)
    return Questions(queries, tasks if len(tasks) > 1 else (), limits(config, len(train.models)))


def to_decider(features: Tensor, n_budgets: int) -> Tensor:
    """(..., G) the same features, except that the constant is 1 only without a budget.

    The Decider's branches have a separate constant for each budget.
    """
    told = features[..., features.shape[-1] - n_budgets :].sum(-1, keepdim=True)
    return torch.cat([features[..., :1] - told, features[..., 1:]], -1)


def limits(config: PoolConfig, n_models: int) -> tuple[int, ...]:
    """The budgets of the settings that are below the usual pool size of so many models."""
    usual = min(config.mean_pool or np.inf, n_models)
    return tuple(budget for budget in config.budgets if budget < usual)


MIN_MULTIPLIER, MULTIPLIER_POWER = 1e-2, 0.3
"""Multipliers start at the first, their minimum. Every update multiplies them by (mean pool / target) to the
power of the second.

It is a factor, not a sum, because gains differ by data.
"""


class Multiplier:
    """The cost of a pool's size m/N beyond Eq (6), within each of K - 1 budgets and without one."""

    def __init__(
        self, budgets: Sequence[int], mean_pool: float, least: float = 0.0, most: float = torch.inf
    ) -> None:
        """Makes the multipliers.

        `mean_pool`: the target without a budget; 0: none. `least`: what the whole pool costs anyway. `most`:
        what it costs at most, however long pools are too large.
        """
        self.targets = torch.tensor([*budgets, mean_pool or torch.inf])
        self._least = torch.where(self.targets.isfinite(), max(MIN_MULTIPLIER, least), least)
        self._most = most
        self.values = self._least.clone()
        """(K,) the multipliers"""

    @property
    def is_binding(self) -> bool:
        """Whether pools without a budget would be larger than `mean_pool`."""
        return bool(self.values[-1] > 2 * self._least[-1])

    def adapt(self, sizes: Tensor, within: Tensor) -> None:
        """Adapts each multiplier to the sizes (M,) of pools; `within` (K, M) is 1 for the budget of each
        pool, else 0."""
        n = within.sum(1)
        factor = torch.where(n > 0, sizes @ within.T / n.clamp(min=1) / self.targets, 1) ** MULTIPLIER_POWER
        self.values = torch.maximum((self.values * factor).clamp(max=self._most), self._least)

"""Features that both agents see before any model is asked: the question's task and words, and the budget."""

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
    """The numbers of question features that describe the task, the words and the budget, in this order.

    The first of the G features is a constant 1.
    """

    tasks: int
    words: int
    budgets: int

    @property
    def size(self) -> int:
        """The number of features, G."""
        return 1 + sum(self)

    def expand(self, constant: float, task: float, word: float, budget: float) -> list[float]:
        """(G,) the given values, repeated for each feature of the constant, tasks, words and budgets."""
        return [constant, *[task] * self.tasks, *[word] * self.words, *[budget] * self.budgets]


class Questions(NamedTuple):
    """Turns questions into G features: a constant 1, the task, the words, and the budget.

    Task and budget are one-hot, and words are coordinates along principal directions.
    """

    queries: QueryFeatures
    tasks: tuple[str, ...]
    """The train tasks, if there are several. For any other task, all task features are 0."""
    budgets: tuple[int, ...]
    """The budgets, in models, that have a feature, in ascending order."""

    @property
    def columns(self) -> FeatureColumns:
        return FeatureColumns(len(self.tasks), len(self.queries.gate_scale), len(self.budgets))

    def numbers(self, documents: Dataset | Calls, budget: int | None = None) -> Tensor:
        """(T, G) the question features of documents, for answers within `budget` or without one."""
        return self.features(documents.questions or ("",) * len(documents), documents.tasks.tolist(), budget)

    def features(self, questions: tuple[str, ...], tasks: list[str], budget: int | None = None) -> Tensor:
        """(T, G) features of questions and their tasks, for answers within `budget` or without one.

        A question without text has word features of 0.
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
    """(..., G) question features as the Decider sees them, whose constant is 1 only without a budget.

    So the Decider's branches have a separate constant for each budget.
    """
    told = features[..., features.shape[-1] - n_budgets :].sum(-1, keepdim=True)
    return torch.cat([features[..., :1] - told, features[..., 1:]], -1)


def limits(config: PoolConfig, n_models: int) -> tuple[int, ...]:
    """The budgets of the settings that are smaller than `mean_pool` and the number of models."""
    usual = min(config.mean_pool or np.inf, n_models)
    return tuple(budget for budget in config.budgets if budget < usual)


MIN_MULTIPLIER, MULTIPLIER_POWER = 1e-2, 0.3
"""The value at which multipliers start, their minimum, and the power by which updates change them.

Every update multiplies them by (mean pool / target) to that power.
"""


class Multiplier:
    """K multipliers of a pool's size m/N, a cost beyond Eq (6), for each budget and last without one."""

    def __init__(
        self, budgets: Sequence[int], mean_pool: float, least: float = 0.0, most: float = torch.inf
    ) -> None:
        """Makes the multipliers.

        `mean_pool`: the target size without a budget; 0: none. `least` and `most`: the least and the highest
        cost of asking all models.
        """
        self.targets = torch.tensor([*budgets, mean_pool or torch.inf])
        self._least = torch.where(self.targets.isfinite(), max(MIN_MULTIPLIER, least), least)
        self._most = most
        self.values = self._least.clone()
        """(K,) the multipliers"""

    @property
    def is_binding(self) -> bool:
        """Whether the multiplier without a budget has risen, because pools were larger than `mean_pool`."""
        return bool(self.values[-1] > 2 * self._least[-1])

    def adapt(self, sizes: Tensor, within: Tensor) -> None:
        """Adapts each multiplier to the sizes (M,) of pools; `within` (K, M) is 1 for the budget of each
        pool, else 0."""
        n = within.sum(1)
        factor = torch.where(n > 0, sizes @ within.T / n.clamp(min=1) / self.targets, 1) ** MULTIPLIER_POWER
        self.values = torch.maximum((self.values * factor).clamp(max=self._most), self._least)

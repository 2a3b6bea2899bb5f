"""A policy with a budget that counts how often it is fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.loading import load_dataset
from rlfocal.data.policy import Budget
from rlfocal.evaluation import Candidate, EvaluationRequest, Setup
from rlfocal.evaluation.candidates import run_methods
from rlfocal.evaluation.storing import read_runs
from warehouse import Warehouse


@dataclass
class FirstModels:
    """Asks the first models, as many as it may, but never a single one; counts its fits."""

    fits: int = 0
    seeded = False

    def recipe(self, n_train: int) -> str:
        return "1"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[FirstModelsPolicy]:
        self.fits += 1
        return [FirstModelsPolicy(len(train.models))]


@dataclass(frozen=True)
class FirstModelsPolicy:
    most: int

    def decide(self, calls: Calls) -> Answers:
        for model in range(self.most):
            said = calls.call(np.arange(len(calls.models)) == model)
        return Answers(said.predictions[:, self.most - 1], np.full(len(calls), 0.5))

    def hold_to_budget(self, budget: Budget) -> FirstModelsPolicy | None:
        return None if budget.amount < 2 else FirstModelsPolicy(int(min(budget.amount, self.most)))


SAYS = {"a": [True, False, True, True], "b": [True, True, False, True], "c": [True, True, True, False]}


def held(
    warehouse: Warehouse, method: FirstModels, *budgets: str
) -> list[tuple[str | None, float, float | None]]:
    setup = Setup(warehouse, load_dataset(warehouse, "b"), EvaluationRequest("b", seeds=1, budgets=budgets))
    runs, _ = run_methods(setup, [Candidate("first_ones", method, has_budgets=True)])
    rows = (row for row in read_runs(warehouse, runs["first_ones"]) if row.task == "*")
    return [(row.budget, row.mean_pool_size, row.mean_rounds) for row in rows]

"""Fits any method to each task's train rows, and to all of them, so that the task's name is an input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.data.calls import Answers, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, BudgetedPolicy, Fitted, Method, Policy

MIN_TASK_DOCUMENTS = 30
"""The fewest train documents of a task that gets a fit of its own."""


@dataclass(frozen=True)
class PerTaskMethod:
    """One fit for each task of 30 train documents or more; one fit on all train rows for any other task.

    No fit sees more than one task's name.
    """

    method: Method

    @property
    def seeded(self) -> bool:
        return self.method.seeded

    def recipe(self, n_train: int) -> str:
        return f"1, tasks of {MIN_TASK_DOCUMENTS}: {self.method.recipe(n_train)}"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[TaskPolicies]:
        shared = _check_policies(self.method.fit(train.hide_tasks(), seeds))
        own = {
            task: _check_policies(self.method.fit(rows, seeds))
            for task, rows in train.split_by_task()
            if len(rows) >= MIN_TASK_DOCUMENTS
        }
        return [
            (_BudgetedTaskPolicies if isinstance(policy, BudgetedPolicy) else TaskPolicies)(
                policy, {task: policies[number] for task, policies in own.items()}
            )
            for number, policy in enumerate(shared)
        ]


@dataclass(frozen=True)
class TaskPolicies:
    """Decides by the policy of a document's task, or by the shared policy if the task has none."""

    shared_policy: Policy
    by_task: Mapping[str, Policy]

    def decide(self, calls: Calls) -> Answers:
        slots = np.full(len(calls), -1, dtype=np.int64)
        chances = np.zeros(len(calls))
        has_chances = True
        for task in dict.fromkeys(calls.tasks.tolist()):
            rows = np.flatnonzero(calls.tasks == task)
            part = calls.select_documents(rows)
            slots[rows], probability = self.by_task.get(task, self.shared_policy).decide(part)
            calls.adopt(part, rows)
            has_chances &= probability is not None
            chances[rows] = 0.0 if probability is None else probability
        return Answers(slots, chances if has_chances else None)


class _BudgetedTaskPolicies(TaskPolicies):
    """Decides as TaskPolicies does; each policy can be held to a budget on the train rows of its fit."""

    def hold_to_budget(self, budget: Budget) -> TaskPolicies | None:
        """The policies held to the budget; None if one of them cannot keep to it."""
        held = {
            task: policy.hold_to_budget(budget) if isinstance(policy, BudgetedPolicy) else None
            for task, policy in {"": self.shared_policy, **self.by_task}.items()
        }
        kept = {task: policy for task, policy in held.items() if policy is not None}
        return TaskPolicies(kept.pop(""), kept) if len(kept) == len(held) else None


def _check_policies(fitted_methods: Sequence[Fitted]) -> list[Policy]:
    """The fitted methods as policies; TypeError for one that reads outputs of models it did not ask."""
    policies = [policy for policy in fitted_methods if isinstance(policy, Policy)]
    if len(policies) < len(fitted_methods):
        raise TypeError("a policy that sees all outputs cannot be fitted per task")
    return policies

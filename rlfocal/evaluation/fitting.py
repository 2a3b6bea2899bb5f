"""Fits one method on train rows and decides on test rows, group by group."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np

from rlfocal.base.arrays import Bools
from rlfocal.data.conditions import Failing
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, Budgeted, Episode, Fitted, OnlineAgents, decide, decide_online
from rlfocal.evaluation.planning import Setup, visible
from rlfocal.methods import Decisions, Method, OnlineLearner
from rlfocal.methods.reference import Oracle


def within(budget: Budget | None, policies: Sequence[Fitted]) -> list[Fitted] | None:
    """Each group's policy held to the budget; None if one cannot keep to it."""
    if budget is None:
        return list(policies)
    held = [policy.within(budget) if isinstance(policy, Budgeted) else None for policy in policies]
    kept = [policy for policy in held if policy is not None]
    return list(kept) if len(kept) == len(held) else None


def fitting_lock(setup: Setup, method: str, settings: str = "{}") -> AbstractContextManager[bool]:
    """If several processes fit one method on the same rows, one does it and the others wait."""
    about = [setup.dataset.benchmark, method, settings, setup.request.per, setup.dataset.fingerprint()]
    return setup.warehouse.lock("\0".join(["fit", *about]), wait=True)


def fit_groups(
    method: Method, dataset: Dataset, groups: Sequence[Bools], seeds: Sequence[int], *, tasks: bool = False
) -> list[list[Fitted]]:
    """Fit one policy per seed and group on the group's train rows: policies[seed][group].

    `tasks`: whether the method is shown their names, as `visible` has it.
    """
    if not seeds:
        return []
    dataset = visible(dataset, groups, tasks=tasks)
    per_group = [method.fit(dataset.rows(mask & dataset.is_train), seeds) for mask in groups]
    return [list(policies) for policies in zip(*per_group, strict=True)]


def decide_groups(
    dataset: Dataset,
    groups: Sequence[Bools],
    policies: Sequence[Fitted],
    protocol: str = "frozen",
    *,
    tasks: bool = False,
    failing: Failing | None = None,
) -> Decisions:
    """Each group's policy decides on the group's test rows; returned in the order of the test rows.

    Online, policies that can learn do so from every label after its answer; the others stay as they are, and
    are given documents without labels. Only the oracle reads them. `tasks`: as for `fit_groups`. `failing`:
    what fails there, under the frozen protocol.
    """
    test = visible(dataset, groups, tasks=tasks).test
    rounds = np.zeros((len(test), len(test.models)), dtype=np.int64)
    predictions = np.full(len(test), -1, dtype=np.int64)
    probability, has_own = np.full(len(test), np.nan), False
    updates: list[Episode] = []
    for mask, policy in zip(groups, policies, strict=True):
        rows = mask[~dataset.is_train]
        decided = _decide(policy, test.rows(rows), protocol, failing)
        rounds[rows] = decided.pools if decided.rounds is None else decided.rounds
        predictions[rows] = decided.predictions
        if decided.probability is not None:
            probability[rows], has_own = decided.probability, True
        updates += decided.updates
    return Decisions(rounds > 0, predictions, rounds, probability if has_own else None, tuple(updates))


def _decide(policy: Fitted, documents: Dataset, protocol: str, failing: Failing | None) -> Decisions:
    if protocol == "online" and isinstance(policy, OnlineLearner | OnlineAgents):
        return decide_online(policy, documents)
    return decide(policy, documents if isinstance(policy, Oracle) else documents.unlabelled(), failing)

"""One method on one benchmark: fitted on train, decided on test and stored, unless it is already stored."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, Budgeted, Episode, Fitted, OnlineAgents, decide, decide_online
from rlfocal.evaluation.planning import Candidate, Mask, Run, Setup, visible
from rlfocal.evaluation.storing import learning_curves, online_updates, rule_out, store, stored_runs
from rlfocal.methods import Decisions, Method, OnlineLearner
from rlfocal.methods.reference import Oracle


def run_method(setup: Setup, candidate: Candidate) -> tuple[list[str], list[str]]:
    """Fit one method on train rows, decide on test rows and store the result, unless it is already stored.

    Returns the run ids, one per seed, and those run now.
    """
    warehouse, dataset = setup.warehouse, setup.dataset
    runs = candidate.runs(setup)
    run_ids = [run.run_id for run in runs]

    def missing() -> list[Run]:
        held = stored_runs(setup)
        return [run for run in runs if setup.request.force or run.run_id not in held]

    if not missing():
        return run_ids, []
    warehouse.check_writable()  # before hours of fitting, not after
    with fitting_lock(setup, candidate.name, runs[0].settings + candidate.tuned):
        new = missing()  # another process may have stored them meanwhile
        method, chosen = candidate.tune() if new and candidate.tune else (candidate.method, {})
        seeds = list(dict.fromkeys(run.seed or 0 for run in new))
        tasks = candidate.reads_task
        started = time.perf_counter()
        fitted = dict(zip(seeds, fit_groups(method, dataset, setup.groups, seeds, tasks=tasks), strict=True))
        fitting = (time.perf_counter() - started) / max(len(seeds), 1)
        for run in new:
            policies = within(run.budget, fitted[run.seed or 0])
            if policies is None:
                rule_out(warehouse, [run])
                continue
            started = time.perf_counter()
            decisions = decide_groups(dataset, setup.groups, policies, setup.request.protocol, tasks=tasks)
            seconds = fitting + time.perf_counter() - started
            curves = learning_curves(dataset, setup.groups, policies) if run.budget is None else []
            curves += online_updates(decisions)
            store(warehouse, replace(run, chosen=chosen), dataset, decisions, curves, seconds)
    return run_ids, [run.run_id for run in new]


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
    method: Method, dataset: Dataset, groups: Sequence[Mask], seeds: Sequence[int], *, tasks: bool = False
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
    groups: Sequence[Mask],
    policies: Sequence[Fitted],
    protocol: str = "frozen",
    *,
    tasks: bool = False,
) -> Decisions:
    """Each group's policy decides on the group's test rows; returned in the order of the test rows.

    Online, policies that can learn do so from every label after its answer; the others stay as they are, and
    are given documents without labels. Only the oracle reads them. `tasks`: as for `fit_groups`.
    """
    test = visible(dataset, groups, tasks=tasks).test
    rounds = np.zeros((len(test), len(test.models)), dtype=np.int64)
    predictions = np.full(len(test), -1, dtype=np.int64)
    probability = np.full(len(test), np.nan)
    updates: list[Episode] = []
    for mask, policy in zip(groups, policies, strict=True):
        rows = mask[~dataset.is_train]
        decided = _decide(policy, test.rows(rows), protocol)
        rounds[rows] = decided.pools if decided.rounds is None else decided.rounds
        predictions[rows] = decided.predictions
        probability[rows] = np.nan if decided.probability is None else decided.probability
        updates += decided.updates
    return Decisions(rounds > 0, predictions, rounds, probability, tuple(updates))


def _decide(policy: Fitted, documents: Dataset, protocol: str) -> Decisions:
    if protocol == "online" and isinstance(policy, OnlineLearner | OnlineAgents):
        return decide_online(policy, documents)
    return decide(policy, documents if isinstance(policy, Oracle) else documents.unlabelled())

"""Fits one method on train rows and decides on test rows, group by group; trains RL-Focal's agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np

from rlfocal.base import options
from rlfocal.base.arrays import Bools
from rlfocal.base.errors import InputError
from rlfocal.base.names import RL_FOCAL
from rlfocal.base.request import Progress, checked
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import (
    Budget,
    BudgetedPolicy,
    Episode,
    FailingModels,
    Fitted,
    OnlineAgents,
    decide,
    decide_online,
    refuse_renamed_hooks,
)
from rlfocal.evaluation import EvaluationRequest
from rlfocal.evaluation.planning import Setup, hide_names, read_dataset
from rlfocal.methods import Decisions, Method, OnlineLearner, RLFocal
from rlfocal.methods.learning.store import CHECKPOINT_FORMAT, read_about
from rlfocal.methods.reference import Oracle
from rlfocal.methods.registry import PLUS_TASK, entry_of
from warehouse import Warehouse


def hold_to_budget(budget: Budget | None, policies: Sequence[Fitted]) -> list[Fitted] | None:
    """Each group's policy, held to the budget; None if one of the policies cannot keep to the budget."""
    if budget is None:
        return list(policies)
    held = [
        policy.hold_to_budget(budget) if isinstance(policy, BudgetedPolicy) else None for policy in policies
    ]
    kept = [policy for policy in held if policy is not None]
    return list(kept) if len(kept) == len(held) else None


def fitting_lock(setup: Setup, method: str, settings: str = "{}") -> AbstractContextManager[bool]:
    """A lock that lets only one process fit a method on these rows, while others that would fit it wait."""
    about = [setup.dataset.benchmark, method, settings, setup.request.per, setup.dataset.fingerprint()]
    return setup.warehouse.lock("\0".join(["fit", *about]), wait=True)


def fit_groups(
    method: Method, dataset: Dataset, groups: Sequence[Bools], seeds: Sequence[int], *, tasks: bool = False
) -> list[list[Fitted]]:
    """Fits one policy per seed and group on the group's train rows: policies[seed][group].

    `tasks`: whether the method sees the tasks' names.
    """
    if not seeds:
        return []
    dataset = hide_names(dataset, groups, tasks=tasks)
    per_group = [method.fit(dataset.rows(mask & dataset.is_train), seeds) for mask in groups]
    for policy in chain.from_iterable(per_group):
        refuse_renamed_hooks(type(policy))
    return [list(policies) for policies in zip(*per_group, strict=True)]


def decide_groups(
    dataset: Dataset,
    groups: Sequence[Bools],
    policies: Sequence[Fitted],
    protocol: str = "frozen",
    *,
    tasks: bool = False,
    failing: FailingModels | None = None,
) -> Decisions:
    """The decisions of each group's policy on the group's test rows, in the order of the test rows.

    Under the protocol online, policies that can learn do so from each label after its answer. All others but
    the oracle see documents without labels. `tasks`: whether the method sees the tasks' names. `failing`:
    the models that fail, under the protocol frozen.
    """
    test = hide_names(dataset, groups, tasks=tasks).test
    rounds = np.zeros((len(test), len(test.models)), dtype=np.int64)
    predictions = np.full(len(test), -1, dtype=np.int64)
    probability, has_own = np.full(len(test), np.nan), False
    updates: list[Episode] = []
    for mask, policy in zip(groups, policies, strict=True):
        rows = mask[~dataset.is_train]
        documents = test.rows(rows)
        if protocol == "online" and isinstance(policy, OnlineLearner | OnlineAgents):
            decided = decide_online(policy, documents)
        else:
            seen = documents if isinstance(policy, Oracle) else documents.hide_labels()
            decided = decide(policy, seen, failing)
        rounds[rows] = decided.pools if decided.rounds is None else decided.rounds
        predictions[rows] = decided.predictions
        if decided.probability is not None:
            probability[rows], has_own = decided.probability, True
        updates += decided.updates
    return Decisions(rounds > 0, predictions, rounds, probability if has_own else None, tuple(updates))


@dataclass(frozen=True)
class TrainingReport:
    """The checkpoints that `train` made or found."""

    checkpoints: tuple[Path, ...]
    trained: int
    """The number of checkpoints that were trained now."""

    deciding: tuple[str, ...]
    """For each checkpoint, the policy that decides without a budget.

    It is `learned`, or a simpler policy if the learned one was not ahead of that on held-out train documents.
    """

    def __str__(self) -> str:
        deciding = ", ".join(f"{name} {n}" for name, n in Counter(self.deciding).most_common())
        reused = len(self.checkpoints) - self.trained
        return f"trained {self.trained}, reused {reused}; what decides: {deciding}"


@checked
def train(
    warehouse: Warehouse,
    benchmark: options.Benchmark,
    *,
    method: options.Trained = RL_FOCAL[0],
    models: options.Models = None,
    seeds: options.Seeds = 3,
    per: options.Per = "benchmark",
    snapshot: options.Snapshot = None,
    force: bool = False,
    tensorboard: options.Tensorboard = False,
    on_progress: Progress | None = None,
) -> TrainingReport:
    """Trains the agents of one of RL-Focal's methods: one checkpoint per group of rows and seed.

    `rlfocal train --help` describes the parameters; `force` trains existing checkpoints again. The agents of
    `rl_focal+task` read the tasks' names, which are hidden from those of other methods. With `tensorboard`,
    each checkpoint gets a folder of its name beside it that TensorBoard reads. Raises InputError for another
    method, and for data that cannot be learned from.
    """
    dataset = read_dataset(warehouse, benchmark, models, snapshot)
    own = method.removesuffix(PLUS_TASK)
    reads_task = own != method
    if reads_task and entry_of(own).with_task == "fitted per task":
        raise InputError(f"{method} has separate agents for each task: train {own} with --per task")
    request = EvaluationRequest(benchmark, per=per, force=force, on_progress=on_progress)
    setup = Setup(warehouse, dataset, request)
    store = replace(setup.store, event_files=tensorboard)
    agents = RLFocal(own, store=store, on_progress=setup.progress(f"{benchmark} {method}"))
    dataset = hide_names(dataset, setup.groups, tasks=reads_task)
    train_rows = [dataset.rows(mask & dataset.is_train) for mask in setup.groups]
    asked = [(rows, seed) for rows in train_rows for seed in range(seeds)]

    trained = 0
    # What is trained may have a history to write, or models to rename: `fit` loads it.
    if force or tensorboard or not all(agents.is_current(*rows_and_seed) for rows_and_seed in asked):
        with fitting_lock(setup, method):
            trained = sum(force or not agents.is_trained(*rows_and_seed) for rows_and_seed in asked)
            fit_groups(agents, dataset, setup.groups, range(seeds), tasks=reads_task)
    checkpoints = tuple(agents.checkpoint(*rows_and_seed) for rows_and_seed in asked)
    kept = [read_about(path, CHECKPOINT_FORMAT).get("kept") for path in checkpoints]
    return TrainingReport(checkpoints, trained, tuple(rungs[-1] if rungs else "learned" for rungs in kept))

"""Runs methods on one benchmark's test rows, unless the warehouse has what they decided."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from rlfocal.dataset import Dataset
from rlfocal.errors import unknown
from rlfocal.evaluation.planning import Candidate, Mask, Per, Progress, Run, Setup, read_dataset
from rlfocal.evaluation.splits import GIVEN
from rlfocal.evaluation.storing import (
    Evaluation,
    learning_curves,
    renew,
    rule_out,
    store,
    stored,
    stored_runs,
)
from rlfocal.methods import (
    PROTOCOLS,
    Decisions,
    Making,
    Method,
    OnlineLearner,
    check_methods,
    entry_of,
    every_method,
    make_method,
    methods_for,
    named,
    with_references,
)
from rlfocal.methods.reference import Oracle
from rlfocal.policy import Budget, Budgeted, Fitted, decide
from warehouse import Warehouse


@dataclass(frozen=True)
class EvaluationReport:
    """What `evaluate` found, computed now or already there."""

    rows: tuple[Evaluation, ...]
    ran: tuple[str, ...]
    """Run ids computed now."""
    left_out: tuple[tuple[str, int], ...]
    """(model, documents it answered) of models that missed some."""
    skipped: tuple[tuple[str, str], ...] = ()
    """(method, why) of those that the data do not admit, where all were asked for."""


def evaluate(
    warehouse: Warehouse,
    benchmark: str,
    *,
    methods: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    seeds: int = 3,
    per: Per = "benchmark",
    protocol: str = "frozen",
    split: str = GIVEN,
    budgets: Sequence[str] = (),
    snapshot: int | None = None,
    force: bool = False,
    on_progress: Progress | None = None,
) -> EvaluationReport:
    """Fit each method on train rows, decide on test rows, and store evaluations and decisions.

    A run that the warehouse has already (same data, method, seed, protocol) is not repeated, and agents that
    are trained already are not trained again, unless `force`. `snapshot` reads the warehouse as it was then.
    `split` is as `split_anew` takes it. At each of the `budgets` (as `Budget.of` reads them) the methods that
    trade cost for accuracy decide again, without another fit. `methods`: None for the usual ones, ["all"] for
    every method that the data admit.
    `protocol` is frozen (nothing about test labels enters), online (each label is revealed after its answer)
    or both. RL-Focal never comes without the reference policies, nor among all methods without the best
    constant pools of its size. Raises InputError for a wrong name and for data that cannot be split.
    """
    if protocol not in (*PROTOCOLS, "both"):
        raise unknown("protocol", protocol, [*PROTOCOLS, "both"])
    held_to = tuple(dict.fromkeys(map(Budget.of, budgets)))
    dataset = read_dataset(warehouse, benchmark, models, snapshot, split)
    reports = [
        _evaluate(Setup(warehouse, dataset, seeds, per, one, split, held_to, force, on_progress), methods)
        for one in (PROTOCOLS if protocol == "both" else [protocol])
    ]
    ran = tuple(run_id for report in reports for run_id in report.ran)
    rows = tuple(row for report in reports for row in report.rows)
    return EvaluationReport(rows, ran, dataset.left_out, reports[-1].skipped)


def _evaluate(setup: Setup, methods: Sequence[str] | None) -> EvaluationReport:
    """As `evaluate` does, under one protocol."""
    warehouse, dataset = setup.warehouse, setup.dataset
    known = methods_for(len(dataset.models), dataset.kind, setup.protocol)
    skipped: dict[str, str] = {}
    if methods is not None and list(methods) == ["all"]:
        methods, skipped = every_method(dataset, setup.protocol)
    names = with_references(known if methods is None else methods, dataset.kind)
    check_methods(names, dataset, setup.protocol)
    held = stored_runs(warehouse, dataset)

    def run(name: str) -> tuple[list[str], list[str]]:
        making = Making(store=setup.store, on_progress=setup.progress(f"{dataset.benchmark} {name}"))
        candidate = Candidate(name, make_method(name, making), has_budgets=entry_of(name).has_budgets)
        asked = [one.run_id for one in candidate.runs(setup)]
        if held.issuperset(asked) and not setup.force:
            return asked, []
        return run_method(setup, candidate)

    found = {name: run(name) for name in names}
    if methods is None:
        ours = [found[name][0] for name in named("rl_focal") if name in found]
        pools = dict.fromkeys(pool for runs in ours for pool in _pools_of_its_size(warehouse, runs))
        found |= {name: run(name) for name in pools}
    run_ids = [run_id for of_method, _ in found.values() for run_id in of_method]
    renew(setup, run_ids)
    ran = tuple(new for _, ran in found.values() for new in ran)
    return EvaluationReport(stored(warehouse, run_ids), ran, dataset.left_out, tuple(skipped.items()))


def run_method(setup: Setup, candidate: Candidate) -> tuple[list[str], list[str]]:
    """Fit one method on train rows, decide on test rows and store what came out, unless it is there already.

    Returns the run ids, one a seed, and those run now.
    """
    warehouse, dataset = setup.warehouse, setup.dataset
    runs = candidate.runs(setup)
    run_ids = [run.run_id for run in runs]

    def missing() -> list[Run]:
        held = stored_runs(warehouse, dataset)
        return [run for run in runs if setup.force or run.run_id not in held]

    if not missing():
        return run_ids, []
    warehouse.check_writable()  # before hours of fitting, not after
    with fitting_lock(setup, candidate.name, runs[0].settings):
        new = missing()  # another process may have stored them meanwhile
        seeds = list(dict.fromkeys(run.seed or 0 for run in new))
        started = time.perf_counter()
        fitted = dict(zip(seeds, fit_groups(candidate.method, dataset, setup.groups, seeds), strict=True))
        fitting = (time.perf_counter() - started) / max(len(seeds), 1)
        for run in new:
            policies = within(run.budget, fitted[run.seed or 0])
            if policies is None:
                rule_out(warehouse, [run])
                continue
            started = time.perf_counter()
            decisions = decide_groups(dataset, setup.groups, policies, setup.protocol)
            seconds = fitting + time.perf_counter() - started
            curves = learning_curves(dataset, setup.groups, policies) if run.budget is None else []
            store(warehouse, run, dataset, decisions, curves, seconds)
    return run_ids, [run.run_id for run in new]


def within(budget: Budget | None, policies: Sequence[Fitted]) -> list[Fitted] | None:
    """Each group's policy held to the budget; None where one cannot keep to it."""
    if budget is None:
        return list(policies)
    held = [policy.within(budget) if isinstance(policy, Budgeted) else None for policy in policies]
    kept = [policy for policy in held if policy is not None]
    return list(kept) if len(kept) == len(held) else None


def fitting_lock(setup: Setup, method: str, settings: str = "{}") -> AbstractContextManager[bool]:
    """Of all that fit one method on the same rows, whatever for, one does and the others wait for it."""
    about = [setup.dataset.benchmark, method, settings, setup.per, setup.dataset.fingerprint()]
    return setup.warehouse.lock("\0".join(["fit", *about]), wait=True)


def fit_groups(
    method: Method, dataset: Dataset, groups: Sequence[Mask], seeds: Sequence[int]
) -> list[list[Fitted]]:
    """Fit one policy per seed and group on the group's train rows: policies[seed][group]."""
    if not seeds:
        return []
    per_group = [method.fit(dataset.rows(mask & dataset.is_train), seeds) for mask in groups]
    return [list(policies) for policies in zip(*per_group, strict=True)]


def decide_groups(
    dataset: Dataset, groups: Sequence[Mask], policies: Sequence[Fitted], protocol: str = "frozen"
) -> Decisions:
    """Each group's policy decides on the group's test rows; returned in the order of the test rows.

    Online, a policy that can learns from every label after its answer; the others stay as they are, and are
    given documents without labels. The oracle alone reads them.
    """
    test = dataset.test
    rounds = np.zeros((len(test), len(test.models)), dtype=np.int64)
    predictions = np.full(len(test), -1, dtype=np.int64)
    probability = np.full(len(test), np.nan)
    for mask, policy in zip(groups, policies, strict=True):
        rows = mask[~dataset.is_train]
        decided = _decide(policy, test.rows(rows), protocol)
        rounds[rows] = decided.pools if decided.rounds is None else decided.rounds
        predictions[rows] = decided.predictions
        probability[rows] = np.nan if decided.probability is None else decided.probability
    return Decisions(rounds > 0, predictions, rounds, probability)


def _decide(policy: Fitted, documents: Dataset, protocol: str) -> Decisions:
    if protocol == "online" and isinstance(policy, OnlineLearner):
        return policy.decide_online(documents)
    return decide(policy, documents if isinstance(policy, Oracle) else documents.unlabelled())


def _pools_of_its_size(warehouse: Warehouse, runs: Sequence[str]) -> list[str]:
    """The constant pools of as many models as these runs ask on average."""
    size = round(fmean(row.mean_pool_size for row in stored(warehouse, runs) if row.task == "*"))
    return [f"{name}:{max(size, 1)}" for name in named("constant_pool")]

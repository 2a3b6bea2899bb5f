"""Replays a policy on stored answers under a scenario, beside the same policy as it was evaluated."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlfocal.base import options
from rlfocal.base.errors import InputError
from rlfocal.base.request import Progress, checked
from rlfocal.data.dataset import HIDDEN_TASK, Dataset
from rlfocal.data.policy import FailingModels, Fitted
from rlfocal.evaluation import EvaluationRequest
from rlfocal.evaluation.candidates import make_candidate
from rlfocal.evaluation.confidence import Probabilities
from rlfocal.evaluation.fitting import decide_groups, fit_groups, fitting_lock, hold_to_budget
from rlfocal.evaluation.planning import Candidate, Run, Setup, as_of, read_dataset
from rlfocal.evaluation.promising import count_stored_above, stored_promises
from rlfocal.evaluation.storing import Evaluation, Result, read_runs, store
from rlfocal.methods import check_methods, entry_of
from rlfocal.scenarios.scenario import Scenario
from rlfocal.statistics.intervals import Difference, paired_difference
from rlfocal.statistics.selective import active_thresholds
from warehouse import Warehouse

if TYPE_CHECKING:
    from rlfocal.methods.learning.agents import TrainedAgents

REPLAY = "replay"
"""The study of replayed runs. Such runs are on no leaderboard."""
REVISION = "1"
"""The revision of replays. Raise it when policies would be replayed differently than before."""


class ReplayedPromise(NamedTuple):
    """A promise of the policy, as evaluated and under the scenario."""

    target: float
    coverage: tuple[float, float]
    """The share of documents whose answer reaches the threshold, without and with the scenario."""
    error: tuple[float | None, float | None]
    """The share of wrong answers among these, without and with the scenario; None if there are no answers."""


@dataclass(frozen=True)
class Replay:
    """A policy under a scenario, beside the same policy as evaluated, on all test documents.

    Both runs are stored with their decisions; if nothing differs, they are one run.
    """

    conditions: dict[str, Any]
    """The changes of the scenario, as `evaluations.settings` holds them; empty if nothing differs."""
    before: Evaluation
    after: Evaluation
    difference: Difference
    """The accuracy under the scenario minus that without it, paired by document."""
    right_to_wrong: int
    """The number of right answers that became wrong; `wrong_to_right` counts the reverse."""
    wrong_to_right: int
    wrong_to_other: int
    """The number of wrong answers that became another wrong answer, or none."""
    tasks: dict[str, tuple[float, float]]
    """For each task whose accuracy changed, both accuracies; the largest difference comes first."""
    promises: tuple[ReplayedPromise, ...] = ()
    """The promises of the policy that have a threshold; empty for a policy that was fitted anew."""


@checked
def replay(
    warehouse: Warehouse,
    policy: options.Name,
    benchmark: options.Benchmark,
    *,
    scenario: options.Scenario = None,
    prices: options.PricesFile = None,
    models: options.Models = None,
    down: options.Down = None,
    swap: options.Swap = None,
    budget: options.OneBudget = None,
    snapshot: options.Snapshot = None,
    seed: options.Seed = 0,
    on_progress: Progress | None = None,
) -> Replay:
    """Replays a policy on the test documents under a scenario, beside the same policy without it.

    For example `replay(warehouse, "seed-0.safetensors", "mmlu", down=["phi"])`, or `replay(warehouse,
    "rl_focal", "mmlu", scenario="labels=100")`. `policy` is a checkpoint or a method, which is fitted as
    `evaluate` fits it. `rlfocal replay --help` describes the parameters. The decisions of a scenario are
    stored once. Raises InputError, before any work, for an impossible scenario, such as one with an unknown
    model.
    """
    given = {"down": tuple(down or ()), "only": tuple(models or ()), "swap": tuple(swap or ())}
    changes = Scenario.parse(scenario or "", **given, prices=prices)
    agents = _load(policy)
    if agents is not None and changes.refits:
        raise InputError(
            f"{policy} is a checkpoint, but --scenario {scenario} trains agents anew; "
            f"name the method, {agents.method}"
        )
    with as_of(warehouse, snapshot) as then:
        dataset = _read(then, policy, agents, benchmark)
        trained, answers, failing, differences = changes.apply(then, dataset)
    seeds = 1 + (seed if agents is None else agents.seed)
    request = EvaluationRequest(
        benchmark, seeds=seeds, budgets=budget and [budget], snapshot=snapshot, on_progress=on_progress
    )
    fit = usual = _Fit.make(Setup(warehouse, dataset, request), policy, agents)
    if changes.refits:
        named = [f"{policy.partition(':')[0]}.{text}" for text in changes.settings]
        fit = _Fit.make(Setup(warehouse, trained, replace(request, settings=named or None)), policy, None)
    before = replace(usual.run, study=REPLAY)
    after = _identify_run(fit.run, before, differences, answers)
    if "prices" in differences and before.budget and before.budget.unit == "cents":
        rows, priced = fit.rows, answers
        fit = replace(fit, rows=replace(rows, prices=priced.prices, token_costs=priced.token_costs))
    there = {row.run_id for row in read_runs(warehouse, [before.run_id, after.run_id])}
    if before.run_id not in there:
        _decide(usual, before, dataset, None)
    if after.run_id not in there | {before.run_id}:
        _decide(fit, after, answers, failing)
    replayed = _compare_runs(warehouse, before, after, differences)
    if changes.refits:  # other fits would promise something else
        return replayed
    thresholds = (
        _thresholds(warehouse, usual.run.run_id) if agents is None else active_thresholds(Path(policy))
    )
    promises = tuple(_replay_promise(warehouse, before, after, *item) for item in thresholds.items())
    return replace(replayed, promises=promises)


@dataclass(frozen=True)
class _Fit:
    """A policy with the data that it is fitted to, which is fitted when it first decides."""

    setup: Setup
    candidate: Candidate
    rows: Dataset
    """The documents of `setup`, at the prices by which the policy is held to a budget."""

    @classmethod
    def make(cls, setup: Setup, policy: str, agents: TrainedAgents | None) -> _Fit:
        """The fit of a policy; raises InputError for a method that the data or the budget do not admit."""
        if agents is None:
            check_methods([policy], setup.dataset)
        candidate = make_candidate(setup, policy) if agents is None else _candidate(agents, Path(policy))
        if setup.budgets and not candidate.has_budgets:
            raise InputError(
                f"--budget {setup.budgets[0]}: {candidate.name} cannot be held to a budget; leave it out"
            )
        return cls(setup, candidate, setup.dataset)

    @cached_property
    def run(self) -> Run:
        """The run of the requested seed and budget."""
        return self.candidate.runs(self.setup)[-1]

    @cached_property
    def policies(self) -> list[Fitted]:
        """The fitted policies of all groups. Raises InputError if one cannot keep to the budget."""
        setup, candidate, budget = self.setup, self.candidate, self.run.budget
        with fitting_lock(setup, candidate.name):
            [policies] = fit_groups(
                candidate.method, self.rows, setup.groups, [self.run.seed or 0], tasks=candidate.reads_task
            )
        held = hold_to_budget(budget, policies)
        if held is None:
            is_unknown = budget is not None and budget.unit == "cents" and np.isnan(self.rows.prices).any()
            fix = "`rlfocal import prices` sets unknown prices" if is_unknown else "give a larger one"
            raise InputError(f"--budget {budget}: {candidate.name} cannot keep to it; {fix}")
        return held

    @cached_property
    def probabilities(self) -> Probabilities:
        """The probabilities of the policy's answers, if the policy itself gives none."""
        setup, candidate = self.setup, self.candidate
        return Probabilities(
            candidate.method, setup.dataset, setup.groups, (self.run.budget,), tasks=candidate.reads_task
        )


def _identify_run(run: Run, before: Run, differences: Mapping[str, Any], answers: Dataset) -> Run:
    """The identity of the run under the scenario; `before` if nothing differs."""
    if not differences:
        return before
    about = {**json.loads(run.settings), **differences, "as_evaluated": before.run_id}
    return replace(
        run,
        study=REPLAY,
        recipes=(*run.recipes, REVISION),
        settings=json.dumps(about, sort_keys=True),
        data=answers.fingerprint() if differences.keys() & {"swap", "missing"} else run.data,
        prices=tuple(answers.mean_costs.tolist()),
    )


def _thresholds(warehouse: Warehouse, run_id: str) -> dict[float, float]:
    """For each target error, the threshold that was promised of a run."""
    rows = stored_promises(warehouse, [run_id])
    return {promise.target: promise.threshold for promise in rows if promise.threshold is not None}


def _replay_promise(
    warehouse: Warehouse, before: Run, after: Run, target: float, threshold: float
) -> ReplayedPromise:
    counted = [count_stored_above(warehouse, run.benchmark, run.run_id, threshold) for run in (before, after)]
    coverage, error = zip(
        *((answered / n, wrong / answered if answered else None) for n, answered, wrong in counted),
        strict=True,
    )
    return ReplayedPromise(target, coverage, error)


def _load(policy: str) -> TrainedAgents | None:
    """The agents of a checkpoint; None for the name of a method."""
    if not policy.endswith(".safetensors") and not Path(policy).is_file():
        if "/" in policy:  # no method's name
            raise InputError(f"{policy} is no checkpoint; name a .safetensors file of `rlfocal train`")
        entry_of(policy)
        return None
    from rlfocal.methods.trained import load_checkpoint  # imports torch

    return load_checkpoint(Path(policy))


def _read(warehouse: Warehouse, policy: str, agents: TrainedAgents | None, benchmark: str) -> Dataset:
    """The benchmark's answers of the policy's pool. Raises InputError if a model of agents lacks answers."""
    if agents is None:
        return read_dataset(warehouse, benchmark, None)
    try:
        dataset = read_dataset(warehouse, benchmark, agents.models)
        agents.check(dataset)
    except InputError as error:
        raise InputError(f"{policy} needs a benchmark that its models answered: {error}") from error
    return dataset


@dataclass(frozen=True)
class _LoadedMethod:
    """A checkpoint's agents as a method, whose fit returns them."""

    agents: TrainedAgents
    seeded = True

    def recipe(self, n_train: int) -> str:
        return ""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Fitted]:
        return [replace(self.agents, prices=tuple(train.mean_costs.tolist()))]


def _candidate(agents: TrainedAgents, path: Path) -> Candidate:
    """A checkpoint as a candidate for evaluation, identified by its file's digest."""
    settings = {"checkpoint": sha256(path.read_bytes()).hexdigest()[:16]}
    reads_task = getattr(agents, "tasks", ()) not in ((), (HIDDEN_TASK,))
    has_budgets = entry_of(agents.method).has_budgets
    return Candidate(
        agents.method,
        _LoadedMethod(agents),
        settings=settings,
        has_budgets=has_budgets,
        reads_task=reads_task,
    )


def _decide(fit: _Fit, run: Run, answers: Dataset, failing: FailingModels | None) -> None:
    """Decides on the test documents of `answers`, and stores the decisions as `run`."""
    fit.setup.warehouse.check_writable()  # before any fitting, not after
    policies, tasks = fit.policies, fit.candidate.reads_task
    started = time.perf_counter()
    decisions = decide_groups(answers, fit.setup.groups, policies, tasks=tasks, failing=failing)
    decisions = fit.probabilities.add_probabilities(decisions, policies, run.seed or 0, run.budget, answers)
    store(fit.setup.warehouse, answers, [Result(run, decisions, [], time.perf_counter() - started)])


def _compare_runs(warehouse: Warehouse, before: Run, after: Run, differences: dict[str, Any]) -> Replay:
    """The comparison of two stored runs, document by document."""
    rows_before, rows_after = (
        {row.task: row for row in read_runs(warehouse, [run.run_id])} for run in (before, after)
    )
    each = warehouse.columns(
        "SELECT b.correct AS was_right, a.correct AS is_right, (a.prediction, a.answer) IS DISTINCT FROM "
        "(b.prediction, b.answer) AS is_other FROM decisions AS b JOIN decisions AS a "
        "USING (benchmark, task, doc_id) WHERE benchmark = ? AND b.run_id = ? AND a.run_id = ? "
        "ORDER BY task, doc_id",
        [before.benchmark, before.run_id, after.run_id],
    )
    was, now, is_other = (each[name].astype(np.bool_) for name in ("was_right", "is_right", "is_other"))
    moved = {
        task: (row.accuracy, rows_after[task].accuracy)
        for task, row in rows_before.items()
        if task != "*" and row.accuracy != rows_after[task].accuracy
    }
    return Replay(
        conditions=differences,
        before=rows_before["*"],
        after=rows_after["*"],
        difference=paired_difference(now[None].astype(np.float64), was[None].astype(np.float64)),
        right_to_wrong=int((was & ~now).sum()),
        wrong_to_right=int((~was & now).sum()),
        wrong_to_other=int((~was & ~now & is_other).sum()),
        tasks=dict(sorted(moved.items(), key=lambda item: -abs(item[1][1] - item[1][0]))),
    )

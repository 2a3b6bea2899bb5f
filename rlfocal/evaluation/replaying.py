"""Replays a policy on stored answers, as if models failed, were swapped or cost otherwise."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlfocal.base import options
from rlfocal.base.errors import InputError
from rlfocal.base.request import Progress, checked
from rlfocal.data.dataset import HIDDEN_TASK, Dataset
from rlfocal.data.loading import load_dataset, with_prices
from rlfocal.data.policy import FailingModels, Fitted, down_among, parse_swaps
from rlfocal.evaluation import EvaluationRequest
from rlfocal.evaluation.candidates import make_candidate
from rlfocal.evaluation.confidence import Probabilities
from rlfocal.evaluation.fitting import decide_groups, fit_groups, fitting_lock, within
from rlfocal.evaluation.planning import Candidate, Run, Setup, as_of, read_dataset
from rlfocal.evaluation.promising import count_above, stored_promises
from rlfocal.evaluation.storing import Evaluation, Result, store, stored
from rlfocal.exchange.imports.prices import read_prices
from rlfocal.methods import check_methods, entry_of
from rlfocal.statistics.intervals import Difference, paired_difference
from rlfocal.statistics.selective import promised
from warehouse import Warehouse

if TYPE_CHECKING:
    from rlfocal.methods.learning.agents import TrainedAgents

REPLAY = "replay"
"""The study of replayed runs: they are on no leaderboard."""
REVISION = "1"
"""Raised when policies would be replayed otherwise than before."""


class ReplayedPromise(NamedTuple):
    """A promise of the policy as evaluated, without and under the conditions."""

    target: float
    coverage: tuple[float, float]
    """The share of documents answered at or above the threshold."""
    error: tuple[float | None, float | None]
    """The share of wrong ones among them; None without any."""


@dataclass(frozen=True)
class Replay:
    """A policy under conditions, beside the same policy as evaluated, on all test documents.

    Both runs are stored with their decisions; if nothing differs, they are one.
    """

    conditions: dict[str, Any]
    before: Evaluation
    after: Evaluation
    difference: Difference
    """In accuracy, paired by document."""
    right_to_wrong: int
    """How many answers changed so; so the next two."""
    wrong_to_right: int
    wrong_to_other: int
    """To another wrong answer, or none."""
    tasks: dict[str, tuple[float, float]]
    """The accuracies of each task where they differ, the largest difference first."""
    promises: tuple[ReplayedPromise, ...] = ()
    """Those that were made of the policy, and gave a threshold."""


@checked
def replay(
    warehouse: Warehouse,
    policy: options.Name,
    benchmark: options.Benchmark,
    *,
    prices: options.PricesFile = None,
    models: options.Models = None,
    down: options.Down = None,
    swap: options.Swap = None,
    budget: options.OneBudget = None,
    snapshot: options.Snapshot = None,
    seed: options.Seed = 0,
    on_progress: Progress | None = None,
) -> Replay:
    """What a policy decides on the test documents under conditions, beside what it decides without them.

    For example `replay(warehouse, "seed-0.safetensors", "mmlu", down=["phi"])`. `policy` is a checkpoint or a
    method, which is fitted as `evaluate` fits it, to train documents as they are. `rlfocal replay --help`
    describes the parameters. The same conditions give the same decisions, stored once.
    Raises InputError, before any work, for models, swaps, prices or a budget that cannot be.
    """
    agents = _load(policy)
    with as_of(warehouse, snapshot) as then:
        dataset = _read(then, policy, agents, benchmark)
        asked = _conditions(then, dataset, prices, models, down or (), swap or ())
    seeds = 1 + (seed if agents is None else agents.seed)
    request = EvaluationRequest(
        benchmark, seeds=seeds, budgets=budget and [budget], snapshot=snapshot, on_progress=on_progress
    )
    setup = Setup(warehouse, dataset, request)
    if agents is None:
        check_methods([policy], dataset)
        candidate = make_candidate(setup, policy)
    else:
        candidate = _candidate(agents, Path(policy))
    if setup.budgets and not candidate.has_budgets:
        raise InputError(f"--budget {budget}: {candidate.name} cannot be held to a budget; leave it out")
    evaluated = candidate.runs(setup)[-1]  # of the seed and budget asked for
    before = replace(evaluated, study=REPLAY)
    after = asked.of(before)
    runs = {run.run_id: run for run in (before, after)}
    there = {row.run_id for row in stored(warehouse, list(runs))}
    if missing := [run for run_id, run in runs.items() if run_id not in there]:
        _decide(setup, candidate, missing, asked)
    thresholds = _thresholds(warehouse, evaluated.run_id) if agents is None else promised(Path(policy))
    promises = tuple(_promised(warehouse, before, after, *item) for item in thresholds.items())
    return replace(_compared(warehouse, before, after, asked.told), promises=promises)


def _thresholds(warehouse: Warehouse, run_id: str) -> dict[float, float]:
    """What was promised of a run: thresholds by target."""
    rows = stored_promises(warehouse, [run_id])
    return {promise.target: promise.threshold for promise in rows if promise.threshold is not None}


def _promised(
    warehouse: Warehouse, before: Run, after: Run, target: float, threshold: float
) -> ReplayedPromise:
    counted = [count_above(warehouse, run.benchmark, run.run_id, threshold) for run in (before, after)]
    coverage, error = zip(
        *((answered / n, wrong / answered if answered else None) for n, answered, wrong in counted),
        strict=True,
    )
    return ReplayedPromise(target, coverage, error)


class _Conditions(NamedTuple):
    """What differs from the stored answers."""

    told: dict[str, Any]
    """In words, as `evaluations.settings` has them; empty if nothing differs."""
    dataset: Dataset
    """The answers and prices, of which those of test documents count."""
    failing: FailingModels | None

    def of(self, run: Run) -> Run:
        """The run under these conditions."""
        if not self.told:
            return run
        told = {**json.loads(run.settings), **self.told, "as_evaluated": run.run_id}
        data = self.dataset.fingerprint() if "swap" in self.told else run.data
        costs = tuple(self.dataset.mean_costs.tolist())
        settings = json.dumps(told, sort_keys=True)
        return replace(run, recipes=(*run.recipes, REVISION), settings=settings, data=data, prices=costs)


def _conditions(
    warehouse: Warehouse,
    dataset: Dataset,
    prices: str | None,
    models: Sequence[str] | None,
    down: Sequence[str],
    swap: Sequence[str],
) -> _Conditions:
    """Raises InputError for those that cannot be."""
    names = dataset.models
    mask, swaps = down_among(names, down, only=models), parse_swaps(names, swap)
    told: dict[str, Any] = {"swap": swaps} if swaps else {}
    costs, failing = dataset, None
    if prices is not None:
        given = read_prices(prices)
        if missing := [name for name in names if name not in given]:
            raise InputError(f"--prices {prices} has no price of {', '.join(missing)}; add one")
        costs = with_prices(warehouse, dataset, given)
        if not np.array_equal(costs.costs, dataset.costs, equal_nan=True):
            told["prices"] = dict(zip(names, costs.mean_costs.tolist(), strict=True))
    if mask.any():
        told["down"] = [name for name, is_down in zip(names, mask, strict=True) if is_down]
        failing = FailingModels(mask, int(np.where(mask, -1, dataset.train.correct.sum(axis=0)).argmax()))
    if swaps:
        dataset = load_dataset(warehouse, dataset.benchmark, names, swaps)
    return _Conditions(told, replace(dataset, prices=costs.prices, token_costs=costs.token_costs), failing)


def _load(policy: str) -> TrainedAgents | None:
    """The agents of a checkpoint; None for the name of a method."""
    if not policy.endswith(".safetensors") and not Path(policy).is_file():
        if "/" in policy:  # no method's name
            raise InputError(f"{policy} is no checkpoint; name a .safetensors file of `rlfocal train`")
        entry_of(policy)
        return None
    from rlfocal.methods.variants import load_checkpoint  # imports torch

    return load_checkpoint(Path(policy))


def _read(warehouse: Warehouse, policy: str, agents: TrainedAgents | None, benchmark: str) -> Dataset:
    """The rows of the policy's pool. Raises InputError for agents of other models."""
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
    """A checkpoint as a method that is fitted already."""

    agents: TrainedAgents
    seeded = True

    def recipe(self, n_train: int) -> str:
        return ""

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[Fitted]:
        return [replace(self.agents, prices=tuple(train.mean_costs.tolist()))]


def _candidate(agents: TrainedAgents, path: Path) -> Candidate:
    """A checkpoint to be evaluated, which its file's digest identifies."""
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


def _decide(setup: Setup, candidate: Candidate, runs: Sequence[Run], asked: _Conditions) -> None:
    """Fits, decides and stores runs. Raises InputError if the policy cannot keep to the budget."""
    setup.warehouse.check_writable()  # before any fitting, not after
    rows, tasks = setup.dataset, candidate.reads_task

    def fit(rows: Dataset, run: Run) -> list[Fitted]:
        with fitting_lock(setup, candidate.name):
            [policies] = fit_groups(candidate.method, rows, setup.groups, [run.seed or 0], tasks=tasks)
        held = within(run.budget, policies)
        if held is None:
            is_unknown = run.budget is not None and run.budget.unit == "cents" and np.isnan(rows.prices).any()
            fix = "`rlfocal import prices` sets unknown prices" if is_unknown else "give a larger one"
            raise InputError(f"--budget {run.budget}: {run.name} cannot keep to it; {fix}")
        return held

    policies = fit(rows, runs[0])
    probabilities = Probabilities(candidate.method, rows, setup.groups, (runs[0].budget,), tasks=tasks)
    for run in runs:
        is_asked = "as_evaluated" in run.settings
        if is_asked and "prices" in asked.told and run.budget and run.budget.unit == "cents":
            costs = replace(rows, prices=asked.dataset.prices, token_costs=asked.dataset.token_costs)
            policies = fit(costs, run)
        started = time.perf_counter()
        data, failing = (asked.dataset, asked.failing) if is_asked else (rows, None)
        decisions = decide_groups(data, setup.groups, policies, tasks=tasks, failing=failing)
        decisions = probabilities.complete(decisions, policies, run.seed or 0, run.budget, data)
        store(setup.warehouse, data, [Result(run, decisions, [], time.perf_counter() - started)])


def _compared(warehouse: Warehouse, before: Run, after: Run, told: dict[str, Any]) -> Replay:
    """Two stored runs, question by question."""
    rows_before, rows_after = (
        {row.task: row for row in stored(warehouse, [run.run_id])} for run in (before, after)
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
        conditions=told,
        before=rows_before["*"],
        after=rows_after["*"],
        difference=paired_difference(now[None].astype(np.float64), was[None].astype(np.float64)),
        right_to_wrong=int((was & ~now).sum()),
        wrong_to_right=int((~was & now).sum()),
        wrong_to_other=int((~was & ~now & is_other).sum()),
        tasks=dict(sorted(moved.items(), key=lambda item: -abs(item[1][1] - item[1][0]))),
    )

"""Stores and reads the results of runs, in the tables `evaluations`, `decisions` and `training_history`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rlfocal.base.arrays import Bools, Ints
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Fitted, find_fallback
from rlfocal.evaluation.planning import GIVEN_SPLIT, Run, Setup
from rlfocal.methods import Decisions, TrainedPolicy
from warehouse import Warehouse, writing

MAX_UNSTORED_SECONDS = 1.0
"""The seconds of fitting and deciding after which results no longer wait for the next method."""


@dataclass(frozen=True)
class Evaluation:
    """One row of `evaluations`; task `*` pools all documents of the benchmark."""

    run_id: str
    benchmark: str
    task: str
    method: str
    study: str | None
    """The study that the run is part of; None for runs on the leaderboard."""
    settings: dict[str, Any]
    """The settings that differ from the method's defaults; under TRIALS_KEY, how many trials chose them, if
    any did."""
    protocol: str
    seed: int | None
    per: str
    split: str
    n: int
    accuracy: float
    mean_pool_size: float
    cost: float | None
    """Cents per 1,000 queries; None if a price is unknown."""
    seconds: float
    """The seconds that this seed's fit and decisions took; few if a checkpoint was loaded."""
    snapshot: int
    models: list[str]
    data: str
    """The fingerprint of the data: equal for runs on equal rows."""
    created_at: datetime
    """The time when the run was stored, or last requested again after a run on other rows."""
    budget: str | None = None
    """The budget that the method was held to; None without a budget."""
    mean_rounds: float | None = None
    """The mean number of rounds of calls that a document waited for."""
    deciding: list[str] | None = None
    """The policy that decides in each fit of a trained method; None for other methods and with a budget."""
    n_pools: int | None = None
    """The number of different pools that the run asked; None for runs of earlier versions."""
    commonest_pool: float | None = None
    """The share of documents on which the run asked its most frequent pool."""


def read_runs(warehouse: Warehouse, run_ids: Sequence[str]) -> tuple[Evaluation, ...]:
    """The rows of `evaluations` of these runs, in this order; of each run, the pooled row comes first."""
    names = [column.name for column in fields(Evaluation)]
    table = warehouse.query(
        f"SELECT {', '.join(names)} FROM evaluations WHERE list_contains($1, run_id) "
        "ORDER BY list_position($1, run_id), task <> '*', task",
        [list(run_ids)],
    )
    return tuple(Evaluation(**row | {"settings": json.loads(row["settings"])}) for row in table.to_pylist())


def stored_runs(setup: Setup) -> set[str]:
    """The ids of runs on these rows that are stored, or that are ruled out by their budget."""
    about = [setup.dataset.benchmark, setup.dataset.fingerprint()]
    tables = ("evaluations", "ruled_out") if setup.budgets else ("evaluations",)
    asked = "SELECT DISTINCT run_id FROM {} WHERE benchmark = ? AND data = ?"  # a pair skips no file
    return {run_id for table in tables for (run_id,) in setup.warehouse.rows(asked.format(table), about)}


def stored_split(split: str) -> str:
    """The value of `evaluations.split` for a split."""
    return "test" if split == GIVEN_SPLIT else split


def rule_out(warehouse: Warehouse, run: Run) -> None:
    """Stores that the policies of a run cannot keep to its budget, so that it is not tried again."""
    row = {"run_id": run.run_id, "benchmark": run.benchmark, "method": run.name, "budget": str(run.budget)}
    with warehouse.transaction(f"budgets of {run.benchmark} {run.name}"):
        warehouse.append("ruled_out", pa.Table.from_pylist([row | {"data": run.data}]))


class Result(NamedTuple):
    """The decisions of one run, and what is stored with them."""

    run: Run
    decisions: Decisions
    curves: Sequence[dict[str, object]]
    """Rows of `training_history`, without the columns that the run gives."""
    seconds: float
    deciding_policies: Sequence[tuple[Bools, str]] = ()
    """For each fit, the test documents (T,) that it decided, and the policy that decides in it."""


@dataclass
class ResultBatch:
    """Collects the results of quick methods, and stores them together, as each transaction takes time."""

    setup: Setup
    stored: set[str] = field(default_factory=set)
    """The ids of the runs that this batch stored; another process may have stored others first."""
    waiting: list[Result] = field(default_factory=list)

    def add(self, results: Sequence[Result]) -> None:
        """Takes a method's results; stores all that wait if they took `MAX_UNSTORED_SECONDS` or more."""
        self.waiting += results
        if sum(result.seconds for result in self.waiting) >= MAX_UNSTORED_SECONDS:
            self.store()

    def store(self) -> None:
        """Stores the results that wait, unless another process has stored them meanwhile."""
        setup, waiting, self.waiting = self.setup, self.waiting, []
        if not waiting:
            return
        with setup.warehouse.lock(f"store results of {setup.dataset.benchmark}", wait=True):
            held = set() if setup.request.force else stored_runs(setup)
            new = [result for result in waiting if result.run.run_id not in held]
            store(setup.warehouse, setup.dataset, new)
            self.stored |= {result.run.run_id for result in new}


def store(warehouse: Warehouse, dataset: Dataset, results: Sequence[Result]) -> None:
    """Stores the results of runs, in place of the runs' earlier rows, in one transaction."""
    if not results:
        return
    read_at, docs_digest = _describe_snapshot(warehouse, dataset.benchmark, dataset.snapshot)
    about = {"read_at": read_at, "docs_digest": docs_digest}
    evaluations = [
        asdict(row) | {"settings": json.dumps(row.settings, sort_keys=True)} | about
        for result in results
        for row in _make_rows(result, dataset)
    ]
    history = [
        {"run_id": run.run_id, "benchmark": run.benchmark, "method": run.name, "seed": run.seed} | curve
        for run, curves in ((result.run, result.curves) for result in results)
        for curve in curves
    ]
    run_ids = [result.run.run_id for result in results]
    names = ", ".join(dict.fromkeys(result.run.name for result in results))
    with warehouse.transaction(f"evaluate {dataset.benchmark} {names}"):
        if warehouse.rows("SELECT 1 FROM evaluations WHERE list_contains(?, run_id) LIMIT 1", [run_ids]):
            for table in ("evaluations", "decisions", "run_digests", "training_history"):
                warehouse.connection.execute(f"DELETE FROM {table} WHERE list_contains(?, run_id)", [run_ids])
        warehouse.append("evaluations", pa.Table.from_pylist(evaluations))
        decided = [_make_decision_rows(result.run, dataset, result.decisions) for result in results]
        warehouse.append("decisions", pa.concat_tables(decided))
        writing.digest_runs(warehouse.connection, "list_contains(?, run_id)", [run_ids])
        if history:
            warehouse.append("training_history", pa.Table.from_pylist(history))


def renew(setup: Setup, run_ids: Sequence[str]) -> None:
    """Marks requested runs as the newest, if runs on other rows came later or labels were corrected."""
    warehouse, data = setup.warehouse, setup.dataset
    newest = warehouse.rows(
        "SELECT arg_max(data, created_at) FROM evaluations "
        "WHERE (benchmark, protocol, per, split) = (?, ?, ?, ?)",
        [data.benchmark, setup.request.protocol, setup.request.per, stored_split(setup.request.split)],
    )
    stale = warehouse.rows("SELECT 1 FROM runs WHERE list_contains(?, run_id) AND stale", [list(run_ids)])
    if newest != [(data.fingerprint(),)] or stale:
        with warehouse.transaction(f"evaluate {data.benchmark} again"):
            warehouse.connection.execute(
                "UPDATE evaluations SET created_at = now(), read_at = ?, docs_digest = ? "
                "WHERE list_contains(?, run_id)",
                [*_describe_snapshot(warehouse, data.benchmark, data.snapshot), list(run_ids)],
            )


@lru_cache(maxsize=1)  # an evaluation asks for each of its methods
def _describe_snapshot(
    warehouse: Warehouse, benchmark: str, snapshot: int
) -> tuple[datetime | None, str | None]:
    """The time of a snapshot, and a digest of the benchmark's documents in it; None for a snapshot that has
    expired."""
    asked = "SELECT snapshot_time FROM warehouse.snapshots() WHERE snapshot_id = ?"
    for (read_at,) in warehouse.rows(asked, [snapshot]):
        [(digest,)] = warehouse.rows(
            "SELECT md5(string_agg(digest, ',' ORDER BY task)) "
            f"FROM warehouse.doc_digests AT (VERSION => {snapshot:d}) WHERE benchmark = ?",
            [benchmark],
        )
        return read_at, digest
    return None, None


def make_result(
    setup: Setup, run: Run, policies: Sequence[Fitted], decisions: Decisions, seconds: float
) -> Result:
    """The result of a run by these policies, one per group of rows, in `seconds` of fitting and deciding.

    Learning curves hold the episodes of trained policies, each with the task of its fit, then the updates on
    test rows, numbered over all groups. Fits are the same within a budget, which therefore repeats neither
    their episodes nor which policy decides.
    """
    curves: list[dict[str, object]] = []
    deciding: list[tuple[Bools, str]] = []
    for mask, policy in zip(setup.groups, policies, strict=True) if run.budget is None else ():
        task = "*" if mask.all() else str(setup.dataset.tasks[mask][0])
        if isinstance(policy, TrainedPolicy):
            curves += [{**episode._asdict(), "task": task} for episode in policy.history]
        if (name := find_fallback(policy)) is not None:
            deciding.append((mask[~setup.dataset.is_train], name))
    updates = enumerate(decisions.updates)
    curves += [{**update._asdict(), "episode": episode, "task": "*"} for episode, update in updates]
    return Result(run, decisions, curves, seconds, deciding)


def _make_rows(result: Result, dataset: Dataset) -> list[Evaluation]:
    """The run's rows of `evaluations`: of all documents pooled, then of each task."""
    test, run, decisions = dataset.test, result.run, result.decisions
    correct = test.is_right(decisions.predictions)
    # A price that is unknown makes the cost unknown only where that model is asked.
    cost = np.where(decisions.pools, test.costs, 0.0).sum(axis=1)
    _, pool = np.unique(decisions.pools, axis=0, return_inverse=True)
    sizes, rounds = decisions.pools.sum(axis=1), _read_rounds(decisions).max(axis=1, initial=0)
    groups = [("*", np.ones(len(test), dtype=np.bool_))]
    groups += [(task, test.tasks == task) for task in dict.fromkeys(test.tasks.tolist())]
    return [
        Evaluation(
            run_id=run.run_id,
            benchmark=run.benchmark,
            task=task,
            method=run.name,
            study=run.study,
            settings={**json.loads(run.settings), **run.chosen},
            protocol=run.protocol,
            seed=run.seed,
            per=run.per,
            split=stored_split(run.split),
            n=int(mask.sum()),
            accuracy=float(correct[mask].mean()),
            mean_pool_size=float(sizes[mask].mean()),
            cost=None if np.isnan(cost[mask]).any() else float(cost[mask].mean()),
            seconds=result.seconds,
            snapshot=dataset.snapshot,
            models=list(dataset.models),
            data=run.data,
            created_at=datetime.now(UTC),
            budget=None if run.budget is None else str(run.budget),
            mean_rounds=float(rounds[mask].mean()),
            deciding=[name for of, name in result.deciding_policies if (of & mask).any()] or None,
            n_pools=len(set(pool[mask].tolist())),
            commonest_pool=float(np.bincount(pool[mask]).max() / mask.sum()),
        )
        for task, mask in groups
    ]


def _make_decision_rows(run: Run, dataset: Dataset, decisions: Decisions) -> pa.Table:
    """The run's rows of `decisions`."""
    test = dataset.test
    correct = test.is_right(decisions.predictions)
    asked, models = np.nonzero(decisions.pools)
    offsets = np.searchsorted(asked, np.arange(len(test) + 1))
    names = pa.array(dataset.models).take(pa.array(models))
    rounds = pa.array(_read_rounds(decisions)[asked, models], pa.int32())
    pool_offsets = pa.array(offsets, pa.int32())
    probability = np.full(len(test), np.nan) if decisions.probability is None else decisions.probability
    slots_said = [slot if slot >= 0 else None for slot in decisions.predictions.tolist()]
    answers = [
        None if slot is None else slots[slot] for slot, slots in zip(slots_said, test.slots, strict=False)
    ]
    return pa.table(
        {
            "run_id": [run.run_id] * len(test),
            "benchmark": [run.benchmark] * len(test),
            "task": test.tasks.tolist(),
            "doc_id": test.doc_ids,
            "pool": pa.ListArray.from_arrays(pool_offsets, names),
            "prediction": pa.array([None] * len(test) if test.slots else slots_said, pa.int32()),
            "answer": pa.array(answers if test.slots else [None] * len(test), pa.string()),
            "correct": correct,
            "reward": np.where(correct, 1.0, -1.0),
            "rounds": pa.ListArray.from_arrays(
                pool_offsets, pa.StructArray.from_arrays([names, rounds], ["model", "round"])
            ),
            "probability": pa.array(probability, pa.float64(), from_pandas=True),
        }
    )


def _read_rounds(decisions: Decisions) -> Ints:
    """(T, N) the round of calls, from 1, in which each model was asked; 0 where it was not."""
    return decisions.pools.astype(np.int64) if decisions.rounds is None else decisions.rounds

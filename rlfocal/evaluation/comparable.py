"""Decides which evaluated runs share a board: only runs on the same data."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, NamedTuple

from rlfocal.base.wording import number_or_none
from rlfocal.evaluation.planning import TRIALS_KEY
from rlfocal.evaluation.storing import Evaluation
from rlfocal.methods import entries, find_methods, reads_task
from warehouse import Warehouse
from warehouse.scripts import script

SINGLE_PREFIX = "single:"
GIVEN_ROWS = "test"
"""The value of `evaluations.split` for the rows that are marked as test."""
_created_at = attrgetter("created_at")


class BoardKey(NamedTuple):
    """The fields that tell one board from another."""

    benchmark: str
    protocol: str
    per: str
    split: str
    reads_task: bool
    """Whether the board's methods read the tasks' names."""
    trials: int
    """The number of trials in which each method's settings were tuned; 0 without tuning."""
    other_pool: tuple[str, ...]
    """The pool, if it is not the benchmark's widest; else empty."""

    @property
    def without_pool(self) -> BoardKey:
        """The same key without its pool."""
        return self._replace(other_pool=())


@dataclass(frozen=True, kw_only=True)
class EvaluatedRun(Evaluation):
    """The figures over all documents of one run: a method that was evaluated with one seed."""

    tasks: tuple[float, ...]
    """The accuracy on each task."""
    trials: int
    """The number of trials in which the settings were chosen; 0 if they were given."""
    is_current: bool
    """Whether no newer run has replaced this one."""
    is_stale: bool
    """Whether labels that the run read were corrected later."""

    def board(self, widest_pools: Mapping[str, Sequence[str]]) -> BoardKey:
        """The key of the run's board. `widest_pools`: for each benchmark, its widest pool."""
        is_widest = self.models == widest_pools.get(self.benchmark, self.models)
        other_pool = () if is_widest else tuple(self.models)
        kind = self.benchmark, self.protocol, self.per, self.split
        return BoardKey(*kind, reads_task(self.method), self.trials, other_pool)


@dataclass(frozen=True)
class ComparableRuns:
    """The runs of one board."""

    methods: dict[str, list[EvaluatedRun]]
    """For each method, its runs on the data of the board's newest run, in the order of their seeds."""
    excluded_runs: tuple[EvaluatedRun, ...]
    """The newest run of each (method, seed) that was evaluated on other data only."""
    removed_models: tuple[str, ...]
    """Models of the pool whose answers are no longer in the warehouse.

    They were removed, or renamed by a version whose runs did not follow a new name.
    """

    @property
    def models(self) -> tuple[str, ...]:
        """The pool that all methods could choose from. It is part of the data."""
        return tuple(self._first.models)

    @property
    def n(self) -> int:
        """The number of test documents."""
        return self._first.n

    @property
    def run_id(self) -> str:
        """The id of one of the board's runs."""
        return self._first.run_id

    @property
    def snapshot(self) -> int:
        """The number of the newest snapshot that was read."""
        return max(run.snapshot for runs in self.methods.values() for run in runs)

    @property
    def _first(self) -> EvaluatedRun:
        return next(iter(self.methods.values()))[0]


def comparable_runs(
    warehouse: Warehouse, run_ids: Collection[str] | None = None
) -> dict[BoardKey, ComparableRuns]:
    """The runs of every board of `evaluations`, without studies and budgets; `run_ids`: only of their boards.

    A board compares runs with one pool, on the data of its newest run. The widest pool has a benchmark's main
    board. Any other pool has its own board, unless a newer board has all its models. Tuned methods also have
    their own boards, with the methods that have no settings to tune. A board of given runs is on their data.
    It also has the other current runs on these data, except those of the same methods.
    """
    standing = dict(warehouse.rows(script("queries/standing_pools")))
    present: dict[str, set[str]] = defaultdict(set)
    for benchmark, model in warehouse.rows("SELECT DISTINCT benchmark, model FROM extractions"):
        present[benchmark].add(model)
    every = _read_runs(warehouse, run_ids)
    if run_ids is None:
        return {
            key: _group_runs(runs, outgrown, present[key.benchmark])
            for key, (runs, outgrown) in _group_boards(every, standing).items()
        }
    own = [run for run in every if run.run_id in run_ids]
    beside = [run for run in every if run.run_id not in run_ids and run.is_current]
    return {
        key: _group_runs(_add_other_runs(runs, beside, key, standing), (), present[key.benchmark])
        for key, (runs, _) in _group_boards(own, standing).items()
    }


def _add_other_runs(
    given_runs: Sequence[EvaluatedRun],
    other_runs: Sequence[EvaluatedRun],
    key: BoardKey,
    widest_pools: Mapping[str, Sequence[str]],
) -> list[EvaluatedRun]:
    """The given runs of a board, the newest last, after the other runs that belong on the same board."""
    methods = {run.method for run in given_runs}
    data = given_runs[-1].data
    same = (run for run in other_runs if run.data == data and run.method not in methods)
    return [*(run for run in same if _belongs(run, key, widest_pools)), *given_runs]


def _belongs(run: EvaluatedRun, key: BoardKey, widest_pools: Mapping[str, Sequence[str]]) -> bool:
    """Whether a run belongs on a board, to which references and methods without settings are added."""
    own = run.board(widest_pools)
    reads = key.reads_task if run.method in find_methods("reference") else own.reads_task
    trials = own.trials if _has_space(run.method) else key.trials
    is_alike = own._replace(reads_task=reads, trials=trials) == key
    return is_alike and (own.reads_task or not key.reads_task)


def _group_boards(
    all_runs: Sequence[EvaluatedRun], widest_pools: Mapping[str, Sequence[str]]
) -> dict[BoardKey, tuple[list[EvaluatedRun], list[EvaluatedRun]]]:
    """For each board, its runs, and the runs with smaller pools that the board replaces."""
    boards: dict[BoardKey, list[EvaluatedRun]] = defaultdict(list)
    for run in all_runs:
        boards[run.board(widest_pools)].append(run)
    # A reference stands beside those that do not read tasks, too.
    for key in [key for key in boards if key.reads_task]:
        beside = [run for run in boards[key] if run.method in find_methods("reference")]
        if beside and (plain := key._replace(reads_task=False)) in boards:
            boards[plain] = sorted([*boards[plain], *beside], key=_created_at)
            if len(beside) == len(boards[key]):
                del boards[key]
    outgrown = {key for key in boards if _is_outgrown(key, boards)}
    return {
        key: (
            _add_fixed_methods(key, boards),
            [run for old in outgrown if old.without_pool == key.without_pool for run in boards[old]],
        )
        for key, runs in boards.items()
        if any(run.is_current for run in runs) and not _is_part(key, boards) and key not in outgrown
    }


def _is_outgrown(key: BoardKey, boards: Mapping[BoardKey, Sequence[EvaluatedRun]]) -> bool:
    """Whether a newer board of the same kind has all models of this board's pool, and more."""
    last = boards[key][-1]
    newer = [of[-1] for other, of in boards.items() if other.without_pool == key.without_pool]
    return bool(key.other_pool) and any(
        {*last.models} < {*run.models} and run.created_at > last.created_at for run in newer
    )


def _add_fixed_methods(
    key: BoardKey, boards: Mapping[BoardKey, Sequence[EvaluatedRun]]
) -> list[EvaluatedRun]:
    """A board's runs and, if it is tuned, those of methods without settings to tune; the newest last."""
    untuned = boards.get(key._replace(trials=0), []) if key.trials else []
    fixed = [run for run in untuned if not _has_space(run.method)]
    return sorted([*boards[key], *fixed], key=_created_at)


def _is_part(key: BoardKey, boards: Mapping[BoardKey, Sequence[EvaluatedRun]]) -> bool:
    """Whether a board without tuning has only methods that a board with tuning shows, too."""
    has_tuned = any(other.trials and other._replace(trials=0) == key for other in boards)
    return not key.trials and has_tuned and not any(_has_space(run.method) for run in boards[key])


def _has_space(method: str) -> bool:
    """Whether the method declares settings to tune; false for a method that is not registered."""
    entry = entries().get(method.partition(":")[0])
    return entry is not None and bool(entry.space)


def _read_runs(warehouse: Warehouse, run_ids: Collection[str] | None) -> list[EvaluatedRun]:
    """All runs outside studies, the newest last.

    The runs of `run_ids` are among them even if in studies, and count as current even if newer ones exist.
    """
    by_run: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in warehouse.query(script("queries/runs")).to_pylist():
        if row["study"] is None or (run_ids is not None and row["run_id"] in run_ids):
            by_run[row["run_id"]].append(row)
    runs = []
    for rows in by_run.values():
        [pooled] = (row for row in rows if row["task"] == "*")
        settings = json.loads(pooled["settings"] or "{}")
        more = {
            "cost": number_or_none(pooled["cost"]),
            "mean_rounds": number_or_none(pooled["mean_rounds"]),
            "trials": int(settings.pop(TRIALS_KEY, 0)),
            "settings": settings,
            "tasks": tuple(row["accuracy"] for row in rows if row["task"] != "*"),
            "is_current": pooled["is_current"] or (run_ids is not None and pooled["run_id"] in run_ids),
            "is_stale": pooled["stale"],
        }
        runs.append(EvaluatedRun(**{field.name: pooled[field.name] for field in fields(Evaluation)} | more))
    return sorted(runs, key=_created_at)


def _group_runs(
    runs: Sequence[EvaluatedRun], outgrown: Sequence[EvaluatedRun], present: Collection[str]
) -> ComparableRuns:
    current = [run for run in runs if run.is_current]
    newest = current[-1]
    kept = {(run.method, run.seed): run for run in current if run.data == newest.data}
    every = (*outgrown, *runs)
    others = {(run.method, run.seed): run for run in every if (run.method, run.seed) not in kept}
    methods: dict[str, list[EvaluatedRun]] = defaultdict(list)
    for run in sorted(kept.values(), key=lambda run: run.seed or 0):
        methods[run.method].append(run)
    removed_models = tuple(model for model in newest.models if model not in present)
    return ComparableRuns(dict(methods), tuple(others.values()), removed_models)

"""Which evaluated runs share a board: only those that saw the same data."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rlfocal.base.wording import known
from rlfocal.evaluation.planning import TUNED
from rlfocal.methods import entries, reads_task
from warehouse import Warehouse
from warehouse.scripts import script

BoardKey = tuple[str, str, str, str, bool, int]
"""(benchmark, protocol, per, split, whether its methods read the tasks' names, trials by which settings were
tuned, 0 for none)"""
SINGLE = "single:"
GIVEN_ROWS = "test"
"""What `evaluations.split` calls the rows that are marked as test."""


@dataclass(frozen=True)
class Run:
    """One evaluated (method, seed)."""

    run_id: str
    seed: int | None
    accuracy: float
    mean_pool_size: float
    cost: float | None
    mean_rounds: float | None = None
    """None for runs older than this count."""


@dataclass(frozen=True)
class Evaluated:
    """The rows of one run in `evaluations`."""

    pooled: dict[str, Any]
    tasks: tuple[float, ...]
    """Accuracy of each task."""
    is_current: bool
    """Whether no newer run takes its place."""

    @property
    def board(self) -> BoardKey:
        of = self.pooled
        names = of["benchmark"], of["protocol"], of["per"], of["split"]
        return *names, reads_task(self.method), self.trials

    @property
    def settings(self) -> dict[str, Any]:
        """What differs from the method's defaults."""
        return {name: value for name, value in self._stored.items() if name != TUNED}

    @property
    def trials(self) -> int:
        """By how many trials the settings were chosen; 0: not tuned."""
        return int(self._stored.get(TUNED, 0))

    @property
    def _stored(self) -> dict[str, Any]:
        stored: dict[str, Any] = json.loads(self.pooled["settings"] or "{}")
        return stored

    @property
    def method(self) -> str:
        method: str = self.pooled["method"]
        return method

    @property
    def seed(self) -> int | None:
        seed: int | None = self.pooled["seed"]
        return seed

    @property
    def run(self) -> Run:
        row = self.pooled
        return Run(
            row["run_id"],
            row["seed"],
            row["accuracy"],
            row["mean_pool_size"],
            known(row["cost"]),
            known(row["mean_rounds"]),
        )


@dataclass(frozen=True)
class Comparable:
    """The runs of one board."""

    methods: dict[str, list[Evaluated]]
    """On the data of the newest run; the seeds of each method in order."""
    left_out: tuple[Evaluated, ...]
    """(method, seed)s that were evaluated on other data only."""
    gone: tuple[str, ...]
    """Models of the pool whose answers are no longer in the warehouse: removed, or renamed before runs
    followed a new name."""

    @property
    def models(self) -> tuple[str, ...]:
        """The pool that all methods could choose from: it is part of the data."""
        return tuple(self._first["models"])

    @property
    def n(self) -> int:
        """Test documents."""
        n: int = self._first["n"]
        return n

    @property
    def snapshot(self) -> int:
        """The newest snapshot that was read."""
        newest: int = max(run.pooled["snapshot"] for runs in self.methods.values() for run in runs)
        return newest

    @property
    def _first(self) -> dict[str, Any]:
        return next(iter(self.methods.values()))[0].pooled


def comparable_runs(
    warehouse: Warehouse, wanted: Collection[str] | None = None
) -> dict[BoardKey, Comparable]:
    """Every board of `evaluations`, without studies and budgets; `wanted`: only of these run ids.

    A board has one pool and one set of data: those of its newest run. Tuned methods have boards of their own,
    beside the methods without settings to tune.
    """
    boards: dict[BoardKey, list[Evaluated]] = defaultdict(list)
    for run in _evaluated(warehouse, wanted):
        boards[run.board].append(run)
    return {
        key: _comparable(_with_fixed(key, boards), answering(warehouse, key[0]))
        for key, runs in boards.items()
        if any(run.is_current for run in runs) and not _is_part(key, boards)
    }


def _with_fixed(key: BoardKey, boards: Mapping[BoardKey, Sequence[Evaluated]]) -> list[Evaluated]:
    """A board's runs and, if it is tuned, those of methods without settings to tune; the newest last."""
    untuned = boards.get((*key[:5], 0), []) if key[5] else []
    fixed = [run for run in untuned if not _has_space(run.method)]
    return sorted([*boards[key], *fixed], key=lambda run: run.pooled["created_at"])


def _is_part(key: BoardKey, boards: Mapping[BoardKey, Sequence[Evaluated]]) -> bool:
    """Whether an untuned board only has methods that stand on a tuned one, too."""
    has_tuned = any(other[:5] == key[:5] and other[5] for other in boards)
    return not key[5] and has_tuned and not any(_has_space(run.method) for run in boards[key])


def _has_space(method: str) -> bool:
    """Whether the method declares settings to tune, as far as it is known here."""
    entry = entries().get(method.partition(":")[0])
    return entry is not None and bool(entry.space)


def _evaluated(warehouse: Warehouse, wanted: Collection[str] | None) -> list[Evaluated]:
    """The runs, the newest last. Wanted runs count as current, even if newer ones exist."""
    rows = warehouse.query(script("queries/runs"))
    by_run: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows.to_pylist():
        if row["run_id"] in wanted if wanted is not None else row["study"] is None:
            by_run[row["run_id"]].append(row)
    found = []
    for run in by_run.values():
        [pooled] = (row for row in run if row["task"] == "*")
        tasks = tuple(row["accuracy"] for row in run if row["task"] != "*")
        found.append(Evaluated(pooled, tasks, is_current=wanted is not None or pooled["is_current"]))
    return sorted(found, key=lambda evaluated: evaluated.pooled["created_at"])


def _comparable(runs: Sequence[Evaluated], present: Collection[str]) -> Comparable:
    current = [run for run in runs if run.is_current]
    data = current[-1].pooled["data"]
    kept = {(run.method, run.seed): run for run in current if run.pooled["data"] == data}
    others = {(run.method, run.seed): run for run in runs if (run.method, run.seed) not in kept}
    methods: dict[str, list[Evaluated]] = defaultdict(list)
    for run in sorted(kept.values(), key=lambda run: run.seed or 0):
        methods[run.method].append(run)
    gone = tuple(model for model in current[-1].pooled["models"] if model not in present)
    return Comparable(dict(methods), tuple(others.values()), gone)


def answering(warehouse: Warehouse, benchmark: str) -> set[str]:
    """The models of which the warehouse holds answers to the benchmark."""
    asked = "SELECT DISTINCT model FROM extractions WHERE benchmark = ?"
    return {model for (model,) in warehouse.rows(asked, [benchmark])}


def about_models(
    warehouse: Warehouse, query: str, benchmark: str, models: Sequence[str]
) -> list[tuple[Any, ...]]:
    """The rows of a query about a benchmark ($1) and models ($2), which the boards of a benchmark share."""
    return _about_models(warehouse, warehouse.snapshot(), query, benchmark, tuple(models))


@lru_cache(maxsize=8)
def _about_models(
    warehouse: Warehouse, snapshot: int, query: str, benchmark: str, models: tuple[str, ...]
) -> list[tuple[Any, ...]]:
    return warehouse.rows(script(f"queries/{query}"), [benchmark, list(models)])

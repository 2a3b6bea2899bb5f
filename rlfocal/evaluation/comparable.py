"""Which evaluated runs share a board: only those that saw the same data."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any

from rlfocal.base.wording import known
from rlfocal.evaluation.planning import TUNED
from rlfocal.evaluation.storing import Evaluation
from rlfocal.methods import entries, reads_task
from warehouse import Warehouse
from warehouse.scripts import script

BoardKey = tuple[str, str, str, str, bool, int]
"""(benchmark, protocol, per, split, whether its methods read the tasks' names, trials by which settings were
tuned, 0 for none)"""
SINGLE = "single:"
GIVEN_ROWS = "test"
"""What `evaluations.split` calls the rows that are marked as test."""
_created_at = attrgetter("created_at")


@dataclass(frozen=True, kw_only=True)
class Run(Evaluation):
    """The pooled row of one evaluated (method, seed)."""

    tasks: tuple[float, ...]
    """Accuracy of each task."""
    trials: int
    """By how many trials the settings were chosen, 0 if they were not; no longer one of them."""
    is_current: bool
    """Whether no newer run takes its place."""
    is_stale: bool
    """Whether labels that it read were corrected since."""

    @property
    def board(self) -> BoardKey:
        return self.benchmark, self.protocol, self.per, self.split, reads_task(self.method), self.trials


@dataclass(frozen=True)
class Comparable:
    """The runs of one board."""

    methods: dict[str, list[Run]]
    """On the data of the newest run; the seeds of each method in order."""
    left_out: tuple[Run, ...]
    """(method, seed)s that were evaluated on other data only."""
    gone: tuple[str, ...]
    """Models of the pool whose answers are no longer in the warehouse: removed, or renamed before runs
    followed a new name."""

    @property
    def models(self) -> tuple[str, ...]:
        """The pool that all methods could choose from: it is part of the data."""
        return tuple(self._first.models)

    @property
    def n(self) -> int:
        """Test documents."""
        return self._first.n

    @property
    def snapshot(self) -> int:
        """The newest snapshot that was read."""
        return max(run.snapshot for runs in self.methods.values() for run in runs)

    @property
    def _first(self) -> Run:
        return next(iter(self.methods.values()))[0]


def comparable_runs(
    warehouse: Warehouse, wanted: Collection[str] | None = None
) -> dict[BoardKey, Comparable]:
    """Every board of `evaluations`, without studies and budgets; `wanted`: only of these run ids.

    A board has one pool and one set of data: those of its newest run. Tuned methods have boards of their own,
    beside the methods without settings to tune.
    """
    boards: dict[BoardKey, list[Run]] = defaultdict(list)
    for run in _runs(warehouse, wanted):
        boards[run.board].append(run)
    present: dict[str, set[str]] = defaultdict(set)
    for benchmark, model in warehouse.rows("SELECT DISTINCT benchmark, model FROM extractions"):
        present[benchmark].add(model)
    return {
        key: _comparable(_with_fixed(key, boards), present[key[0]])
        for key, runs in boards.items()
        if any(run.is_current for run in runs) and not _is_part(key, boards)
    }


def _with_fixed(key: BoardKey, boards: Mapping[BoardKey, Sequence[Run]]) -> list[Run]:
    """A board's runs and, if it is tuned, those of methods without settings to tune; the newest last."""
    untuned = boards.get((*key[:5], 0), []) if key[5] else []
    fixed = [run for run in untuned if not _has_space(run.method)]
    return sorted([*boards[key], *fixed], key=_created_at)


def _is_part(key: BoardKey, boards: Mapping[BoardKey, Sequence[Run]]) -> bool:
    """Whether an untuned board only has methods that stand on a tuned one, too."""
    has_tuned = any(other[:5] == key[:5] and other[5] for other in boards)
    return not key[5] and has_tuned and not any(_has_space(run.method) for run in boards[key])


def _has_space(method: str) -> bool:
    """Whether the method declares settings to tune, as far as it is known here."""
    entry = entries().get(method.partition(":")[0])
    return entry is not None and bool(entry.space)


def _runs(warehouse: Warehouse, wanted: Collection[str] | None) -> list[Run]:
    """The runs, the newest last. Wanted runs count as current, even if newer ones exist."""
    by_run: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in warehouse.query(script("queries/runs")).to_pylist():
        if row["run_id"] in wanted if wanted is not None else row["study"] is None:
            by_run[row["run_id"]].append(row)
    found = []
    for rows in by_run.values():
        [pooled] = (row for row in rows if row["task"] == "*")
        settings = json.loads(pooled["settings"] or "{}")
        more = {
            "cost": known(pooled["cost"]),
            "mean_rounds": known(pooled["mean_rounds"]),
            "trials": int(settings.pop(TUNED, 0)),
            "settings": settings,
            "tasks": tuple(row["accuracy"] for row in rows if row["task"] != "*"),
            "is_current": wanted is not None or pooled["is_current"],
            "is_stale": pooled["stale"],
        }
        found.append(Run(**{field.name: pooled[field.name] for field in fields(Evaluation)} | more))
    return sorted(found, key=_created_at)


def _comparable(runs: Sequence[Run], present: Collection[str]) -> Comparable:
    current = [run for run in runs if run.is_current]
    newest = current[-1]
    kept = {(run.method, run.seed): run for run in current if run.data == newest.data}
    others = {(run.method, run.seed): run for run in runs if (run.method, run.seed) not in kept}
    methods: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(kept.values(), key=lambda run: run.seed or 0):
        methods[run.method].append(run)
    gone = tuple(model for model in newest.models if model not in present)
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

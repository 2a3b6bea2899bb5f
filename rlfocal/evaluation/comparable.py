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
from rlfocal.methods import entries, named, reads_task
from warehouse import Warehouse
from warehouse.scripts import script

BoardKey = tuple[str, str, str, str, bool, int, tuple[str, ...]]
"""(benchmark, protocol, per, split, whether its methods read the tasks' names, trials by which settings were
tuned, 0 for none, the pool if it is not the one that stands for the benchmark)"""
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

    def board(self, standing: Mapping[str, Sequence[str]]) -> BoardKey:
        """`standing`: the pool that stands for each benchmark."""
        is_standing = self.models == standing.get(self.benchmark, self.models)
        kind = self.benchmark, self.protocol, self.per, self.split, reads_task(self.method), self.trials
        return *kind, () if is_standing else tuple(self.models)


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

    A board has one pool, and the data of its newest run. The widest pool of a benchmark stands for it; others
    have boards of their own, unless a newer one has all their models. So have tuned methods, beside the
    methods without settings to tune.
    """
    standing = dict(warehouse.rows(script("queries/standing_pools")))
    boards: dict[BoardKey, list[Run]] = defaultdict(list)
    for run in _runs(warehouse, wanted):
        boards[run.board(standing)].append(run)
    for key in [
        key for key in boards if key[4]
    ]:  # a reference stands beside those that do not read tasks, too
        beside = [run for run in boards[key] if run.method in named("reference")]
        if beside and (plain := (*key[:4], False, *key[5:])) in boards:
            boards[plain] = sorted([*boards[plain], *beside], key=_created_at)
            if len(beside) == len(boards[key]):
                del boards[key]
    outgrown = {key for key in boards if _is_outgrown(key, boards)}
    present: dict[str, set[str]] = defaultdict(set)
    for benchmark, model in warehouse.rows("SELECT DISTINCT benchmark, model FROM extractions"):
        present[benchmark].add(model)
    return {
        key: _comparable(
            _with_fixed(key, boards),
            [run for old in outgrown if old[:6] == key[:6] for run in boards[old]],
            present[key[0]],
        )
        for key, runs in boards.items()
        if any(run.is_current for run in runs) and not _is_part(key, boards) and key not in outgrown
    }


def _is_outgrown(key: BoardKey, boards: Mapping[BoardKey, Sequence[Run]]) -> bool:
    """Whether it is of a pool to which models came: a newer board of its kind has them all, and more."""
    last = boards[key][-1]
    newer = [of[-1] for other, of in boards.items() if other[:6] == key[:6]]
    return bool(key[6]) and any(
        {*last.models} < {*run.models} and run.created_at > last.created_at for run in newer
    )


def _with_fixed(key: BoardKey, boards: Mapping[BoardKey, Sequence[Run]]) -> list[Run]:
    """A board's runs and, if it is tuned, those of methods without settings to tune; the newest last."""
    untuned = boards.get((*key[:5], 0, key[6]), []) if key[5] else []
    fixed = [run for run in untuned if not _has_space(run.method)]
    return sorted([*boards[key], *fixed], key=_created_at)


def _is_part(key: BoardKey, boards: Mapping[BoardKey, Sequence[Run]]) -> bool:
    """Whether an untuned board only has methods that stand on a tuned one, too."""
    has_tuned = any((*other[:5], other[6]) == (*key[:5], key[6]) and other[5] for other in boards)
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
    runs = []
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
        runs.append(Run(**{field.name: pooled[field.name] for field in fields(Evaluation)} | more))
    return sorted(runs, key=_created_at)


def _comparable(runs: Sequence[Run], outgrown: Sequence[Run], present: Collection[str]) -> Comparable:
    current = [run for run in runs if run.is_current]
    newest = current[-1]
    kept = {(run.method, run.seed): run for run in current if run.data == newest.data}
    every = (*outgrown, *runs)
    others = {(run.method, run.seed): run for run in every if (run.method, run.seed) not in kept}
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

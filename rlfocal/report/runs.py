"""Which evaluated runs may stand on one board: only those that saw the same data."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from warehouse import Warehouse

BoardKey = tuple[str, str, str]
"""(benchmark, protocol, per)"""
MethodKey = tuple[str, str | None]
"""(method, variant)"""
SINGLE = "single:"


@dataclass(frozen=True)
class Run:
    """One evaluated (method, seed)."""

    run_id: str
    seed: int | None
    accuracy: float
    mean_pool_size: float
    cost: float | None


@dataclass(frozen=True)
class Evaluated:
    """The rows of one run in `evaluations`."""

    pooled: dict[str, Any]
    tasks: tuple[float, ...]
    """Accuracy of each task."""

    @property
    def board(self) -> BoardKey:
        return self.pooled["benchmark"], self.pooled["protocol"], self.pooled["per"]

    @property
    def method(self) -> MethodKey:
        return self.pooled["method"], self.pooled["variant"]

    @property
    def seed(self) -> int | None:
        seed: int | None = self.pooled["seed"]
        return seed

    @property
    def run(self) -> Run:
        row = self.pooled
        return Run(row["run_id"], row["seed"], row["accuracy"], row["mean_pool_size"], known(row["cost"]))


@dataclass(frozen=True)
class Comparable:
    """The runs of one board."""

    methods: dict[MethodKey, list[Evaluated]]
    """On the data of the newest run; the seeds of each method in order."""
    left_out: tuple[Evaluated, ...]
    """(method, seed)s that were evaluated on other data only."""

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


def comparable_runs(warehouse: Warehouse, wanted: Collection[str] | None) -> dict[BoardKey, Comparable]:
    """Every board of `evaluations` on test documents, studies left out; `wanted`: only of these run ids."""
    boards: dict[BoardKey, list[Evaluated]] = defaultdict(list)
    for run in _evaluated(warehouse, wanted):
        boards[run.board].append(run)
    return {key: _comparable(runs) for key, runs in boards.items()}


def _evaluated(warehouse: Warehouse, wanted: Collection[str] | None) -> list[Evaluated]:
    """The runs, the newest last."""
    rows = warehouse.query("SELECT * FROM evaluations WHERE split = 'test' ORDER BY run_id, task")
    by_run: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows.to_pylist():
        if row["run_id"] in wanted if wanted is not None else not is_of_a_study(row["variant"]):
            by_run[row["run_id"]].append(row)
    found = []
    for run in by_run.values():
        [pooled] = (row for row in run if row["task"] == "*")
        found.append(Evaluated(pooled, tuple(row["accuracy"] for row in run if row["task"] != "*")))
    return sorted(found, key=lambda evaluated: evaluated.pooled["created_at"])


def _comparable(runs: Sequence[Evaluated]) -> Comparable:
    data = runs[-1].pooled["data"]
    # Of several runs of one kind the newest counts, which comes last.
    kept = {(run.method, run.seed): run for run in runs if run.pooled["data"] == data}
    others = {(run.method, run.seed): run for run in runs if (run.method, run.seed) not in kept}
    methods: dict[MethodKey, list[Evaluated]] = defaultdict(list)
    for run in sorted(kept.values(), key=lambda run: run.seed or 0):
        methods[run.method].append(run)
    return Comparable(dict(methods), tuple(others.values()))


def note_left_out(warehouse: Warehouse, key: BoardKey, runs: Comparable) -> str | None:
    """Which methods miss on the board, and the command that evaluates all on one data; None if none does."""
    if not runs.left_out:
        return None
    missing = ", ".join(sorted({label(*run.method) for run in runs.left_out}))
    command = _command(warehouse, key, runs)
    return f"Evaluated on other data and left out: {missing}. To compare, run `{command}`."


def _command(warehouse: Warehouse, key: BoardKey, runs: Comparable) -> str:
    benchmark, _, per = key
    methods = sorted({name for name, _ in [*runs.methods, *(run.method for run in runs.left_out)]})
    models = {*runs.models, *(name.removeprefix(SINGLE) for name in methods if name.startswith(SINGLE))}
    command = ["rlfocal", "evaluate", "--benchmark", benchmark, "--methods", ",".join(methods)]
    if models != _complete_models(warehouse, benchmark):
        command += ["--models", ",".join(sorted(models))]
    variants = sorted({variant for _, variant in (run.method for run in runs.left_out) if variant})
    seeds = [run.seed for run in runs.left_out if run.seed is not None]
    command += ["--variant", variants[0]] if variants else []
    command += ["--seeds", str(max(seeds) + 1)] if seeds else []
    command += ["--per", per] if per != "benchmark" else []
    return shlex.join(command)


def _complete_models(warehouse: Warehouse, benchmark: str) -> set[str]:
    """The models that answered all documents: those that are evaluated unless others are named."""
    rows = warehouse.rows(
        "SELECT model FROM outcomes WHERE benchmark = ? GROUP BY model "
        "HAVING count(*) = (SELECT count(*) FROM docs WHERE benchmark = ?)",
        (benchmark, benchmark),
    )
    return {model for (model,) in rows}


def is_of_a_study(variant: str | None) -> bool:
    """Whether a run has settings of its own: it stands in its study, not among the methods."""
    return variant is not None and variant.endswith("]")


def label(method: str, variant: str | None) -> str:
    return f"{method} ({variant})" if variant else method


def known(value: float | None) -> float | None:
    """A number, or None where it is NULL or NaN."""
    return None if value is None or isnan(value) else value

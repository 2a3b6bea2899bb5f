"""Who wins on each benchmark, read from the warehouse alone: one board for each way of evaluating."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, sqrt
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlfocal.report.bootstrap import Difference, paired_bootstrap
from warehouse import Warehouse

BASELINE = "best_single"
CEILING = "oracle"
OURS = "rl_focal"


@dataclass(frozen=True)
class Run:
    """One evaluated (method, seed): the newest of its kind."""

    run_id: str
    seed: int | None
    accuracy: float
    mean_pool_size: float
    cost: float | None


@dataclass(frozen=True)
class Standing:
    """One method on one benchmark's test documents, over its seeds. Accuracies are fractions."""

    method: str
    variant: str | None
    runs: tuple[Run, ...]
    n: int
    """Test documents."""
    accuracy: float
    """Mean over seeds, documents pooled."""
    stderr_seeds: float | None
    """None where the method has no seeds, or only one was run."""
    stderr_docs: float
    """sqrt(p (1 - p) / n)."""
    task_mean: float | None
    """Unweighted mean over tasks; None where the benchmark has one task."""
    against_baseline: Difference | None
    """Paired difference to best_single; None for best_single itself, or where it was not evaluated."""
    mean_pool_size: float
    cost: float | None
    """Cents per 1,000 queries; None where prices are unknown."""
    models: tuple[str, ...]
    """The pool it could choose from."""
    snapshot: int

    @property
    def label(self) -> str:
        return f"{self.method} ({self.variant})" if self.variant else self.method


@dataclass(frozen=True)
class SingleModel:
    """One model alone on the same test documents."""

    model: str
    n: int
    accuracy: float
    stderr_docs: float
    cost: float | None


@dataclass(frozen=True)
class Board:
    """All methods that were evaluated on one benchmark under one protocol."""

    benchmark: str
    protocol: str
    per: str
    standings: tuple[Standing, ...]
    """By falling accuracy."""
    singles: tuple[SingleModel, ...]
    """By falling accuracy."""
    verdict: str
    notes: tuple[str, ...]

    @property
    def n(self) -> int:
        return max(s.n for s in self.standings)

    @property
    def models(self) -> tuple[str, ...]:
        """The largest pool a method here could choose from."""
        return max((s.models for s in self.standings), key=len)

    @property
    def snapshot(self) -> int:
        """The newest snapshot that a method here read."""
        return max(s.snapshot for s in self.standings)

    @property
    def is_priced(self) -> bool:
        """Whether the warehouse knows what every model costs."""
        return bool(self.singles) and all(single.cost for single in self.singles)

    @property
    def best_accuracy(self) -> float:
        """Of the methods, the ceiling left out."""
        return max((s.accuracy for s in self.standings if s.method != CEILING), default=0.0)

    @property
    def ours(self) -> Standing | None:
        """RL-Focal's best variant here."""
        return next((s for s in self.standings if s.method == OURS), None)

    def find(self, method: str) -> Standing | None:
        return next((s for s in self.standings if s.method == method), None)


def leaderboard(
    warehouse: Warehouse, benchmarks: Sequence[str] | None = None, runs: Collection[str] | None = None
) -> list[Board]:
    """One board per (benchmark, protocol, per) of `evaluations`, in that order; `runs`: only these run ids.

    Of several evaluations of one (benchmark, method, variant, protocol, per, seed) the newest counts, and
    seeds evaluated on other models or documents than the newest seed are left out.
    """
    boards = []
    for key, methods in sorted(_newest_runs(warehouse, runs).items()):
        if benchmarks is None or key[0] in benchmarks:
            boards.append(_board(warehouse, key, methods))
    return boards


def as_rows(boards: Iterable[Board]) -> list[dict[str, Any]]:
    """The boards as flat records of plain values (the result of `--json`)."""
    return [
        {
            "benchmark": board.benchmark,
            "protocol": board.protocol,
            "per": board.per,
            "method": s.method,
            "variant": s.variant,
            "seeds": sum(run.seed is not None for run in s.runs),
            "n": s.n,
            "accuracy": s.accuracy,
            "stderr_seeds": s.stderr_seeds,
            "stderr_docs": s.stderr_docs,
            "task_mean": s.task_mean,
            "difference": s.against_baseline and s.against_baseline.mean,
            "difference_low": s.against_baseline and s.against_baseline.low,
            "difference_high": s.against_baseline and s.against_baseline.high,
            "mean_pool_size": s.mean_pool_size,
            "cost": s.cost,
        }
        for board in boards
        for s in board.standings
    ]


BoardKey = tuple[str, str, str]
"""(benchmark, protocol, per)"""
MethodKey = tuple[str, str | None]
"""(method, variant)"""


@dataclass(frozen=True)
class _Evaluated:
    """The rows of one run in `evaluations`."""

    pooled: dict[str, Any]
    tasks: tuple[float, ...]
    """Accuracy of each task."""

    @property
    def run(self) -> Run:
        row = self.pooled
        return Run(row["run_id"], row["seed"], row["accuracy"], row["mean_pool_size"], _known(row["cost"]))


def _newest_runs(
    warehouse: Warehouse, wanted: Collection[str] | None
) -> dict[BoardKey, dict[MethodKey, list[_Evaluated]]]:
    rows = warehouse.query("SELECT * FROM evaluations WHERE split = 'test' ORDER BY created_at, run_id")
    by_run: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows.to_pylist():
        if wanted is None or row["run_id"] in wanted:
            by_run[row["run_id"]].append(row)
    newest: dict[tuple[BoardKey, MethodKey, int | None], _Evaluated] = {}
    for run in by_run.values():
        [pooled] = (row for row in run if row["task"] == "*")
        board = pooled["benchmark"], pooled["protocol"], pooled["per"]
        tasks = tuple(row["accuracy"] for row in run if row["task"] != "*")
        newest[board, (pooled["method"], pooled["variant"]), pooled["seed"]] = _Evaluated(pooled, tasks)
    found: dict[BoardKey, dict[MethodKey, list[_Evaluated]]] = defaultdict(lambda: defaultdict(list))
    for (board, method, _), evaluated in newest.items():
        found[board][method].append(evaluated)
    return {board: {name: _same_data(runs) for name, runs in of.items()} for board, of in found.items()}


def _same_data(runs: list[_Evaluated]) -> list[_Evaluated]:
    """The seeds that saw what the newest one saw, in seed order."""

    def saw(evaluated: _Evaluated) -> tuple[int, list[str]]:
        return evaluated.pooled["n"], evaluated.pooled["models"]

    newest = max(runs, key=lambda evaluated: evaluated.pooled["created_at"])
    return sorted((r for r in runs if saw(r) == saw(newest)), key=lambda r: r.pooled["seed"] or 0)


def _board(warehouse: Warehouse, key: BoardKey, methods: dict[MethodKey, list[_Evaluated]]) -> Board:
    ids = [evaluated.run.run_id for runs in methods.values() for evaluated in runs]
    correct = _correct_by_document(warehouse, key[0], ids)
    by_method = {
        name: np.mean([correct[evaluated.run.run_id] for evaluated in runs], axis=0)
        for name, runs in methods.items()
    }
    standings = []
    for name, runs in methods.items():
        is_compared = (BASELINE, None) in by_method and name[0] != BASELINE
        against = _difference(by_method[name], by_method[BASELINE, None]) if is_compared else None
        standings.append(_standing(name, runs, against))
    standings.sort(key=lambda s: (-s.accuracy, s.method))
    singles = _single_models(warehouse, key[0])
    return Board(*key, tuple(standings), singles, _verdict(standings, by_method), tuple(_notes(standings)))


def _standing(name: MethodKey, evaluated: list[_Evaluated], against: Difference | None) -> Standing:
    runs = tuple(e.run for e in evaluated)
    accuracies = [run.accuracy for run in runs]
    costs = [run.cost for run in runs if run.cost is not None]
    accuracy, n = fmean(accuracies), evaluated[0].pooled["n"]
    return Standing(
        *name,
        runs=runs,
        n=n,
        accuracy=accuracy,
        stderr_seeds=stdev(accuracies) / sqrt(len(runs)) if len(runs) > 1 else None,
        stderr_docs=sqrt(accuracy * (1 - accuracy) / n),
        task_mean=fmean(fmean(e.tasks) for e in evaluated) if len(evaluated[0].tasks) > 1 else None,
        against_baseline=against,
        mean_pool_size=fmean(run.mean_pool_size for run in runs),
        cost=fmean(costs) if len(costs) == len(runs) else None,
        models=tuple(evaluated[0].pooled["models"]),
        snapshot=max(e.pooled["snapshot"] for e in evaluated),
    )


def _known(cost: float | None) -> float | None:
    return None if cost is None or isnan(cost) else cost


def _correct_by_document(
    warehouse: Warehouse, benchmark: str, runs: list[str]
) -> dict[str, NDArray[np.float64]]:
    """Per run, (T,) 1 where it was right, 0 where wrong, NaN on a document it did not decide."""
    table = warehouse.query(
        "SELECT run_id, dense_rank() OVER (ORDER BY task, doc_id) - 1 AS document, correct::DOUBLE AS hit "
        "FROM decisions WHERE benchmark = ? AND list_contains(?, run_id)",
        (benchmark, runs),
    )
    owner = table["run_id"].combine_chunks().dictionary_encode()
    names, at = owner.dictionary.to_pylist(), owner.indices.to_numpy()
    documents = table["document"].to_numpy()
    matrix = np.full((len(names), documents.max(initial=-1) + 1), np.nan)
    matrix[at, documents] = table["hit"].to_numpy()
    nothing = np.full(matrix.shape[1], np.nan)
    return {run: matrix[names.index(run)] if run in names else nothing for run in runs}


def _difference(one: NDArray[np.float64], other: NDArray[np.float64]) -> Difference | None:
    """Paired over the documents both decided; None without any."""
    both = one - other
    both = both[~np.isnan(both)]
    return paired_bootstrap(both) if len(both) else None


def _single_models(warehouse: Warehouse, benchmark: str) -> tuple[SingleModel, ...]:
    rows = warehouse.rows(
        "SELECT p.model, count(*), avg(p.correct::DOUBLE), any_value(m.price) FROM predictions p "
        "JOIN docs d USING (benchmark, task, doc_id) LEFT JOIN models m ON m.model = p.model "
        "WHERE benchmark = ? AND d.split = 'test' GROUP BY p.model ORDER BY 3 DESC, 1",
        (benchmark,),
    )
    return tuple(SingleModel(model, n, p, sqrt(p * (1 - p) / n), price) for model, n, p, price in rows)


def _verdict(standings: Sequence[Standing], correct: Mapping[MethodKey, NDArray[np.float64]]) -> str:
    """One honest sentence: who wins, by how much, and whether the documents settle it."""
    rivals = [s for s in standings if s.method not in {CEILING, OURS} and not s.method.startswith("single:")]
    ours = next((s for s in standings if s.method == OURS), None)
    if ours is None:
        leader = f"{rivals[0].label} leads with {percent(rivals[0].accuracy)} %; " if rivals else ""
        return f"{leader}RL-Focal was not evaluated."
    if not rivals:
        return f"RL-Focal reaches {percent(ours.accuracy)} %; nothing was evaluated beside it."
    rival = rivals[0]
    difference = _difference(correct[ours.method, ours.variant], correct[rival.method, rival.variant])
    if difference is None:
        return f"RL-Focal and {rival.label} decided no document in common."
    size = f"{abs(100 * difference.mean):.1f} points"
    interval = f"the 95 % interval of the difference, {points(difference.low)} to {points(difference.high)},"
    if difference.excludes_zero and difference.mean > 0:
        return f"RL-Focal wins here: {size} above {rival.label}; {interval} excludes zero."
    if difference.excludes_zero:
        return f"RL-Focal loses to {rival.label} here by {size}; {interval} excludes zero."
    side = "above" if difference.mean > 0 else "below"
    stands = f"{size} {side}" if difference.mean else "level with"
    return f"No winner here: RL-Focal stands {stands} {rival.label}, but {interval} includes zero."


def _notes(standings: Sequence[Standing]) -> Iterable[str]:
    for what, values in (
        ("pools of different sizes", {len(s.models) for s in standings}),
        ("different numbers of documents", {s.n for s in standings}),
    ):
        if len(values) > 1:
            listed = ", ".join(map(str, sorted(values)))
            yield f"These rows were evaluated on {what} ({listed}): run `rlfocal evaluate` again."


def percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}"


def cents(cost: float | None) -> str:
    """A cost per 1,000 queries; a dash where it is unknown.

    >>> cents(0.348), cents(1685.0), cents(None)
    ('0.35', '1,685.0', '–')
    """
    if cost is None:
        return "–"
    return f"{cost:.2f}" if cost < 10 else f"{cost:,.1f}"


def points(fraction: float) -> str:
    """Signed percentage points, with a true minus sign.

    >>> points(-0.0213), points(0.004)
    ('−2.1', '+0.4')
    """
    text = f"{100 * fraction:+.1f}"
    return text.replace("-", "−") if float(text) else "0.0"

"""Makes leaderboards from the warehouse alone: one board for each benchmark and way of evaluating."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from statistics import fmean
from typing import Any

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.base.names import CEILING_METHOD, RL_FOCAL, START_METHOD, TEAM_LOG_LINEAR, WITHOUT_TEXTS
from rlfocal.base.wording import mean_known, number_or_none
from rlfocal.evaluation.comparable import (
    SINGLE_PREFIX,
    BoardKey,
    ComparableRuns,
    EvaluatedRun,
    comparable_runs,
)
from rlfocal.evaluation.notes import missing_methods, note_split, notes
from rlfocal.evaluation.verdicts import LEVEL_MARGIN, best_of_ours
from rlfocal.methods import entries, find_methods, reads_task
from rlfocal.methods.registry import PLUS_TASK, Reads
from rlfocal.statistics.intervals import Difference, documents_needed, mean_over_seeds, paired_difference
from warehouse import Warehouse
from warehouse.scripts import script

BASELINE_METHOD = "best_single"
"""The method that all others are compared with.

Methods that read the tasks' names are compared with its `+task` form.
"""
FLOOR_METHOD = "constant_choice"
OMNISCIENT_METHODS = (CEILING_METHOD, "rl_focal_released")
"""Methods that read outputs of models that they did not ask: the oracle, and a method of an earlier version.
"""


@dataclass(frozen=True)
class LeaderboardRow:
    """One method on one benchmark's test documents, over its seeds. Accuracies are fractions."""

    method: str
    runs: tuple[EvaluatedRun, ...]
    accuracy: float
    """The mean accuracy over seeds and all documents."""
    stderr_seeds: float | None
    """The standard error over seeds; None without seeds, or with one."""
    stderr_docs: float
    """The standard error over documents, sqrt(p (1 - p) / n)."""
    task_mean: float | None
    """The unweighted mean of the tasks' accuracies; None if the benchmark has one task."""
    against_baseline: Difference | None
    """Paired difference to the board's baseline; None for the baseline, or where it was not evaluated."""
    ours_above: Mapping[str, Difference]
    """The accuracies of RL-Focal's other methods minus this row's, paired; empty where none is shown."""
    mean_pool_size: float
    cost: float | None
    """Cents per 1,000 queries; None if prices are unknown."""
    mean_rounds: float | None
    """The mean rounds of calls that a document waits for; None if a run did not count them."""
    is_tuned: bool
    """Whether the method's settings were tuned."""
    settings: Mapping[str, Any]
    """The settings that differ from the method's defaults."""
    deciding: tuple[tuple[str, int], ...] = ()
    """(policy that decides, number of fits), the most frequent first; empty for methods that are not trained,
    and for runs of earlier versions."""
    n_pools: tuple[int, ...] = ()
    """The number of different pools that each run asked; empty for runs of earlier versions."""
    commonest_pool: float | None = None
    """The share of documents on which a run asked its most frequent pool, as a mean over runs.

    None if a run did not count it.
    """
    unnamed: float = 0.0
    """The share of documents whose answer came from none of the asked models."""
    unnamed_right: float | None = None
    """The share of these answers that are right; None if there are no such answers."""

    @property
    def chosen(self) -> str:
        """The method's tuned settings as text, for a board of tuned methods."""
        if not self.is_tuned:
            return "no settings to tune"
        return ", ".join(f"{name}={value}" for name, value in sorted(self.settings.items())) or "the defaults"

    @property
    def is_ours(self) -> bool:
        """Whether the method is one of RL-Focal's."""
        return is_ours(self.method)

    @property
    def has_one_seed(self) -> bool:
        """Whether the method depends on a seed but only one was run, so that intervals lack training luck."""
        return len(self.runs) == 1 and self.runs[0].seed is not None

    @property
    def reads(self) -> tuple[Reads, ...]:
        """What the method's choice of models depends on; also empty for a method that is not registered."""
        entry = entries().get(self.method.partition(":")[0])
        return entry.reads if entry else ()


@dataclass(frozen=True)
class SingleModel:
    """The accuracy of one model alone on a board's test documents, by its present answers."""

    model: str
    n: int
    accuracy: float
    stderr_docs: float
    cost: float | None
    tasks: tuple[tuple[str, int, float], ...]
    """(task, number of documents, accuracy)."""


@dataclass(frozen=True)
class Board:
    """All methods that were evaluated on one benchmark's data under one protocol."""

    benchmark: str
    protocol: str
    per: str
    split: str
    reads_task: bool
    """Whether the board's methods read the tasks' names.

    They share no board with methods that do not, apart from the reference best_single+task.
    """
    trials: int
    """The number of trials in which each method's settings were tuned on folds of train; 0 without tuning."""
    other_pool: tuple[str, ...]
    """The pool, if it is not the benchmark's widest; else empty."""
    n: int
    """The number of test documents."""
    models: tuple[str, ...]
    """The pool that every method on the board could choose from."""
    snapshot: int
    """The number of the newest snapshot that a method on the board read."""
    rows: tuple[LeaderboardRow, ...]
    """The methods by falling accuracy."""
    singles: tuple[SingleModel, ...]
    """The models that answered all n documents, by falling accuracy."""
    notes: tuple[str, ...]
    missing: tuple[str, ...] = ()
    """Usual methods that were not evaluated on the board's data; one may be better than the best rival."""
    n_none_right: int | None = None
    """The number of test documents on which no model of the pool is right; None if some answers were
    deleted."""
    split_note: str | None = None
    """A sentence on how train and test documents differ, where chance does not explain it; else None."""
    n_to_decide: int | None = None
    """The number of test documents that would show how the best of RL-Focal's methods and the best rival
    compare, whatever their difference.

    None if either is missing, and where seeds alone differ too much.
    """

    @property
    def key(self) -> BoardKey:
        kind = self.benchmark, self.protocol, self.per, self.split
        return BoardKey(*kind, self.reads_task, self.trials, self.other_pool)

    @property
    def baseline(self) -> str:
        """The method that all others are compared with."""
        return _find_baseline(reads_task=self.reads_task)

    @property
    def is_priced(self) -> bool:
        """Whether everything on the board has a known cost, which may be 0."""
        costs = [standing.cost for standing in self.rows] + [single.cost for single in self.singles]
        return None not in costs

    @property
    def best_accuracy(self) -> float:
        """The accuracy of the best method, without the ceiling."""
        return max((s.accuracy for s in self.rows if s.method != CEILING_METHOD), default=0.0)

    @cached_property
    def ours(self) -> tuple[LeaderboardRow, ...]:
        """RL-Focal's methods on the board, in the order of their names."""
        ours = (s for s in self.rows if s.is_ours)
        return tuple(sorted(ours, key=lambda s: RL_FOCAL.index(s.method.removesuffix(PLUS_TASK))))

    @cached_property
    def rival(self) -> LeaderboardRow | None:
        """The most accurate rival of RL-Focal's methods on the test documents, which favours it.

        It reads the tasks' names only if the board's methods do. A constant answer is the rival only if no
        other method ties with it. Of a family of constant pools, only the pool of the size chosen on train
        counts, if that was evaluated.
        """
        every = {s.method for s in self.rows}
        sized = {f"{name}:" for name in find_methods("constant_pool") if name in every}
        rivals = [
            s
            for s in self.rows
            if _is_compared(s.method)
            and s.method.removesuffix(PLUS_TASK) not in (START_METHOD, TEAM_LOG_LINEAR)
            and not s.is_ours
            and not s.method.startswith(tuple(sized))
            and reads_task(s.method) == self.reads_task
        ]
        return min(rivals, key=lambda s: (-s.accuracy, s.method == FLOOR_METHOD), default=None)


def _find_baseline(*, reads_task: bool) -> str:
    """The baseline of methods that read the tasks' names, or of those that do not."""
    return BASELINE_METHOD + PLUS_TASK if reads_task else BASELINE_METHOD


def leaderboard(
    warehouse: Warehouse, benchmarks: Sequence[str] | None = None, runs: Collection[str] | None = None
) -> list[Board]:
    """One board per (benchmark, protocol, per, split, tuning, pool) of `evaluations`.

    `runs`: only the boards of these run ids, with all other current runs on their data. Methods that read the
    tasks' names have a separate board. A board compares only runs on the data of its newest run. A note names
    methods that were evaluated on other data only.
    """
    with warehouse.hold_snapshot():  # which also halves what each query asks of the catalogue
        comparable = comparable_boards(warehouse, benchmarks, runs)
        return [make_board(warehouse, key, of_key) for key, of_key in comparable.items()]


def comparable_boards(
    warehouse: Warehouse, benchmarks: Sequence[str] | None = None, runs: Collection[str] | None = None
) -> dict[BoardKey, ComparableRuns]:
    """The runs that the boards of `leaderboard` compare.

    Registered benchmarks come in the registry's order, then others by name.
    """
    runs_of = comparable_runs(warehouse, runs)
    wanted = [key for key in runs_of if benchmarks is None or key.benchmark in benchmarks]
    if len({key.benchmark for key in wanted}) < 2:
        return {key: runs_of[key] for key in sorted(wanted)}
    from rlfocal.pool import load_benchmarks  # pydantic, for which a single board should not wait

    order = {name: number for number, name in enumerate(load_benchmarks())}
    ordered = sorted(wanted, key=lambda key: (order.get(key.benchmark, len(order)), key))
    return {key: runs_of[key] for key in ordered}


def make_board(warehouse: Warehouse, key: BoardKey, comparable: ComparableRuns) -> Board:
    """Makes the board that compares these runs."""
    ids = [run.run_id for runs in comparable.methods.values() for run in runs]
    hits = correct_by_document(warehouse, key.benchmark, ids)
    correct = {
        name: np.stack([hits[run.run_id] for run in runs]) for name, runs in comparable.methods.items()
    }

    @cache
    def difference(method: str, other_method: str) -> Difference | None:
        return _measure_difference(correct[method], correct[other_method])

    ours = [name for name in comparable.methods if is_ours(name)]
    unnamed = {} if comparable.removed_models else _count_unnamed_answers(warehouse, ids)
    base = _find_baseline(reads_task=key.reads_task)
    standings = []
    for name, runs in comparable.methods.items():
        against = difference(name, base) if base in correct and name != base else None
        above = {method: difference(method, name) for method in ours if method != name and _is_compared(name)}
        standings.append(
            _make_row(
                name, runs, against, {method: d for method, d in above.items() if d is not None}, unnamed
            )
        )
    standings.sort(key=lambda s: (-s.accuracy, s.method))
    missing = missing_methods(warehouse, key, comparable)
    board = Board(
        *key,
        n=comparable.n,
        models=comparable.models,
        snapshot=comparable.snapshot,
        rows=tuple(standings),
        singles=_read_single_models(warehouse, key.benchmark, ids[0], comparable),
        notes=notes(warehouse, key, comparable, missing),
        missing=missing,
        n_none_right=None
        if comparable.removed_models
        else _count_none_right(warehouse, key.benchmark, ids[0], comparable.models),
        split_note=note_split(warehouse, key.benchmark, comparable.models, key.split, comparable.run_id),
    )
    return replace(board, n_to_decide=_count_to_decide(board, correct))


def is_ours(method: str) -> bool:
    """Whether the method is one of RL-Focal's, with or without the tasks' names."""
    return method.removesuffix(PLUS_TASK) in RL_FOCAL


def _is_compared(method: str) -> bool:
    """Whether boards show differences of RL-Focal's methods to `method`, a rival or a control."""
    return method not in (*OMNISCIENT_METHODS, *WITHOUT_TEXTS) and not method.startswith(SINGLE_PREFIX)


def _make_row(
    method: str,
    runs: Sequence[EvaluatedRun],
    against: Difference | None,
    ours_above: Mapping[str, Difference],
    unnamed: Mapping[str, tuple[int, int]],
) -> LeaderboardRow:
    first = runs[0]
    accuracy, stderr_seeds, stderr_docs = mean_over_seeds([run.accuracy for run in runs], first.n)
    n_unnamed, n_right = map(sum, zip(*(unnamed.get(run.run_id, (0, 0)) for run in runs), strict=True))
    return LeaderboardRow(
        method,
        runs=tuple(runs),
        accuracy=accuracy,
        stderr_seeds=stderr_seeds,
        stderr_docs=stderr_docs,
        task_mean=fmean(fmean(run.tasks) for run in runs) if len(first.tasks) > 1 else None,
        against_baseline=against,
        ours_above=ours_above,
        mean_pool_size=fmean(run.mean_pool_size for run in runs),
        cost=mean_known(run.cost for run in runs),
        mean_rounds=mean_known(run.mean_rounds for run in runs),
        is_tuned=first.trials > 0,
        settings=first.settings,
        deciding=tuple(Counter(name for run in runs for name in run.deciding or ()).most_common()),
        n_pools=tuple(run.n_pools for run in runs if run.n_pools is not None),
        commonest_pool=mean_known(run.commonest_pool for run in runs),
        unnamed=n_unnamed / (first.n * len(runs)),
        unnamed_right=n_right / n_unnamed if n_unnamed else None,
    )


def correct_by_document(warehouse: Warehouse, benchmark: str, runs: list[str]) -> dict[str, Floats]:
    """For each run, (T,) whether it was right: 1 right, 0 wrong, NaN where it did not decide.

    The documents are those that some run decided, by task and number.
    """
    table = warehouse.query(script("queries/correct_by_document"), (benchmark, runs))
    owner = table["run_id"].combine_chunks().dictionary_encode()
    names, run_of = owner.dictionary.to_pylist(), owner.indices.to_numpy()
    documents = table["document"].to_numpy()
    matrix = np.full((len(names), documents.max(initial=-1) + 1), np.nan)
    matrix[run_of, documents] = table["hit"].to_numpy()
    nothing = np.full(matrix.shape[1], np.nan)
    return {run: matrix[names.index(run)] if run in names else nothing for run in runs}


def _measure_difference(hits: Floats, other_hits: Floats) -> Difference | None:
    """The difference of two methods' hits (seeds, T) on documents that all seeds decided; None if none is."""
    decided = ~np.isnan(np.vstack([hits, other_hits])).any(axis=0)
    return paired_difference(hits[:, decided], other_hits[:, decided]) if decided.any() else None


def _count_to_decide(board: Board, correct: Mapping[str, Floats]) -> int | None:
    """The board's `n_to_decide`; `correct`: for each method, its hits (seeds, T)."""
    ours, rival = best_of_ours(board), board.rival
    if ours is None or rival is None:
        return None
    one, other = correct[ours.method], correct[rival.method]
    decided = ~np.isnan(np.vstack([one, other])).any(axis=0)
    # An interval this narrow is on one side of zero or within ±LEVEL_MARGIN of it, wherever it lies.
    return documents_needed(one[:, decided], other[:, decided], LEVEL_MARGIN / 2) if decided.any() else None


def _count_unnamed_answers(warehouse: Warehouse, runs: list[str]) -> dict[str, tuple[int, int]]:
    """For each run, the number of its answers that no asked model gave, and of the right ones among them."""
    counted = warehouse.rows("SELECT run_id, n_unnamed, n_unnamed_right FROM unnamed_answers(?)", [runs])
    return {run: (n, n_right) for run, n, n_right in counted}


def _count_none_right(warehouse: Warehouse, benchmark: str, run: str, models: Sequence[str]) -> int:
    """The number of documents decided by `run` on which no model is right."""
    [(n,)] = warehouse.rows(script("queries/none_right"), (run, benchmark, list(models)))
    return int(n)


def _read_single_models(
    warehouse: Warehouse, benchmark: str, run: str, comparable: ComparableRuns
) -> tuple[SingleModel, ...]:
    """The pool's models on the documents that `run` decided."""
    rows = warehouse.rows(script("queries/single_models"), (run, benchmark, list(comparable.models)))
    tasks: dict[tuple[str, float | None], list[tuple[str, int, float]]] = defaultdict(list)
    for model, task, n, accuracy, price in rows:
        tasks[model, number_or_none(price)].append((task, n, accuracy))
    singles = []
    for (model, price), by_task in tasks.items():
        if sum(n for _, n, _ in by_task) == comparable.n:
            pooled = sum(n * share for _, n, share in by_task) / comparable.n
            accuracy, _, error = mean_over_seeds([pooled], comparable.n)
            singles.append(SingleModel(model, comparable.n, accuracy, error, price, tuple(by_task)))
    return tuple(sorted(singles, key=lambda single: (-single.accuracy, single.model)))

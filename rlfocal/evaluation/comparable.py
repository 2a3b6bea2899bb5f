"""Decides which evaluated runs share a board: only runs on the same data."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any

from scipy.special import bdtrc

from rlfocal.base.errors import InputError
from rlfocal.base.wording import number_or_none
from rlfocal.data.dataset import Kind
from rlfocal.data.loading import load_dataset
from rlfocal.evaluation.planning import TRIALS_KEY
from rlfocal.evaluation.storing import Evaluation
from rlfocal.extraction.recording import tied_models
from rlfocal.methods import entries, entry_of, find_methods, methods_for, reads_task
from rlfocal.statistics.homogeneity import count_shares, describe, find_differences
from warehouse import Warehouse
from warehouse.scripts import script

BoardKey = tuple[str, str, str, str, bool, int, tuple[str, ...]]
"""What identifies a board.

It is (benchmark, protocol, per, split, whether its methods read the tasks' names, trials of tuning (0 for
none), the pool if it is not the benchmark's widest).
"""
SINGLE_PREFIX = "single:"
GIVEN_ROWS = "test"
"""The value of `evaluations.split` for the rows that are marked as test."""
_created_at = attrgetter("created_at")


@dataclass(frozen=True, kw_only=True)
class EvaluatedRun(Evaluation):
    """The row of one evaluated (method, seed) over all documents."""

    tasks: tuple[float, ...]
    """The accuracy on each task."""
    trials: int
    """The number of trials in which the settings were chosen; 0 if they were given."""
    is_current: bool
    """Whether no newer run has replaced it."""
    is_stale: bool
    """Whether labels that it read were corrected since."""

    def board(self, widest_pools: Mapping[str, Sequence[str]]) -> BoardKey:
        """The key of the run's board. `widest_pools`: by benchmark, its widest pool."""
        is_standing = self.models == widest_pools.get(self.benchmark, self.models)
        kind = self.benchmark, self.protocol, self.per, self.split, reads_task(self.method), self.trials
        return *kind, () if is_standing else tuple(self.models)


@dataclass(frozen=True)
class ComparableRuns:
    """The runs of one board."""

    methods: dict[str, list[EvaluatedRun]]
    """By method, its runs on the newest run's data, in the order of their seeds."""
    left_out: tuple[EvaluatedRun, ...]
    """The newest runs of each (method, seed) that was evaluated on other data only."""
    gone: tuple[str, ...]
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
    warehouse: Warehouse, wanted: Collection[str] | None = None
) -> dict[BoardKey, ComparableRuns]:
    """The runs of every board of `evaluations`, without studies and budgets; `wanted`: only the boards of
    these run ids.

    A board has one pool, and the data of its newest run. The widest pool of a benchmark has the benchmark's
    main board. Others have boards of their own, unless a newer board has all their models. So have tuned
    methods, beside the methods without settings to tune. A board of wanted runs is on their data, and holds
    all other current runs on it beside them, but none of a method that is wanted.
    """
    standing = dict(warehouse.rows(script("queries/standing_pools")))
    present: dict[str, set[str]] = defaultdict(set)
    for benchmark, model in warehouse.rows("SELECT DISTINCT benchmark, model FROM extractions"):
        present[benchmark].add(model)
    every = _runs(warehouse, wanted)
    if wanted is None:
        return {
            key: _group_runs(runs, outgrown, present[key[0]])
            for key, (runs, outgrown) in _boards(every, standing).items()
        }
    own = [run for run in every if run.run_id in wanted]
    beside = [run for run in every if run.run_id not in wanted and run.is_current]
    return {
        key: _group_runs(_add_other_runs(runs, beside, key, standing), (), present[key[0]])
        for key, (runs, _) in _boards(own, standing).items()
    }


def _add_other_runs(
    own: Sequence[EvaluatedRun],
    others: Sequence[EvaluatedRun],
    key: BoardKey,
    widest_pools: Mapping[str, Sequence[str]],
) -> list[EvaluatedRun]:
    """The wanted runs of a board, the newest last, after the other runs that belong on it."""
    methods = {run.method for run in own}
    data = own[-1].data
    same = (run for run in others if run.data == data and run.method not in methods)
    return [*(run for run in same if _belongs(run, key, widest_pools)), *own]


def _belongs(run: EvaluatedRun, key: BoardKey, widest_pools: Mapping[str, Sequence[str]]) -> bool:
    """Whether a run belongs on a board: as its own, as a reference beside it, or without settings to tune."""
    own = run.board(widest_pools)
    reads = key[4] if run.method in find_methods("reference") else own[4]
    trials = own[5] if _has_space(run.method) else key[5]
    return (*own[:4], reads, trials, own[6]) == key and (own[4] or not key[4])


def _boards(
    every: Sequence[EvaluatedRun], widest_pools: Mapping[str, Sequence[str]]
) -> dict[BoardKey, tuple[list[EvaluatedRun], list[EvaluatedRun]]]:
    """By board, its runs, and the runs of smaller pools that the board replaces."""
    boards: dict[BoardKey, list[EvaluatedRun]] = defaultdict(list)
    for run in every:
        boards[run.board(widest_pools)].append(run)
    for key in [
        key for key in boards if key[4]
    ]:  # a reference stands beside those that do not read tasks, too
        beside = [run for run in boards[key] if run.method in find_methods("reference")]
        if beside and (plain := (*key[:4], False, *key[5:])) in boards:
            boards[plain] = sorted([*boards[plain], *beside], key=_created_at)
            if len(beside) == len(boards[key]):
                del boards[key]
    outgrown = {key for key in boards if _is_outgrown(key, boards)}
    return {
        key: (
            _add_fixed_methods(key, boards),
            [run for old in outgrown if old[:6] == key[:6] for run in boards[old]],
        )
        for key, runs in boards.items()
        if any(run.is_current for run in runs) and not _is_part(key, boards) and key not in outgrown
    }


def _is_outgrown(key: BoardKey, boards: Mapping[BoardKey, Sequence[EvaluatedRun]]) -> bool:
    """Whether a newer board of the same kind has all models of this board's pool, and more."""
    last = boards[key][-1]
    newer = [of[-1] for other, of in boards.items() if other[:6] == key[:6]]
    return bool(key[6]) and any(
        {*last.models} < {*run.models} and run.created_at > last.created_at for run in newer
    )


def _add_fixed_methods(
    key: BoardKey, boards: Mapping[BoardKey, Sequence[EvaluatedRun]]
) -> list[EvaluatedRun]:
    """A board's runs and, if it is tuned, those of methods without settings to tune; the newest last."""
    untuned = boards.get((*key[:5], 0, key[6]), []) if key[5] else []
    fixed = [run for run in untuned if not _has_space(run.method)]
    return sorted([*boards[key], *fixed], key=_created_at)


def _is_part(key: BoardKey, boards: Mapping[BoardKey, Sequence[EvaluatedRun]]) -> bool:
    """Whether an untuned board only has methods that a tuned one has, too."""
    has_tuned = any((*other[:5], other[6]) == (*key[:5], key[6]) and other[5] for other in boards)
    return not key[5] and has_tuned and not any(_has_space(run.method) for run in boards[key])


def _has_space(method: str) -> bool:
    """Whether the method declares settings to tune; false for a method that is not registered."""
    entry = entries().get(method.partition(":")[0])
    return entry is not None and bool(entry.space)


def _runs(warehouse: Warehouse, wanted: Collection[str] | None) -> list[EvaluatedRun]:
    """The runs, the newest last.

    Wanted runs count as current, even if newer ones exist or they are in studies.
    """
    by_run: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in warehouse.query(script("queries/runs")).to_pylist():
        if row["study"] is None or (wanted is not None and row["run_id"] in wanted):
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
            "is_current": pooled["is_current"] or (wanted is not None and pooled["run_id"] in wanted),
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
    gone = tuple(model for model in newest.models if model not in present)
    return ComparableRuns(dict(methods), tuple(others.values()), gone)


def find_answering_models(warehouse: Warehouse, benchmark: str) -> set[str]:
    """The models whose answers to the benchmark the warehouse holds."""
    asked = "SELECT DISTINCT model FROM extractions WHERE benchmark = ?"
    return {model for (model,) in warehouse.rows(asked, [benchmark])}


def query_models(
    warehouse: Warehouse, query: str, benchmark: str, models: Sequence[str]
) -> list[tuple[Any, ...]]:
    """The rows of a query on a benchmark ($1) and models ($2); cached, because the boards of a benchmark
    share them."""
    return _query_models_at(warehouse, warehouse.snapshot(), query, benchmark, tuple(models))


@lru_cache(maxsize=8)
def _query_models_at(
    warehouse: Warehouse, snapshot: int, query: str, benchmark: str, models: tuple[str, ...]
) -> list[tuple[Any, ...]]:
    return warehouse.rows(script(f"queries/{query}"), [benchmark, list(models)])


MIN_COMPARED_DOCUMENTS = 30
"""The fewest documents for a note that models guess."""
COMPARISON_LEVEL = 0.025
"""The one-sided level of a comparison: that of the lower end of a 95 % interval."""


def notes(
    warehouse: Warehouse, key: BoardKey, runs: ComparableRuns, missing: Sequence[str] = ()
) -> tuple[str, ...]:
    """Sentences that a reader of the board should know: what it leaves out, what is stale, whether its pool
    guesses.

    `missing`: the usual methods that were never evaluated on its data.
    """
    every = [
        note_pool(key),
        note_gone(runs),
        note_stale(warehouse, key, runs),
        note_left_out(warehouse, key, runs),
        note_missing(warehouse, key, runs, missing),
        note_guessing(warehouse, key[0], runs.models),
        note_graded(warehouse, key[0], runs.models),
        note_split(warehouse, key[0], runs.models, key[3], runs.run_id),
        note_ties(warehouse, key[0]),
    ]
    return tuple(note for note in every if note is not None)


def note_ties(warehouse: Warehouse, benchmark: str) -> str | None:
    """A sentence that names the models whose likeliest choices tie; None if few do."""
    return " ".join(tied_models(warehouse, benchmark)) or None


def note_pool(key: BoardKey) -> str | None:
    """A sentence that names the board's models, where they are not the benchmark's widest pool."""
    return f"{key[0]}: this board is of {len(key[6])} models: {', '.join(key[6])}." if key[6] else None


def note_gone(runs: ComparableRuns) -> str | None:
    """A sentence that names models whose answers were removed, and what the board lacks; None if none was."""
    if not runs.gone:
        return None
    return (
        f"No longer in the warehouse: {', '.join(runs.gone)}. Runs are shown as they were stored; what needs "
        "the missing answers (accuracy alone and the diversity of pools) is left out."
    )


def note_stale(warehouse: Warehouse, key: BoardKey, runs: ComparableRuns) -> str | None:
    """A sentence that names methods which read labels corrected since, and the command that runs them
    again.
    """
    stale = {name: run for name, of in runs.methods.items() for run in of if run.is_stale}
    if not stale:
        return None
    command = _command(warehouse, key, runs, sorted(stale), list(stale.values()))
    return f"Evaluated before labels were corrected: {', '.join(sorted(stale))}. Run `{command}` again."


def note_left_out(warehouse: Warehouse, key: BoardKey, runs: ComparableRuns) -> str | None:
    """A sentence that names methods which the board lacks, and the command that adds them; None if there are
    none.

    Methods that can no longer run are not listed: their model was removed, or they need choices.
    """
    benchmark = key[0]
    present = find_answering_models(warehouse, benchmark)
    out = {SINGLE_PREFIX + model for model in _single_models(runs) - present}
    kind = kind_of(warehouse, benchmark)
    out |= {name for name, entry in entries().items() if kind not in entry.kinds}
    left_out = [run for run in runs.left_out if run.method not in out]
    if not left_out:
        return None
    missing = ", ".join(sorted({run.method for run in left_out}))
    named = {*runs.methods, *(run.method for run in left_out)} - out
    command = _command(warehouse, key, runs, sorted(named), left_out)
    return f"Evaluated on other data and left out: {missing}. To compare, run `{command}`."


def missing_methods(warehouse: Warehouse, key: BoardKey, runs: ComparableRuns) -> tuple[str, ...]:
    """The usual rivals that were not evaluated on the board's data: a run was cut off, or never started.

    The usual methods are those that `rlfocal evaluate` runs by default, as far as data and pool admit them,
    without other packages' methods. Boards of methods that read the tasks' names have no usual ones.
    """
    benchmark, protocol, per, _, is_told, *_ = key
    if is_told:
        return ()
    there = {name.partition(":")[0] for name in runs.methods}
    usual = methods_for(len(runs.models), kind_of(warehouse, benchmark), protocol)
    absent = [
        entry
        for name in usual
        if name not in there and name in find_methods("reference", "constant_pool", "rival")
        if not (entry := entry_of(name)).package
    ]
    needy = [entry for entry in absent if entry.needs]
    try:  # only where it matters what the data hold
        data = load_dataset(warehouse, benchmark, runs.models) if needy else None
    except InputError:  # answers are gone since
        absent, data = [entry for entry in absent if not entry.needs], None
    return tuple(
        entry.name
        for entry in absent
        if data is None or entry.explain_missing(data, protocol, per=per) is None
    )


def note_missing(
    warehouse: Warehouse, key: BoardKey, runs: ComparableRuns, missing: Sequence[str]
) -> str | None:
    """A sentence that names usual methods never evaluated on the board's data, and the command; None if all
    were.
    """
    if not missing:
        return None
    told = f"Not evaluated, though usual: {', '.join(missing)}"
    if runs.gone:
        return f"{told}."
    again = [run for of in runs.methods.values() for run in of]
    return f"{told}; run `{_command(warehouse, key, runs, (), again)}`."


def kind_of(warehouse: Warehouse, benchmark: str) -> Kind:
    """The kind of a benchmark's documents, choices or free answers; choices if the documents were deleted."""
    labels = "SELECT bool_or(label IS NOT NULL) FROM docs WHERE benchmark = ?"
    return "answers" if warehouse.rows(labels, [benchmark])[0][0] is False else "choices"


def _single_models(runs: ComparableRuns) -> set[str]:
    """The models whose methods `single:<model>` the board has."""
    named = {*runs.methods, *(run.method for run in runs.left_out)}
    return {name.removeprefix(SINGLE_PREFIX) for name in named if name.startswith(SINGLE_PREFIX)}


def _command(
    warehouse: Warehouse,
    key: BoardKey,
    runs: ComparableRuns,
    methods: Sequence[str],
    again: Sequence[EvaluatedRun],
) -> str:
    """The command that runs methods (the usual ones by default) with the seeds of `again`, on the board's
    pool."""
    benchmark, protocol, per, split, _, trials, _ = key
    command = ["rlfocal", "evaluate", "--benchmark", benchmark]
    command += ["--methods", ",".join(methods)] if methods else []
    command += ["--protocol", protocol] if protocol != "frozen" else []
    seeds = [run.seed for run in again if run.seed is not None]
    command += ["--seeds", str(max(seeds) + 1)] if seeds else []
    command += ["--per", per] if per != "benchmark" else []
    command += ["--split", split] if split != GIVEN_ROWS else []
    command += ["--tune", str(trials)] if trials else []
    models = {*runs.models, *_single_models(runs)} & find_answering_models(warehouse, benchmark)
    if models and models != complete_models(warehouse, benchmark):
        command += ["--models", ",".join(sorted(models))]
    return shlex.join(command)


def complete_models(warehouse: Warehouse, benchmark: str) -> set[str]:
    """The models that answered all documents; they are evaluated unless others are named."""
    rows = warehouse.rows(script("queries/complete_models"), (benchmark, benchmark))
    return {model for (model,) in rows}


def note_guessing(warehouse: Warehouse, benchmark: str, models: Sequence[str]) -> str | None:
    """A sentence if no model is clearly better than guessing among the choices; None if one is.

    Also None for benchmarks with free answers, and with fewer than MIN_COMPARED_DOCUMENTS documents.
    """
    best = query_models(warehouse, "best_and_guessing", benchmark, models)
    if not best or best[0][1] < MIN_COMPARED_DOCUMENTS or best[0][3] is None:
        return None
    [(model, n, n_right, guessing)] = best
    # As scipy.stats.binomtest, which takes a second to import.
    if bdtrc(n_right - 1, n, guessing) < COMPARISON_LEVEL:
        return None
    return (
        f"{benchmark}: this pool is near guessing. Its most accurate model, {model}, is right on "
        f"{100 * n_right / n:.2f} % of {n:,} documents, and guessing is on {100 * guessing:.2f} %: "
        "differences between methods here are chance."
    )


def note_graded(warehouse: Warehouse, benchmark: str, models: Sequence[str]) -> str | None:
    """A sentence if answers are only graded, so that fusing them reads grades; else None."""
    if query_models(warehouse, "only_graded", benchmark, models) != [(True,)]:
        return None
    return (
        f"{benchmark}: answers are only graded right or wrong, and all wrong ones are alike. A method that "
        "compares answers of several models sees grades there; only those that ask one model are fair."
    )


def note_split(
    warehouse: Warehouse, benchmark: str, models: Sequence[str], split: str, run: str
) -> str | None:
    """How the train and test documents of a run differ, where chance does not explain it; else None.

    `split` is the value of `evaluations.split`. For a split that holds out tasks, a difference in tasks is
    not mentioned.
    """
    is_given = split == GIVEN_ROWS
    differences = _find_differences(
        warehouse, warehouse.snapshot(), benchmark, tuple(models), None if is_given else run, split
    )
    return describe(benchmark, differences)


@lru_cache(maxsize=8)
def _find_differences(
    warehouse: Warehouse, snapshot: int, benchmark: str, models: tuple[str, ...], run: str | None, split: str
) -> tuple[str, ...]:
    of_train, holds_out = split.startswith("train-"), "tasks" in split
    shares = count_shares(warehouse, benchmark, models, run, of_train=of_train)
    differences = find_differences([s for s in shares if s.kind != "task" or not holds_out])
    columns = "SELECT DISTINCT settings ->> 'differs' AS text FROM extractions WHERE benchmark = ? ORDER BY 1"
    imported = warehouse.rows(columns, [benchmark]) if run is None else []
    return *(text for (text,) in imported if text), *map(str, differences)

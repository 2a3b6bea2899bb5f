"""Notes on a board: omitted methods and models, stale runs, and a pool no better than guessing."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from scipy.special import bdtr, bdtrc

from rlfocal.base.errors import InputError
from rlfocal.data.dataset import Kind
from rlfocal.data.loading import load_dataset
from rlfocal.evaluation.comparable import GIVEN_ROWS, SINGLE_PREFIX, BoardKey, ComparableRuns, EvaluatedRun
from rlfocal.extraction.recording import tied_models
from rlfocal.methods import entries, entry_of, find_methods, methods_for
from rlfocal.statistics.homogeneity import count_shares, describe, find_differences
from warehouse import Warehouse
from warehouse.scripts import script


def find_answering_models(warehouse: Warehouse, benchmark: str) -> set[str]:
    """The models whose answers to the benchmark the warehouse holds."""
    asked = "SELECT DISTINCT model FROM extractions WHERE benchmark = ?"
    return {model for (model,) in warehouse.rows(asked, [benchmark])}


def query_models(
    warehouse: Warehouse, query: str, benchmark: str, models: Sequence[str]
) -> list[tuple[Any, ...]]:
    """The rows of the SQL script `query` for a benchmark and models, cached for the benchmark's boards."""
    return _query_models_at(warehouse, warehouse.snapshot(), query, benchmark, tuple(models))


@lru_cache(maxsize=8)
def _query_models_at(
    warehouse: Warehouse, snapshot: int, query: str, benchmark: str, models: tuple[str, ...]
) -> list[tuple[Any, ...]]:
    return warehouse.rows(script(f"queries/{query}"), [benchmark, list(models)])


MIN_COMPARED_DOCUMENTS = 30
"""The fewest documents for a note that the pool is near guessing."""
COMPARISON_LEVEL = 0.025
"""The level of the one-sided test of whether a model is better than guessing."""


def notes(
    warehouse: Warehouse, key: BoardKey, runs: ComparableRuns, missing: Sequence[str] = ()
) -> tuple[str, ...]:
    """Sentences on what a board omits, on stale runs, and on data that limit its comparisons.

    `missing`: the usual methods that were never evaluated on the board's data.
    """
    every = [
        _note_pool(key),
        _note_gone(runs),
        _note_stale(warehouse, key, runs),
        _note_left_out(warehouse, key, runs),
        _note_missing(warehouse, key, runs, missing),
        note_guessing(warehouse, key.benchmark, runs.models),
        note_graded(warehouse, key.benchmark, runs.models),
        note_split(warehouse, key.benchmark, runs.models, key.split, runs.run_id),
        note_ties(warehouse, key.benchmark),
    ]
    return tuple(note for note in every if note is not None)


def note_ties(warehouse: Warehouse, benchmark: str) -> str | None:
    """A sentence on models whose likeliest choices often tie; None if there are none."""
    return " ".join(tied_models(warehouse, benchmark)) or None


def _note_pool(key: BoardKey) -> str | None:
    """A sentence that names the board's models; None if they are the benchmark's widest pool."""
    pool = key.other_pool
    return f"{key.benchmark}: this board is of {len(pool)} models: {', '.join(pool)}." if pool else None


def _note_gone(runs: ComparableRuns) -> str | None:
    """Sentences on models whose answers were removed, and on figures that the board then lacks, or None."""
    if not runs.removed_models:
        return None
    return (
        f"No longer in the warehouse: {', '.join(runs.removed_models)}. Runs are shown as they were stored. "
        "The accuracy of single models and the diversity of pools need the missing answers and are left out."
    )


def _note_stale(warehouse: Warehouse, key: BoardKey, runs: ComparableRuns) -> str | None:
    """Sentences that name stale runs, which read labels that were corrected later, and the command to repeat
    them; None if there are none."""
    stale = {name: run for name, of in runs.methods.items() for run in of if run.is_stale}
    if not stale:
        return None
    command = _write_command(warehouse, key, runs, sorted(stale), list(stale.values()))
    return f"Evaluated before labels were corrected: {', '.join(sorted(stale))}. Run `{command}` again."


def _note_left_out(warehouse: Warehouse, key: BoardKey, runs: ComparableRuns) -> str | None:
    """Sentences that name methods evaluated on other data only, and the command that adds them to the board.

    None if there are none. Methods that can no longer run on the benchmark are not named.
    """
    benchmark = key.benchmark
    present = find_answering_models(warehouse, benchmark)
    out = {SINGLE_PREFIX + model for model in _list_single_models(runs) - present}
    kind = kind_of(warehouse, benchmark)
    out |= {name for name, entry in entries().items() if kind not in entry.kinds}
    left_out = [run for run in runs.excluded_runs if run.method not in out]
    if not left_out:
        return None
    missing = ", ".join(sorted({run.method for run in left_out}))
    named = {*runs.methods, *(run.method for run in left_out)} - out
    command = _write_command(warehouse, key, runs, sorted(named), left_out)
    return f"Evaluated on other data and left out: {missing}. To compare, run `{command}`."


def missing_methods(warehouse: Warehouse, key: BoardKey, runs: ComparableRuns) -> tuple[str, ...]:
    """The usual methods that were not evaluated on the board's data, because a run broke off or never began.

    The usual methods are those that `rlfocal evaluate` runs by default, as far as data and pool admit them,
    without other packages' methods. Boards of methods that read the tasks' names have no usual ones.
    """
    benchmark, protocol = key.benchmark, key.protocol
    if key.reads_task:
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
        if data is None or entry.explain_missing(data, protocol, per=key.per) is None
    )


def _note_missing(
    warehouse: Warehouse, key: BoardKey, runs: ComparableRuns, missing: Sequence[str]
) -> str | None:
    """A sentence that names the `missing` usual methods and the command to evaluate them; None if empty."""
    if not missing:
        return None
    told = f"Not evaluated, though usual: {', '.join(missing)}"
    if runs.removed_models:
        return f"{told}."
    again = [run for of in runs.methods.values() for run in of]
    return f"{told}; run `{_write_command(warehouse, key, runs, (), again)}`."


def kind_of(warehouse: Warehouse, benchmark: str) -> Kind:
    """The kind of a benchmark's documents, choices or free answers; choices if the documents were deleted."""
    labels = "SELECT bool_or(label IS NOT NULL) FROM docs WHERE benchmark = ?"
    return "answers" if warehouse.rows(labels, [benchmark])[0][0] is False else "choices"


def _list_single_models(runs: ComparableRuns) -> set[str]:
    """The models whose `single:<model>` is on the board, or was evaluated on other data."""
    named = {*runs.methods, *(run.method for run in runs.excluded_runs)}
    return {name.removeprefix(SINGLE_PREFIX) for name in named if name.startswith(SINGLE_PREFIX)}


def _write_command(
    warehouse: Warehouse,
    key: BoardKey,
    runs: ComparableRuns,
    methods: Sequence[str],
    runs_to_repeat: Sequence[EvaluatedRun],
) -> str:
    """The command that evaluates methods, by default the usual ones, on the board's pool and for as many
    seeds as `runs_to_repeat` have."""
    command = ["rlfocal", "evaluate", "--benchmark", key.benchmark]
    command += ["--methods", ",".join(methods)] if methods else []
    command += ["--protocol", key.protocol] if key.protocol != "frozen" else []
    seeds = [run.seed for run in runs_to_repeat if run.seed is not None]
    command += ["--seeds", str(max(seeds) + 1)] if seeds else []
    command += ["--per", key.per] if key.per != "benchmark" else []
    command += ["--split", key.split] if key.split != GIVEN_ROWS else []
    command += ["--tune", str(key.trials)] if key.trials else []
    models = {*runs.models, *_list_single_models(runs)} & find_answering_models(warehouse, key.benchmark)
    if models and models != complete_models(warehouse, key.benchmark):
        command += ["--models", ",".join(sorted(models))]
    return shlex.join(command)


def complete_models(warehouse: Warehouse, benchmark: str) -> set[str]:
    """The models that answered all documents of a benchmark, which are the default pool."""
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
    is_below = bdtr(n_right, n, guessing) < COMPARISON_LEVEL
    meaning = "labels may be of other choices" if is_below else "differences between methods here are chance"
    return (
        f"{benchmark}: this pool is {'below' if is_below else 'near'} guessing. Its most accurate model, "
        f"{model}, is right on {100 * n_right / n:.2f} % of {n:,} documents, and guessing is on "
        f"{100 * guessing:.2f} %: {meaning}."
    )


def note_graded(warehouse: Warehouse, benchmark: str, models: Sequence[str]) -> str | None:
    """A sentence if answers are only graded, so that comparing them shows who is right; else None."""
    if query_models(warehouse, "only_graded", benchmark, models) != [(True,)]:
        return None
    return (
        f"{benchmark}: answers are only graded right or wrong, and all wrong ones are alike. A method that "
        "compares answers of several models sees grades there; only those that ask one model are fair."
    )


def note_split(
    warehouse: Warehouse, benchmark: str, models: Sequence[str], split: str, run: str
) -> str | None:
    """A sentence on how a run's train and test documents differ, if chance does not explain it; else None.

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

"""What a reader of a board should know: what it leaves out, what is stale, what its pool cannot show."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from scipy.special import bdtrc

from rlfocal.data.dataset import Kind
from rlfocal.evaluation.comparable import (
    GIVEN_ROWS,
    SINGLE,
    BoardKey,
    Comparable,
    Run,
    about_models,
    answering,
)
from rlfocal.methods import entries
from warehouse import Warehouse
from warehouse.scripts import script

FEWEST = 30
"""Documents below which nothing is said."""
LEVEL = 0.025
"""One-sided: the lower end of a 95 % interval."""


def notes(warehouse: Warehouse, key: BoardKey, runs: Comparable) -> tuple[str, ...]:
    """What a reader of the board should know: what it leaves out, what is stale, that its pool guesses."""
    every = [
        note_pool(key),
        note_gone(runs),
        note_stale(warehouse, key, runs),
        note_left_out(warehouse, key, runs),
        note_guessing(warehouse, key[0], runs.models),
        note_graded(warehouse, key[0], runs.models),
    ]
    return tuple(note for note in every if note is not None)


def note_pool(key: BoardKey) -> str | None:
    """Which models the board is of, where they are not the pool that stands for the benchmark."""
    return f"{key[0]}: this board is of {len(key[6])} models: {', '.join(key[6])}." if key[6] else None


def note_gone(runs: Comparable) -> str | None:
    """Which models the warehouse has lost, and what the board therefore lacks; None if none is lost."""
    if not runs.gone:
        return None
    return (
        f"No longer in the warehouse: {', '.join(runs.gone)}. Runs are shown as they were stored; what needs "
        "the missing answers (accuracy alone and the diversity of pools) is left out."
    )


def note_stale(warehouse: Warehouse, key: BoardKey, runs: Comparable) -> str | None:
    """Which methods read labels that were corrected since, and the command that runs them again."""
    stale = {name: run for name, of in runs.methods.items() for run in of if run.is_stale}
    if not stale:
        return None
    command = _command(warehouse, key, runs, sorted(stale), list(stale.values()))
    return f"Evaluated before labels were corrected: {', '.join(sorted(stale))}. Run `{command}` again."


def note_left_out(warehouse: Warehouse, key: BoardKey, runs: Comparable) -> str | None:
    """Which methods the board lacks, and the command that evaluates all on the same data; None if none.

    Methods that can no longer run are not listed: a model that is gone, a method that needs choices.
    """
    benchmark = key[0]
    present = answering(warehouse, benchmark)
    out = {SINGLE + model for model in _alone(runs) - present}
    kind = kind_of(warehouse, benchmark)
    out |= {name for name, entry in entries().items() if kind not in entry.kinds}
    left_out = [run for run in runs.left_out if run.method not in out]
    if not left_out:
        return None
    missing = ", ".join(sorted({run.method for run in left_out}))
    named = {*runs.methods, *(run.method for run in left_out)} - out
    command = _command(warehouse, key, runs, sorted(named), left_out)
    return f"Evaluated on other data and left out: {missing}. To compare, run `{command}`."


def kind_of(warehouse: Warehouse, benchmark: str) -> Kind:
    """Whether the benchmark's documents have choices; assumed of documents that are gone."""
    labels = "SELECT bool_or(label IS NOT NULL) FROM docs WHERE benchmark = ?"
    return "answers" if warehouse.rows(labels, [benchmark])[0][0] is False else "choices"


def _alone(runs: Comparable) -> set[str]:
    """The models of all methods `single:<model>`."""
    named = {*runs.methods, *(run.method for run in runs.left_out)}
    return {name.removeprefix(SINGLE) for name in named if name.startswith(SINGLE)}


def _command(
    warehouse: Warehouse, key: BoardKey, runs: Comparable, methods: Sequence[str], again: Sequence[Run]
) -> str:
    """The command that runs methods, with the seeds of `again`, on the board's pool."""
    benchmark, _, per, split, _, trials, _ = key
    command = ["rlfocal", "evaluate", "--benchmark", benchmark, "--methods", ",".join(methods)]
    seeds = [run.seed for run in again if run.seed is not None]
    command += ["--seeds", str(max(seeds) + 1)] if seeds else []
    command += ["--per", per] if per != "benchmark" else []
    command += ["--split", split] if split != GIVEN_ROWS else []
    command += ["--tune", str(trials)] if trials else []
    models = {*runs.models, *_alone(runs)} & answering(warehouse, benchmark)
    if models and models != complete_models(warehouse, benchmark):
        command += ["--models", ",".join(sorted(models))]
    return shlex.join(command)


def complete_models(warehouse: Warehouse, benchmark: str) -> set[str]:
    """The models that answered all documents: those that are evaluated unless others are named."""
    rows = warehouse.rows(script("queries/complete_models"), (benchmark, benchmark))
    return {model for (model,) in rows}


def note_guessing(warehouse: Warehouse, benchmark: str, models: Sequence[str]) -> str | None:
    """A sentence where no model is clearly better than guessing among the choices; None if one is.

    Also None for benchmarks with free answers, and below FEWEST documents.
    """
    best = about_models(warehouse, "best_and_guessing", benchmark, models)
    if not best or best[0][1] < FEWEST or best[0][3] is None:
        return None
    [(model, n, n_right, guessing)] = best
    if bdtrc(n_right - 1, n, guessing) < LEVEL:  # as scipy.stats.binomtest, which takes a second to import
        return None
    return (
        f"{benchmark}: this pool is near guessing. Its most accurate model, {model}, is right on "
        f"{100 * n_right / n:.2f} % of {n:,} documents, and guessing is on {100 * guessing:.2f} %: "
        "differences between methods here are chance."
    )


def note_graded(warehouse: Warehouse, benchmark: str, models: Sequence[str]) -> str | None:
    """A sentence where answers are only graded, so that fusing them reads grades; None elsewhere."""
    if about_models(warehouse, "only_graded", benchmark, models) != [(True,)]:
        return None
    return (
        f"{benchmark}: answers are only graded right or wrong, and all wrong ones are alike. A method that "
        "compares answers of several models sees grades there; only those that ask one model are fair."
    )

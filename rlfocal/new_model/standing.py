"""Reads from the warehouse how a model stands, and trains RL-Focal's methods with and without it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from rlfocal.base.errors import InputError
from rlfocal.base.names import RL_FOCAL
from rlfocal.base.request import Progress
from rlfocal.base.wording import mean_known
from rlfocal.evaluation import evaluate
from rlfocal.evaluation.comparable import answering
from rlfocal.evaluation.notes import complete_models, note_guessing
from rlfocal.new_model.copies import PairedAnswers, read_paired_answers
from rlfocal.new_model.pools import Agents, Pair, Price, Score, Standing, best_pools, every_pool_of
from rlfocal.pool.specs import ModelSpec
from warehouse import Warehouse
from warehouse.scripts import script

METHODS = RL_FOCAL[:2]


class Comparison(NamedTuple):
    """A standing, what it was read from, and what a reader should know of it."""

    standing: Standing
    said: PairedAnswers
    notes: list[str]


def compare_with_pool(
    warehouse: Warehouse,
    benchmark: str,
    model: str,
    others: Sequence[str],
    seeds: int = 0,
    on_progress: Progress | None = None,
) -> Comparison | None:
    """How `model` compares with the others of its pool on a benchmark; None if it answered nothing.

    With `seeds`, RL-Focal's methods are trained with and without it, as far as the warehouse has no such run.
    """
    said = read_paired_answers(warehouse, benchmark, model, others)
    if said is None:
        return None
    notes, tried = [], every_pool_of(said)
    if left_out := tuple(sorted((answering(warehouse, benchmark) & {*others}) - {*said.models})):
        notes.append(
            f"{benchmark}: no pool includes {', '.join(left_out)}, which did not answer all documents that "
            f"{model} did."
        )
    if (guessing := note_guessing(warehouse, benchmark, [model, *others])) is not None:
        notes.append(guessing)
    if said.kind == "choices" and (scored := _note_evidence(warehouse, benchmark, model)) is not None:
        notes.append(scored)
    of_tasks = (
        "SELECT task, n, accuracy, stderr FROM accuracy WHERE (benchmark, model) = (?, ?) ORDER BY task"
    )
    scores = warehouse.rows(of_tasks, [benchmark, model])
    named = {"benchmark": benchmark, "model": model}
    [ranked] = warehouse.rows(script("queries/ranks"), {**named, "models": [model, *others]})
    n, accuracy, stderr, rank, n_models = ranked
    pairs = warehouse.rows(script("queries/pairs_of_model"), named)
    agents: tuple[Agents, ...] = ()
    if seeds:
        agents, note = _train_both(warehouse, benchmark, model, others, seeds, on_progress)
        notes += [note] if note else []
    standing = Standing(
        benchmark,
        Score("*", n, accuracy, stderr),
        rank,
        n_models,
        tuple(Score(*score) for score in scores),
        tuple(Pair(*pair) for pair in pairs if pair[0] in others),
        () if tried is None else best_pools(tried),
        agents,
    )
    return Comparison(standing, said, notes)


def _train_both(
    warehouse: Warehouse,
    benchmark: str,
    model: str,
    others: Sequence[str],
    seeds: int,
    on_progress: Progress | None,
) -> tuple[tuple[Agents, ...], str | None]:
    """RL-Focal's methods without and with the model, and why some are missing.

    Those with it are on the leaderboard from now on.
    """
    complete = complete_models(warehouse, benchmark)
    if model not in complete:
        return (), f"{benchmark}: RL-Focal was not trained, because {model} answered only part of it"
    found: list[Agents] = []
    before = sorted(complete.intersection(others))
    for names in (before, sorted({*before, model})):
        if not names:
            continue
        try:
            report = evaluate(
                warehouse, benchmark, methods=METHODS, models=names, seeds=seeds, on_progress=on_progress
            )
        except InputError as error:  # one model alone, or no train rows
            return tuple(found), f"{benchmark}: RL-Focal was not trained: {error}"
        for method in METHODS:
            runs = [row for row in report.rows if (row.task, row.method) == ("*", method)]
            found.append(
                Agents(
                    method,
                    model in names,
                    len(runs),
                    runs[0].n,
                    fmean(row.accuracy for row in runs),
                    fmean(row.mean_pool_size for row in runs),
                    mean_known(row.cost for row in runs),
                )
            )
    return tuple(found), None


def price_of(warehouse: Warehouse, spec: ModelSpec) -> Price:
    """What its entry says, and what its extraction took."""
    [(n_docs, seconds, paid)] = warehouse.rows(
        "SELECT coalesce(sum(n_docs), 0)::BIGINT, coalesce(sum(seconds), 0)::DOUBLE, sum(paid) "
        "FROM extractions WHERE model = ?",
        [spec.model],
    )
    return Price(
        spec.params_b or None,
        spec.active_params_b,
        0 if spec.is_closed else spec.tensor_parallel,
        spec.price,
        spec.price_input,
        spec.price_output,
        n_docs,
        seconds,
        paid,
    )


def _note_evidence(warehouse: Warehouse, benchmark: str, model: str) -> str | None:
    """What stands for the log-probs of a model whose service gives none; None where it has its own."""
    rows = warehouse.rows(
        "SELECT DISTINCT evidence FROM extractions WHERE benchmark = ? AND model = ?", [benchmark, model]
    )
    kinds = {kind for (kind,) in rows}
    if "samples" in kinds:
        return (
            f"{benchmark}: the service of {model} gives no log-probs, so a choice has its share of sampled "
            "texts; methods that take logarithms of probabilities, such as log_linear, cannot run with it."
        )
    if "top_logprobs" in kinds:
        return f"{benchmark}: {model} has the log-probs that its service lists for an answer's first token."
    return None

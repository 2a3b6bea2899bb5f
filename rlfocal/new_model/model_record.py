"""Compares a model with its pool by its answers in the warehouse, and estimates what it is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rlfocal.base.errors import RunError
from rlfocal.data.loading import load_dataset
from rlfocal.evaluation.notes import complete_models, find_answering_models, note_guessing
from rlfocal.new_model.copies import PairedAnswers
from rlfocal.new_model.probing import Assessment, assess_member
from rlfocal.pool.specs import ModelSpec, PoolSpec
from warehouse import Warehouse
from warehouse.scripts import script


@dataclass(frozen=True)
class Score:
    """A model's accuracy on the documents of one task, or of all tasks (`*`)."""

    task: str
    n: int
    accuracy: float
    stderr: float | None
    """The standard error over documents; None for a single document."""


@dataclass(frozen=True)
class ModelRecord:
    """A model's figures on one benchmark, compared with the pool's other models."""

    benchmark: str
    score: Score
    rank: int
    """The model's rank by accuracy on the benchmark; the most accurate has rank 1."""
    n_models: int
    tasks: tuple[Score, ...]
    assessment: Assessment | None
    """An estimate of what the model is worth; None if its answers are incomplete, or no team can be
    fitted."""


@dataclass(frozen=True)
class Price:
    """The costs of running a model. A None stands for an unknown cost."""

    params_b: float | None
    active_params_b: float | None
    gpus: int
    """The number of GPUs that the model is split across; 0 for a model that a service runs."""
    price: float | None
    """The price in cents per 1,000 queries."""
    price_input: float | None
    price_output: float | None
    """The prices of prompt tokens (`price_input`) and generated tokens, in cents per million tokens."""
    n_docs: int
    seconds: float
    """The seconds that the engine took to answer `n_docs` documents."""
    paid: float | None = None
    """The cents that the service was paid for these answers; None if nothing is paid."""


class PoolComparison(NamedTuple):
    """A comparison of a model with the others of its pool on one benchmark."""

    record: ModelRecord
    answers: PairedAnswers | None
    """The answers of the model and of the pool's complete models; None if the model, or all others, answered
    only part of the benchmark."""
    notes: list[str]
    """Sentences that a reader of the figures needs."""


def compare_with_pool(
    warehouse: Warehouse, benchmark: str, model: str, other_models: Sequence[str]
) -> PoolComparison | None:
    """Compares `model` with the others of its pool on a benchmark; None if it answered nothing there."""
    named = {"benchmark": benchmark, "model": model, "models": [model, *other_models]}
    ranked = warehouse.rows(script("queries/ranks"), named)
    if not ranked:
        return None
    [(n, accuracy, stderr, rank, n_models)] = ranked
    of_tasks = (
        "SELECT task, n, accuracy, stderr FROM accuracy WHERE (benchmark, model) = (?, ?) ORDER BY task"
    )
    scores = warehouse.rows(of_tasks, [benchmark, model])
    assessment, answers, notes = _assess(warehouse, benchmark, model, other_models)
    notes += [
        note
        for note in (
            note_guessing(warehouse, benchmark, [model, *other_models]),
            _note_evidence(warehouse, benchmark, model),
        )
        if note is not None
    ]
    tasks = tuple(Score(*score) for score in scores)
    whole = Score("*", n, accuracy, stderr)
    return PoolComparison(ModelRecord(benchmark, whole, rank, n_models, tasks, assessment), answers, notes)


def _assess(
    warehouse: Warehouse, benchmark: str, model: str, other_models: Sequence[str]
) -> tuple[Assessment | None, PairedAnswers | None, list[str]]:
    """The model's assessment beside those models that answered all documents, their answers, and notes on
    other models."""
    complete = complete_models(warehouse, benchmark)
    if model not in complete:
        return (
            None,
            None,
            [f"{benchmark}: what {model} brings is unknown, because it answered only part of it."],
        )
    members = complete & {*other_models}
    notes = []
    if left_out := sorted((find_answering_models(warehouse, benchmark) & {*other_models}) - members):
        notes.append(f"{benchmark}: no team includes {', '.join(left_out)}, which answered only part of it.")
    if not members:
        return None, None, notes
    data = load_dataset(warehouse, benchmark, sorted({*members, model}))
    answers = PairedAnswers.from_dataset(data)
    try:
        return assess_member(data, model), answers, notes
    except RunError as error:
        return None, answers, [*notes, f"{benchmark}: no team could be fitted: {error}"]


def price_of(warehouse: Warehouse, spec: ModelSpec) -> Price:
    """The model's prices by its entry, and the costs of its extraction."""
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
    """A note on where a service's log-probs come from: samples, or listed tokens; None for a model with
    log-probs of its own."""
    rows = warehouse.rows(
        "SELECT DISTINCT evidence FROM extractions JOIN benchmarks USING (benchmark) "
        "WHERE benchmark = ? AND model = ? AND kind = 'choices'",
        [benchmark, model],
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


def limit_of_others(warehouse: Warehouse, pool: PoolSpec, other_models: Sequence[str]) -> int | None:
    """The limit with which the pool's other models were extracted; None if there was none, or several. If the
    new model answered more documents than they did, each of their partitions would be incomplete."""
    sizes = warehouse.rows(
        "SELECT n_docs, coalesce(n_whole, n_docs) FROM extractions "
        "WHERE list_contains(?, model) AND list_contains(?, benchmark)",
        [other_models, [benchmark.name for benchmark in pool.benchmarks]],
    )
    limit = max((n for n, n_whole in sizes if n < n_whole), default=None)
    is_one = limit is not None and all(n == min(limit, n_whole) for n, n_whole in sizes)
    return limit if is_one else None

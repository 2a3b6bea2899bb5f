"""Compares a model with its pool by its answers in the warehouse, estimates what it is worth, and finds the
model that it may be a copy of: of documents that both get wrong, copies get too many wrong in the same way.

Agreement on right answers says little, because there is one way to be right. Documents with two choices say
nothing and are left out. The pool's other pairs show the usual share of common errors that are the same. The
log-odds of their shares are treated as a normal sample. Its prediction interval contains one more honest pair
with a probability of 99.9 %. A pair counts as one model if the lower end of its own 99.9 % interval (Wilson,
1927) is above that interval.

Measured: none of the 12 models of `lab`, 16 on MMLU, 5 on BIG-Bench Hard and 44 on GSM8K is called a copy.
Noise of standard deviation 0.1 on the log-probs of a copy hides 0 of 12 copies (`lab`) and 1 of 16 (MMLU).
Noise of 0.5 hides 0 and 14.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import exp, log, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest
from scipy.stats import t as student

from rlfocal.base.arrays import Bools, Ints
from rlfocal.base.errors import RunError
from rlfocal.data.dataset import Dataset
from rlfocal.data.loading import load_dataset
from rlfocal.evaluation.notes import complete_models, find_answering_models, note_guessing
from rlfocal.new_model.batches import VERDICT_ERROR_RATE
from rlfocal.new_model.probing import Assessment, design_probe
from rlfocal.new_model.team import leave_out
from rlfocal.pool.specs import ModelSpec, PoolSpec
from warehouse import Warehouse
from warehouse.scripts import script

COPY_CONFIDENCE = 0.999
MIN_ERRORS = 20
"""The least number of documents that both models of a pair get wrong for the pair to inform the limit."""
MIN_PAIRS = 3
COPY_CORRELATION = 0.8
"""The largest limit on the share of common errors with the same answer. A pair whose interval lies above it
is a copy, however alike other pairs are.

The highest share of an honest pair was 0.721 on MMLU (Yi-34B and Qwen-72B), 0.409 on BIG-Bench Hard and 0.597
on GSM8K.
"""


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
        others, own = leave_out(data, model)
        assessment = design_probe(others, seed=0).assess(np.arange(len(data)), own, VERDICT_ERROR_RATE)
        return assessment, answers, notes
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


@dataclass(frozen=True)
class PairedAnswers:
    """The answers of N models to the same T documents."""

    models: tuple[str, ...]
    """The names of the N models."""
    predictions: Ints
    """The predicted choices, or numbers of a document's distinct answers; -1 for no answer: (T, N)."""
    labels: Ints
    """The right choice or number of each document; -1 if no model is right: (T,)."""
    has_several_wrong: Bools
    """Whether a document can be wrong in more than one way, which two choices rule out: (T,)."""

    @classmethod
    def from_dataset(cls, data: Dataset) -> PairedAnswers:
        has_several = data.n_choices > 2 if data.kind == "choices" else np.ones(len(data), dtype=np.bool_)
        return cls(data.models, data.predictions, data.labels, has_several)

    @property
    def errors(self) -> Bools:
        """Whether each model is wrong on each document: (T, N)."""
        errors: Bools = (self.predictions != self.labels[:, None]) | (self.labels[:, None] < 0)
        return errors


Pair = tuple[str, str]


@dataclass(frozen=True)
class CommonErrors:
    """The numbers of documents that two models both get wrong."""

    both_wrong: int
    same: int
    """The number of documents that both models get wrong with the same answer."""

    @property
    def share(self) -> float:
        """The share of common errors with the same answer; NaN if the two are never wrong together."""
        return self.same / self.both_wrong if self.both_wrong else float("nan")


@dataclass(frozen=True)
class ErrorCorrelation:
    """A comparison of a model's errors with those of the model that errs most alike."""

    model: str
    errors: CommonErrors
    low: float
    """The lower end of the 99.9 % interval of `errors.share`."""
    limit: float
    """The share below which a pair of two honest models stays."""
    n_pairs: int
    """The number of other pairs that `limit` is computed from. With too few, `limit` is COPY_CORRELATION."""

    @property
    def is_copy(self) -> bool:
        return self.low > self.limit


def count_common_errors(benchmarks: Sequence[PairedAnswers]) -> dict[Pair, CommonErrors]:
    """The common errors of every two models over all benchmarks, by their names in alphabetical order."""
    counted: dict[Pair, CommonErrors] = {}
    for answers in benchmarks:
        kept = answers.has_several_wrong
        wrong, predictions = answers.errors[kept], answers.predictions[kept]
        for a, b in combinations(range(len(answers.models)), 2):
            both = wrong[:, a] & wrong[:, b]
            same = both & (predictions[:, a] == predictions[:, b]) & (predictions[:, a] >= 0)
            first, second = sorted((answers.models[a], answers.models[b]))
            pair = first, second
            before = counted.get(pair, CommonErrors(0, 0))
            counted[pair] = CommonErrors(
                before.both_wrong + int(np.count_nonzero(both)), before.same + int(np.count_nonzero(same))
            )
    return counted


def most_like(model: str, errors: Mapping[Pair, CommonErrors]) -> ErrorCorrelation | None:
    """The comparison with the model that `model` errs most like, by the lower end of the interval; None
    without common errors."""
    own = {(a if b == model else b): e for (a, b), e in errors.items() if model in (a, b) and e.both_wrong}
    if not own:
        return None
    usual = [e for pair, e in errors.items() if model not in pair and e.both_wrong >= MIN_ERRORS]
    low, name = max(
        (binomtest(e.same, e.both_wrong).proportion_ci(COPY_CONFIDENCE, "wilson").low, name)
        for name, e in own.items()
    )
    return ErrorCorrelation(name, own[name], float(low), _find_limit(usual), len(usual))


def _find_limit(usual: Sequence[CommonErrors]) -> float:
    """The limit of `CommonErrors.share`. One more honest pair stays below it with a probability of 99.9 %."""
    if len(usual) < MIN_PAIRS:
        return COPY_CORRELATION
    odds = [log((e.same + 0.5) / (e.both_wrong - e.same + 0.5)) for e in usual]
    reach = float(student.ppf(COPY_CONFIDENCE, len(odds) - 1)) * stdev(odds) * sqrt(1 + 1 / len(odds))
    return min(COPY_CORRELATION, 1 / (1 + exp(-fmean(odds) - reach)))

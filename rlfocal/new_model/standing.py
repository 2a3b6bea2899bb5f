"""Reads from the warehouse how a model stands, and trains RL-Focal's methods with and without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from statistics import fmean
from typing import NamedTuple

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError
from rlfocal.base.names import RL_FOCAL
from rlfocal.base.request import Progress
from rlfocal.base.wording import mean_known
from rlfocal.evaluation import evaluate
from rlfocal.evaluation.comparable import answering
from rlfocal.evaluation.notes import complete_models, note_guessing
from rlfocal.new_model.copies import PairedAnswers, read_paired_answers
from rlfocal.pool.specs import ModelSpec, PoolSpec
from rlfocal.report.pools import largest_enumerable
from rlfocal.statistics.diversity import every_pool, plurality_accuracy
from rlfocal.statistics.intervals import Difference, paired_bootstrap
from rlfocal.statistics.votes import plurality
from warehouse import Warehouse
from warehouse.scripts import script

METHODS = RL_FOCAL[:2]


@dataclass(frozen=True)
class Pool:
    """Models, and how often their plurality is right."""

    models: tuple[str, ...]
    train: float
    """Accuracy on train documents, by which it was chosen."""
    test: float | None
    """None without test documents."""


@dataclass(frozen=True)
class BestPools:
    """The best pools of one size on train documents."""

    size: int
    without: Pool | None
    """None if there are too few other models."""
    with_it: Pool
    gain: Difference | None
    """On test documents: the accuracy with it minus that without it; None without test documents or other
    pool."""

    @property
    def enters(self) -> bool:
        """Whether the best pool of this size includes it."""
        return self.without is None or self.with_it.train > self.without.train

    @property
    def gains(self) -> bool:
        """Whether the best pool of this size is better for it on test documents: its interval excludes 0."""
        return self.enters and self.gain is not None and self.gain.low > 0


@dataclass(frozen=True)
class Tried:
    """Every pool up to a size on train documents."""

    said: PairedAnswers
    pools: Bools
    """(P, N) smaller pools first, then in the order of names."""
    accuracies: Floats
    """(P,) of their pluralities."""

    @cached_property
    def sizes(self) -> Ints:
        """(P,)"""
        return np.asarray(self.pools.sum(axis=1))

    @property
    def has_it(self) -> Bools:
        """(P,)"""
        return self.pools[:, self.said.at]

    def best(self, allowed: Bools) -> int | None:
        """The place of the best allowed pool; ties: the first."""
        return int(np.where(allowed, self.accuracies, -1.0).argmax()) if allowed.any() else None

    def right(self, at: int) -> Bools:
        """(T,) whether the plurality of the pool at this place is right."""
        said = self.said
        winner = plurality(said.predictions, self.pools[at], said.kind)
        return np.asarray((winner == said.labels) & (said.labels >= 0))

    def pool(self, at: int) -> Pool:
        """The pool at this place."""
        test = self.right(at)[~self.said.is_train]
        names = tuple(compress(self.said.models, self.pools[at]))
        return Pool(names, float(self.accuracies[at]), float(test.mean()) if len(test) else None)


def every_pool_of(said: PairedAnswers) -> Tried | None:
    """Every pool of up to as many models as are quick to try; None if there is no train document."""
    n, at = len(said.models), said.is_train
    if not at.any():
        return None
    pools = np.vstack([np.eye(n, dtype=np.bool_), every_pool(n, min(largest_enumerable(n), n))])
    return Tried(said, pools, plurality_accuracy(said.predictions[at], said.labels[at], pools, said.kind))


def best_pools(tried: Tried) -> tuple[BestPools, ...]:
    """For each size, the smallest first."""
    found = []
    for size in range(1, int(tried.sizes.max()) + 1):
        with_it = tried.best((tried.sizes == size) & tried.has_it)
        without = tried.best((tried.sizes == size) & ~tried.has_it)
        assert with_it is not None
        gain = None if without is None else _gain(tried, with_it, without)
        other = None if without is None else tried.pool(without)
        found.append(BestPools(size, other, tried.pool(with_it), gain))
    return tuple(found)


def _gain(tried: Tried, with_it: int, without: int) -> Difference | None:
    hits = [tried.right(at)[None, ~tried.said.is_train].astype(np.float64) for at in (with_it, without)]
    return paired_bootstrap(*hits) if hits[0].size else None


@dataclass(frozen=True)
class Score:
    """Accuracy on the documents of one task, or of all (`*`)."""

    task: str
    n: int
    accuracy: float
    stderr: float | None
    """None for a single document."""


@dataclass(frozen=True)
class Pair:
    """The new model and another on the documents both answered, by `pairwise_diversity` and `agreement`."""

    model: str
    n: int
    disagreement: float
    q_statistic: float | None
    double_fault: float
    focal_diversity: float | None
    same_error: float | None


@dataclass(frozen=True)
class Agents:
    """One of RL-Focal's methods with the pool before or after: its means over seeds in `evaluations`."""

    method: str
    has_it: bool
    seeds: int
    n: int
    accuracy: float
    mean_pool_size: float
    cost: float | None
    """Cents per 1,000 queries; None if a price is unknown."""


@dataclass(frozen=True)
class Standing:
    """The model on one benchmark, beside the others."""

    benchmark: str
    score: Score
    rank: int
    """1: the most accurate model of the benchmark."""
    n_models: int
    tasks: tuple[Score, ...]
    pairs: tuple[Pair, ...]
    pools: tuple[BestPools, ...]
    agents: tuple[Agents, ...]


@dataclass(frozen=True)
class Price:
    """What the model costs to run; None: not known."""

    params_b: float | None
    active_params_b: float | None
    gpus: int
    """GPUs that it is split over; 0 for a service's."""
    price: float | None
    """Cents per 1,000 queries."""
    price_input: float | None
    price_output: float | None
    """Cents per million tokens."""
    n_docs: int
    seconds: float
    """Seconds that its engine took to answer so many documents."""
    paid: float | None = None
    """Cents that its service was paid for them; None where nothing is paid."""


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


def limit_of_others(warehouse: Warehouse, pool: PoolSpec, others: Sequence[str]) -> int | None:
    """The limit that the pool's other models were extracted with; None if they were not, or not all.

    More documents than theirs would make each of their partitions incomplete.
    """
    sizes = warehouse.rows(
        "SELECT n_docs, coalesce(n_whole, n_docs) FROM extractions "
        "WHERE list_contains(?, model) AND list_contains(?, benchmark)",
        [others, [benchmark.name for benchmark in pool.benchmarks]],
    )
    limit = max((n for n, n_whole in sizes if n < n_whole), default=None)
    is_one = limit is not None and all(n == min(limit, n_whole) for n, n_whole in sizes)
    return limit if is_one else None

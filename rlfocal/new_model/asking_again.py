"""Checks whether a pool's model still answers as before, by asking a few documents again.

Documents where a small change would show first are drawn more often. There, the model's two best choices, or
its samples, are nearly even. The limits on changes are those of `diff` (`rlfocal.upkeep.drift`). Sampled
answers are compared by a permutation test of each document's old and new answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from rlfocal.base import options
from rlfocal.base.arrays import Floats, Ints
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.base.request import Progress, checked
from rlfocal.base.tables import Table
from rlfocal.base.wording import interval
from rlfocal.data.dataset import Dataset
from rlfocal.data.loading import load_dataset
from rlfocal.extraction.running.probing import Batch, ask_documents
from rlfocal.extraction.running.runner import default_jobs
from rlfocal.extraction.tasks import load_tasks
from rlfocal.new_model import batches
from rlfocal.new_model.model_record import limit_of_others
from rlfocal.pool import load_pool
from rlfocal.pool.files import pool_names
from rlfocal.pool.specs import ModelSpec, PoolSpec
from rlfocal.statistics.sampling import Strata, StratifiedSample, double, stratify
from rlfocal.upkeep.drift import (
    FULL_PRECISION_LIMITS,
    LOW_PRECISION_LIMITS,
    ChangeVerdict,
    Limits,
    judge_share,
    shuffled_p_value,
)
from warehouse import Warehouse, open_warehouse
from warehouse.scripts import script

FIRST_ASKED_SHARE, MAX_ASKED_SHARE = 0.001, 0.01
"""The share of a benchmark's documents that is asked before the first verdict, and the largest share that is
asked."""
MIN_FIRST_DOCUMENTS, MIN_ALL_DOCUMENTS = 16, 64


@dataclass(frozen=True)
class Recheck:
    """The result of asking a model documents of one benchmark again."""

    probe_id: str
    model: str
    benchmark: str
    n: int
    n_docs: int
    changed: str | None
    """What differs by more than noise explains: "log-probs" or "answers"; None if nothing does."""
    moved: int | None
    """The number of documents with a log-prob that moved by more than noise explains; None for free
    answers."""
    flipped: int
    """The number of documents whose prediction changed."""
    accuracy: tuple[float, float, float]
    """The estimated change of accuracy on all documents, as a fraction, with the ends of its 95 %
    interval."""
    seconds: float
    paid: float | None
    verdict: str
    """"as before", or "changed" or "unclear" with the kind of answers. It is unclear if chance may explain a
    change beyond the limit."""


@dataclass(frozen=True)
class Rechecker:
    """Chooses the next documents to ask a model again."""

    probe_id: str
    benchmark: str
    model: str
    limits: Limits
    samples: int | None
    """The number of sampled texts from which a service's choices get their probabilities; None if it gives
    log-probs."""

    _read: list[tuple[Dataset, Strata]] = field(default_factory=list, init=False, repr=False)

    def strata(self, warehouse: Warehouse) -> tuple[Dataset, Strata]:
        """The model's stored answers, and the strata that documents are drawn from. They are read once."""
        if not self._read:
            data = load_dataset(warehouse, self.benchmark, [self.model])
            best = np.sort(data.probs[:, 0], axis=1)
            lead = best[:, -1] - (best[:, -2] if best.shape[1] > 1 else 0.0)
            self._read.append((data, stratify(1.05 - lead, int(self.probe_id[-8:], 16))))
        return self._read[0]

    def __call__(self, warehouse: Warehouse) -> Batch:
        data, strata = self.strata(warehouse)
        _, answered, n = self.compare(warehouse)
        sizes = plan_sizes(len(data))
        left = [size for size in sizes if size > n]
        if not left or (n and self.judge(answered, len(sizes))[1] == "changed"):
            return {}
        return batches.draw_batch(data, strata, left[0])

    def compare(self, warehouse: Warehouse) -> tuple[Ints, list[dict[str, Any]], int]:
        """The positions of the asked documents; the old and new answers to them; and the number of documents
        of the draw that are all asked."""
        data, strata = self.strata(warehouse)
        about = {"probe_id": self.probe_id, "allowed": self.limits.logprob}
        warehouse.connection.execute(script("snapshots/comparison"))
        stored = warehouse.query(script("queries/answered_again"), about).to_pylist()
        return batches.sort_answers(data, strata, stored)

    def judge(self, answer_rows: Sequence[dict[str, Any]], looks: int) -> tuple[str, ChangeVerdict]:
        """What is compared, "log-probs" or "answers", and whether it changed by more than noise explains. The
        probability that one of so many `looks` finds a change by chance alone is VERDICT_ERROR_RATE."""
        level = batches.VERDICT_ERROR_RATE / looks
        if self.samples is None and (n := sum(row["n_choices"] or 0 for row in answer_rows)):
            n_beyond = sum(row["n_beyond"] or 0 for row in answer_rows)
            return "log-probs", judge_share(n_beyond, n, self.limits.moved, level)
        if self.samples is None and all(len(row["given_now"] or ()) < 2 for row in answer_rows):
            flipped = [row["flipped"] for row in answer_rows]
            return "answers", judge_share(sum(flipped), len(flipped), self.limits.flipped, level)
        is_past = shuffled_p_value(map(self._count_answers, answer_rows)) < level
        return "answers", "changed" if is_past else "unchanged"

    def _count_answers(self, row: dict[str, Any]) -> Floats:
        """The number of times that each of a document's K distinct answers was given, before and now: (2,
        K)."""
        if row["n_choices"] and self.samples:
            return np.round(np.exp([row["shares_before"], row["shares_now"]]) * self.samples)
        given = [row["given_before"] or [], row["given_now"] or []]
        kinds = list(dict.fromkeys(given[0] + given[1]))
        return np.array([[side.count(kind) for kind in kinds] for side in given], dtype=np.float64)


def plan_sizes(n_docs: int) -> tuple[int, ...]:
    """The numbers of asked documents after which a verdict is made."""
    first = min(n_docs, max(MIN_FIRST_DOCUMENTS, ceil(FIRST_ASKED_SHARE * n_docs)))
    last = min(n_docs, max(MIN_ALL_DOCUMENTS, ceil(MAX_ASKED_SHARE * n_docs)))
    return double(first, last)


@checked
def ask_again(
    benchmark: options.Benchmark,
    model: str,
    *,
    pool: options.Name | None = None,
    warehouse: str | Path | None = None,
    backend: options.Backend = None,
    datasets: options.Datasets | Path = None,
    on_progress: Progress | None = None,
) -> Recheck:
    """Checks whether a model still answers a benchmark as the warehouse has it.

    It asks a thousandth to a hundredth of the documents. If it is killed, another call continues; after a
    verdict, a call starts anew. `pool` is a pool with the model's entry; None stands for the first of
    `pool_names` with it. Raises InputError for a model that has not answered the benchmark.
    """
    pool_spec, spec = _find_entry(pool, benchmark, model)
    engine = backend or pool_spec.backend
    with open_warehouse(warehouse, create=False) as opened:
        recheck = _prepare(opened, benchmark, model)
        limit = limit_of_others(opened, pool_spec, [model])
        most = plan_sizes(len(recheck.strata(opened)[0]))[-1]
    ask_documents(
        warehouse,
        recheck.probe_id,
        spec,
        load_tasks(pool_spec.benchmarks, limit, datasets),
        engine,
        recheck,
        jobs=default_jobs(engine),
        on_progress=on_progress and batches.report_share(on_progress, model, most),
    )
    with open_warehouse(warehouse) as opened:
        data, strata = recheck.strata(opened)
        rows, answered, n = recheck.compare(opened)
        compared, verdict = recheck.judge(answered, len(plan_sizes(len(data))))
        sample = StratifiedSample(strata, rows)
        effects = np.array([row["effect"] for row in answered], dtype=np.float64)
        effect = sample.estimate_rare(effects, np.zeros(len(data)))
        took = "SELECT sum(seconds), sum(paid) FROM probe_answers WHERE probe_id = ?"
        [(seconds, paid)] = opened.rows(took, [recheck.probe_id])
        moved = [row["n_beyond"] > 0 for row in answered if row["n_choices"]]
        result = Recheck(
            recheck.probe_id,
            model,
            benchmark,
            n,
            len(data),
            compared if verdict == "changed" else None,
            sum(moved) if moved else None,
            sum(row["flipped"] for row in answered),
            (effect.value, *effect.interval()),
            seconds,
            paid,
            "as before" if verdict == "unchanged" else f"{verdict}: {compared}",
        )
        about = {"benchmark": benchmark, "n": n, "n_docs": len(data), "verdict": result.verdict}
        row = about | dict(zip(("value", "low", "high"), result.accuracy, strict=True))
        row |= {"metric": "change", "other": ""}
        drawn = data, rows, strata.probabilities(n)[rows]
        batches.store_estimates(opened, recheck.probe_id, model, [row], [drawn])
    return result


def recheck_table(rechecks: Sequence[Recheck]) -> Table:
    table = Table("model on benchmark", "documents", "flipped", "accuracy, points", texts=("verdict",))
    for recheck in rechecks:
        asked = f"{recheck.n:,} of {recheck.n_docs:,}"
        figures = asked, str(recheck.flipped), interval(recheck.accuracy)
        table.add(f"{recheck.model} on {recheck.benchmark}", *figures, recheck.verdict)
    return table


def _find_entry(pool: str | None, benchmark: str, model: str) -> tuple[PoolSpec, ModelSpec]:
    """The pool, restricted to this benchmark, and the model's entry in it. Raises InputError if no pool has
    both."""
    pools = [load_pool(name) for name in (pool_names() if pool is None else [pool])]
    benchmarks = {b.name for pool_spec in pools for b in pool_spec.benchmarks}
    if benchmark not in benchmarks:
        where = f"pool {pool!r}" if pool else "the known pools"
        raise unknown_name("benchmark", benchmark, benchmarks, where)
    for pool_spec in pools:
        for spec in pool_spec.models:
            if spec.model == model and benchmark in {b.name for b in pool_spec.benchmarks}:
                return pool_spec.choose(None, [benchmark]), spec
    where = f"pool {pool!r}" if pool else f"any pool with benchmark {benchmark!r}; --pool names its file"
    models = [spec.model for pool_spec in pools for spec in pool_spec.models]
    raise unknown_name("model", model, models, where)


def _prepare(warehouse: Warehouse, benchmark: str, model: str) -> Rechecker:
    """The recheck of the model's stored answers that is to begin or to continue: the first without a
    verdict."""
    warehouse.connection.execute(script("snapshots/comparison"))
    [(stored, is_low, samples, is_choices, number)] = warehouse.rows(
        "SELECT list(extraction_id ORDER BY extraction_id), bool_or(has_low_precision(settings, backend)), "
        "first(coalesce(settings->>'samples', '16') ORDER BY extraction_id) FILTER (evidence = 'samples'), "
        "EXISTS (FROM choice_logprobs WHERE (model, benchmark) = ($model, $benchmark)), "
        "(SELECT count(DISTINCT probe_id) FROM probe_estimates "
        "WHERE metric = 'change' AND (model, benchmark) = ($model, $benchmark)) "
        "FROM extractions WHERE (model, benchmark) = ($model, $benchmark)",
        {"model": model, "benchmark": benchmark},
    )
    if not stored:
        raise InputError(
            f"the warehouse has no answers of {model} to {benchmark}, so nothing to compare with; "
            "`rlfocal add-model --probe` is for new models"
        )
    identity = sha256(repr((benchmark, stored)).encode()).hexdigest()[:12]
    return Rechecker(
        f"{model}-again{number + 1}-{identity}",
        benchmark,
        model,
        LOW_PRECISION_LIMITS if is_low else FULL_PRECISION_LIMITS,
        int(samples) if samples and is_choices else None,
    )

"""Whether a member of a pool still answers as before, from a few documents that are asked again.

Documents are drawn where a small change would show first: where the model's two best choices, or its samples,
are nearly even. Noise explains what `diff` allows (`rlfocal.upkeep.drift`). Sampled answers are compared by
shuffling a document's old and new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rlfocal.base import options
from rlfocal.base.arrays import Floats
from rlfocal.base.errors import InputError, unknown_name
from rlfocal.base.request import Progress, checked
from rlfocal.base.tables import Table
from rlfocal.base.wording import interval
from rlfocal.data.dataset import Dataset
from rlfocal.data.loading import load_dataset
from rlfocal.extraction.running.probing import Batch, ask_documents
from rlfocal.extraction.running.runner import default_jobs
from rlfocal.extraction.tasks import load_tasks
from rlfocal.new_model.batches import (
    VERDICT_ERROR_RATE,
    count_drawn,
    draw_batch,
    number_documents,
    report_share,
    store_estimates,
)
from rlfocal.new_model.model_record import limit_of_others
from rlfocal.pool import load_pool
from rlfocal.pool.files import pool_names
from rlfocal.pool.specs import ModelSpec, PoolSpec
from rlfocal.statistics.sampling import Strata, StratifiedSample, double, stratify
from rlfocal.upkeep.drift import FULL_PRECISION_LIMITS, LOW_PRECISION_LIMITS, Limits, exceeds
from warehouse import Warehouse, open_warehouse
from warehouse.scripts import script

FIRST_ASKED_SHARE, MAX_ASKED_SHARE = 0.001, 0.01
"""The shares of a benchmark's documents that are asked first, and at most."""
MIN_FIRST_DOCUMENTS, MIN_ALL_DOCUMENTS = 16, 64
N_SHUFFLES = 999


@dataclass(frozen=True)
class Recheck:
    """The result of asking a model's documents again on one benchmark."""

    probe_id: str
    model: str
    benchmark: str
    n: int
    n_docs: int
    changed: str | None
    """What differs by more than noise explains: log-probs or answers; None if nothing does."""
    moved: int | None
    """The number of documents of which a log-prob moved by more than noise explains; None for free
    answers."""
    flipped: int
    """The number of documents with another prediction."""
    accuracy: tuple[float, float, float]
    """The change of the accuracy on all documents, as a fraction, with its 95 % interval."""
    seconds: float
    paid: float | None

    @property
    def verdict(self) -> str:
        return f"changed: {self.changed}" if self.changed else "as before"


@dataclass(frozen=True)
class Rechecker:
    """Chooses the next documents to ask a member again."""

    probe_id: str
    benchmark: str
    model: str
    limits: Limits
    samples: int | None
    """The number of texts behind a choice's share, where a service gives no log-probs; None where it does."""

    @cached_property
    def _read(self) -> list[tuple[Dataset, Strata]]:
        return []

    def strata(self, warehouse: Warehouse) -> tuple[Dataset, Strata]:
        """The model's own answers, and their strata; cached."""
        if not self._read:
            data = load_dataset(warehouse, self.benchmark, [self.model])
            best = np.sort(data.probs[:, 0], axis=1)
            lead = best[:, -1] - (best[:, -2] if best.shape[1] > 1 else 0.0)
            self._read.append((data, stratify(1.05 - lead, int(self.probe_id[-8:], 16))))
        return self._read[0]

    def __call__(self, warehouse: Warehouse) -> Batch:
        data, strata = self.strata(warehouse)
        n, answered = self.compare(warehouse)
        sizes = plan_sizes(len(data))
        left = [size for size in sizes if size > n]
        if not left or (n and self.find_change(answered, len(sizes))):
            return {}
        return draw_batch(data, strata, left[0])

    def compare(self, warehouse: Warehouse) -> tuple[int, list[dict[str, Any]]]:
        """The number of documents that are drawn and asked; and the old and the new answers to each."""
        data, strata = self.strata(warehouse)
        about = {"probe_id": self.probe_id, "allowed": self.limits.logprob}
        answered = warehouse.query(script("queries/answered_again"), about).to_pylist()
        place = number_documents(data)
        for row in answered:
            row["row"] = place[row["task"], row["doc_id"]]
        answered.sort(key=lambda row: row["row"])
        return count_drawn(strata, np.array([row["row"] for row in answered], dtype=np.int64)), answered

    def find_change(self, answered: Sequence[dict[str, Any]], looks: int) -> str | None:
        """What differs by more than noise explains; None if nothing does.

        By chance, it is something in a share VERDICT_ERROR_RATE of so many looks together.
        """
        level, n = VERDICT_ERROR_RATE / looks, len(answered)
        if self.samples is None and answered[0]["moved"] is not None:
            n_moved = sum(bool(row["moved"]) for row in answered)
            return "log-probs" if exceeds(n_moved, n, self.limits.moved, level) else None
        if self.samples is None and all(len(row["given_now"] or ()) < 2 for row in answered):
            flipped = sum(row["flipped"] for row in answered)
            return "answers" if exceeds(flipped, n, self.limits.flipped, level) else None
        return "answers" if shuffled_p_value(*self._counts(answered)) < level else None

    def _counts(self, answered: Sequence[dict[str, Any]]) -> tuple[list[Floats], list[Floats]]:
        """For each document, how often each of its answers was given, before and now."""
        before, now = [], []
        for row in answered:
            if row["moved"] is not None:
                times = self.samples or 1
                each = [np.round(np.exp(row[name]) * times) for name in ("shares_before", "shares_now")]
            else:
                given = [*(row["given_before"] or ()), *(row["given_now"] or ())]
                kinds = np.array(list(dict.fromkeys(given)), dtype=object)
                each = [
                    np.array([(row[name] or []).count(kind) for kind in kinds], dtype=np.float64)
                    for name in ("given_before", "given_now")
                ]
            before.append(each[0])
            now.append(each[1])
        return before, now


def plan_sizes(n_docs: int) -> tuple[int, ...]:
    """The numbers of documents after which a change may be found."""
    first = min(n_docs, max(MIN_FIRST_DOCUMENTS, ceil(FIRST_ASKED_SHARE * n_docs)))
    last = min(n_docs, max(MIN_ALL_DOCUMENTS, ceil(MAX_ASKED_SHARE * n_docs)))
    return double(first, last)


def shuffled_p_value(before: Sequence[Floats], now: Sequence[Floats]) -> float:
    """How often old and new answers to each document, shuffled, differ by at least as much in all.

    Each array (K,) has the counts of a document's K different answers. The difference is the sum over
    documents of the absolute differences of their shares.
    """
    rng, drawn = np.random.default_rng(0), np.zeros(N_SHUFFLES)
    observed = 0.0
    for old, new in zip(before, now, strict=True):
        n_old, n_new = int(old.sum()), int(new.sum())
        if not n_old or not n_new:
            continue
        observed += float(np.abs(old / n_old - new / n_new).sum())
        total = (old + new).astype(np.int64)
        again = rng.multivariate_hypergeometric(total, n_old, size=N_SHUFFLES)
        drawn += np.abs(again / n_old - (total - again) / n_new).sum(axis=1)
    return float(1 + (drawn >= observed - 1e-9).sum()) / (1 + N_SHUFFLES)


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
    """Whether a model still answers a benchmark as the warehouse has it.

    Asks a thousandth to a hundredth of the documents. Killed and called again, it continues; called after its
    verdict, it asks anew. `pool`: one that has the model's entry; None: the first of `pool_names` that does.
    Raises InputError for a model that has not answered the benchmark.
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
        on_progress=on_progress and report_share(on_progress, model, most),
    )
    with open_warehouse(warehouse) as opened:
        data, strata = recheck.strata(opened)
        n, answered = recheck.compare(opened)
        changed = recheck.find_change(answered, len(plan_sizes(len(data))))
        sample = StratifiedSample(strata, np.array([row["row"] for row in answered]))
        effect = sample.estimate_rare(
            np.array([row["effect"] for row in answered], dtype=np.float64), np.zeros(len(data))
        )
        took = "SELECT sum(seconds), sum(paid) FROM probe_answers WHERE probe_id = ?"
        [(seconds, paid)] = opened.rows(took, [recheck.probe_id])
        moved = None if answered[0]["moved"] is None else sum(row["moved"] for row in answered)
        result = Recheck(
            recheck.probe_id,
            model,
            benchmark,
            n,
            len(data),
            changed,
            moved,
            sum(row["flipped"] for row in answered),
            (effect.value, *effect.interval()),
            seconds,
            paid,
        )
        about = {"benchmark": benchmark, "n": n, "n_docs": len(data), "verdict": result.verdict}
        row = about | dict(zip(("value", "low", "high"), result.accuracy, strict=True))
        of = {"benchmark": [benchmark] * len(answered)} | {
            name: [document[name] for document in answered] for name in ("task", "doc_id")
        }
        chances = pa.table(of | {"probability": strata.probabilities(n)[sample.rows]})
        estimates = [row | {"metric": "change", "other": ""}]
        store_estimates(opened, recheck.probe_id, model, estimates, chances)
    return result


def recheck_table(rechecks: Sequence[Recheck]) -> Table:
    """The table of rechecks, with a row for each."""
    table = Table("model on benchmark", "documents", "flipped", "accuracy, points", texts=("verdict",))
    for recheck in rechecks:
        asked = f"{recheck.n:,} of {recheck.n_docs:,}"
        figures = asked, str(recheck.flipped), interval(recheck.accuracy)
        table.add(f"{recheck.model} on {recheck.benchmark}", *figures, recheck.verdict)
    return table


def _find_entry(pool: str | None, benchmark: str, model: str) -> tuple[PoolSpec, ModelSpec]:
    """The pool with only this benchmark, and the model's entry in it."""
    pools = [load_pool(name) for name in (pool_names() if pool is None else [pool])]
    benchmarks = {b.name for pool_spec in pools for b in pool_spec.benchmarks}
    if benchmark not in benchmarks:
        raise unknown_name(
            "benchmark", benchmark, benchmarks, f"pool {pool!r}" if pool else "the known pools"
        )
    for pool_spec in pools:
        for spec in pool_spec.models:
            if spec.model == model and (pool or benchmark in {b.name for b in pool_spec.benchmarks}):
                return pool_spec.choose(None, [benchmark]), spec
    where = f"pool {pool!r}" if pool else f"any pool with benchmark {benchmark!r}; --pool names its file"
    raise unknown_name(
        "model", model, [spec.model for pool_spec in pools for spec in pool_spec.models], where
    )


def _prepare(warehouse: Warehouse, benchmark: str, model: str) -> Rechecker:
    """The probe of these answers to begin or to continue: the first without a verdict."""
    warehouse.connection.execute(script("snapshots/low_precision"))
    stored = warehouse.query(
        "SELECT extraction_id, has_low_precision(settings, backend) AS is_low, evidence, "
        "settings->>'samples' AS samples FROM extractions "
        "WHERE (model, benchmark) = (?, ?) ORDER BY extraction_id",
        [model, benchmark],
    ).to_pylist()
    if not stored:
        raise InputError(
            f"the warehouse has no answers of {model} to {benchmark}, so nothing to compare with; "
            "`rlfocal add-model --probe` is for new models"
        )
    is_low = any(row["is_low"] for row in stored)
    sampled = [int(row["samples"] or 16) for row in stored if row["evidence"] == "samples"]
    done = (
        "SELECT count(DISTINCT probe_id) FROM probe_estimates WHERE metric = 'change' AND "
        "(model, benchmark) = (?, ?)"
    )
    [(number,)] = warehouse.rows(done, [model, benchmark])
    identity = sha256(repr((benchmark, [row["extraction_id"] for row in stored])).encode()).hexdigest()[:12]
    is_choices = warehouse.rows(
        "SELECT 1 FROM choice_logprobs WHERE (model, benchmark) = (?, ?) LIMIT 1", [model, benchmark]
    )
    samples = sampled[0] if sampled and is_choices else None
    return Rechecker(
        f"{model}-again{number + 1}-{identity}",
        benchmark,
        model,
        LOW_PRECISION_LIMITS if is_low else FULL_PRECISION_LIMITS,
        samples,
    )

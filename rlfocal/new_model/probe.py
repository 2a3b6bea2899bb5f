"""Probes a model: it answers the most informative documents, in batches, until its worth to a pool is
clear."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from rlfocal.base import options
from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import InputError
from rlfocal.base.request import Progress, checked
from rlfocal.base.wording import count_noun
from rlfocal.data.dataset import Dataset
from rlfocal.data.loading import load_dataset
from rlfocal.evaluation.notes import complete_models
from rlfocal.extraction.partition import weights_digest
from rlfocal.extraction.running.probing import Batch, Place, ask_documents
from rlfocal.extraction.running.runner import default_jobs
from rlfocal.extraction.tasks import load_tasks
from rlfocal.new_model.batches import (
    VERDICT_ERROR_RATE,
    draw_batch,
    report_share,
    sort_answers,
    store_estimates,
)
from rlfocal.new_model.model_record import (
    ErrorCorrelation,
    PairedAnswers,
    count_common_errors,
    limit_of_others,
    most_like,
)
from rlfocal.new_model.probing import (
    Assessment,
    Design,
    Interval,
    Verdict,
    design_probe,
    plan_looks,
)
from rlfocal.new_model.team import TeamEvidence
from rlfocal.new_model.trial import check_entry
from rlfocal.pool import load_entry, load_pool
from rlfocal.pool.specs import PoolSpec
from warehouse import Warehouse, open_warehouse

MIN_PROBABILITY = 1e-6
"""The probability given to a choice that was never sampled."""


@dataclass(frozen=True)
class Probe:
    """The result of a probe: an estimate from a few answers of what a model is worth to a pool."""

    probe_id: str
    model: str
    pool: str
    verdict: Verdict
    assessments: tuple[Assessment, ...]
    """An assessment for each benchmark that other models of the pool answered."""
    error_correlation: ErrorCorrelation | None
    asked: int
    """The number of documents that this call asked. Documents of an earlier call are not asked again."""
    asked_in_all: int
    seconds: float
    """The seconds that the engine took for all documents of the probe."""
    paid: float | None
    """The cents that the probe cost; None if nothing is paid."""
    seconds_left: float
    """The seconds that the documents not asked would take. They follow from each benchmark's rate in this
    call, so on this machine. If this call asked nothing, earlier calls count."""
    paid_left: float | None
    """The cents that the documents not asked would cost; None if nothing is paid."""
    left_out: tuple[str, ...]
    """The benchmarks that no other model of the pool answered completely."""

    @property
    def n(self) -> int:
        """The number of documents that the estimates are based on."""
        return sum(assessment.n for assessment in self.assessments)

    @property
    def n_docs(self) -> int:
        """The number of documents that a whole extraction would ask."""
        return sum(assessment.n_docs for assessment in self.assessments)

    @property
    def more(self) -> int:
        """The number of further documents that should make the verdict clear; 0 if it is clear."""
        return sum(assessment.more for assessment in self.assessments) if self.verdict == "unclear" else 0

    @property
    def leaning(self) -> Verdict:
        """The verdict. If it is unclear, the verdict that the point estimates alone suggest."""
        if self.verdict != "unclear":
            return self.verdict
        return (
            "join" if any(assessment.leaning == "join" for assessment in self.assessments) else "do not join"
        )


@dataclass(frozen=True)
class _Chooser:
    """Chooses a probe's next batch from the answers so far. It runs in the model's process."""

    probe_id: str
    benchmarks: tuple[str, ...]
    members: tuple[str, ...]
    document_totals: tuple[int, ...] | None
    """The number of documents to ask of each benchmark in all; None to ask until the verdict is clear."""
    _designs: dict[str, Design] = field(default_factory=dict, init=False, repr=False)

    def designs(self, warehouse: Warehouse) -> list[Design]:
        """The design of the probe on each benchmark, by the answers of those members that answered all of it.
        It is read from the warehouse once."""
        for name in self.benchmarks:
            if name not in self._designs:
                complete = complete_models(warehouse, name) & {*self.members}
                data = load_dataset(warehouse, name, sorted(complete))
                self._designs[name] = design_probe(data, int(self.probe_id[-8:], 16))
        return list(self._designs.values())

    def __call__(self, warehouse: Warehouse) -> Batch:
        judged = self.judge(warehouse)
        if self.document_totals is None and any(verdict == "join" for _, verdict in judged):
            return {}
        batch: dict[Place, Mapping[int, float]] = {}
        for number, (design, (n, verdict)) in enumerate(zip(self.designs(warehouse), judged, strict=True)):
            data = design.dataset
            looks = plan_looks(len(data)) if self.document_totals is None else (self.document_totals[number],)
            left = [look for look in looks if look > n]
            if not left or (self.document_totals is None and verdict != "unclear"):
                continue
            batch |= draw_batch(data, design.strata, left[0])
        return batch

    def judge(self, warehouse: Warehouse) -> list[tuple[int, Verdict]]:
        """For each benchmark, the number of asked documents of the draw (0 if too few), and the verdict."""
        judged: list[tuple[int, Verdict]] = []
        for design in self.designs(warehouse):
            rows, answers, is_drawn = _read_answers(warehouse, self.probe_id, design)
            verdict: Verdict = "unclear"
            if is_drawn.any():
                verdict = design.judge(rows[is_drawn], answers.take(is_drawn), self.error(design))
            judged.append((int(is_drawn.sum()), verdict))
        return judged

    def error(self, design: Design) -> float:
        """The error rate allowed at one look, so that all looks together have VERDICT_ERROR_RATE
        (Bonferroni)."""
        return VERDICT_ERROR_RATE / (len(plan_looks(len(design.dataset))) * len(self.benchmarks))


@checked
def probe_newcomer(
    pool: str,
    entry: str | Path,
    *,
    n: options.Probed = None,
    warehouse: str | Path | None = None,
    backend: options.Backend = None,
    datasets: options.Datasets | Path = None,
    on_progress: Progress | None = None,
) -> Probe:
    """Estimates what an entry's model would be worth to a pool, from its answers to a few documents.

    `rlfocal add-model --help` describes the parameters. The pool stays as it is. Another call continues an
    interrupted probe, and with a larger `n` it asks only new documents. Raises InputError, with nothing
    asked, for a wrong entry, and for an `n` that is too small for a verdict. It also does if no other model
    of the pool has answered any of its benchmarks.
    """
    entered, pool_spec = load_entry(Path(entry)), load_pool(pool)
    engine = backend or pool_spec.backend
    members = tuple(other.model for other in pool_spec.models if other.model != entered.model)
    spec = check_entry(entered, engine)
    # Equal weights and settings give the same id, so that the probe is continued.
    identity = repr((spec.model_dump_json(), engine, weights_digest(spec)))
    probe_id = f"{spec.model}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
    with open_warehouse(warehouse, create=False) as opened:
        answered = {b.name: complete_models(opened, b.name) & {*members} for b in pool_spec.benchmarks}
        names = tuple(name for name, there in answered.items() if there)
        if not names:
            raise InputError(
                f"no other model of pool {pool_spec.name!r} has answered any of its benchmarks in "
                f"{opened.location}, so nothing to compare with; `rlfocal extract --pool {pool}` asks them"
            )
        chooser = _Chooser(probe_id, names, members, None)
        if n is not None:
            chooser = replace(chooser, document_totals=_plan(opened, chooser, n))
        sizes = opened.rows(
            "SELECT count(*) FROM docs WHERE list_contains(?, benchmark) GROUP BY benchmark", [list(names)]
        )
        limit = limit_of_others(opened, pool_spec, members)
    most = sum(chooser.document_totals or (plan_looks(size)[-1] for (size,) in sizes))
    started = datetime.now(UTC)
    asked = ask_documents(
        warehouse,
        probe_id,
        entered,
        load_tasks([b for b in pool_spec.benchmarks if b.name in names], limit, datasets),
        engine,
        chooser,
        jobs=default_jobs(engine),
        on_progress=on_progress and report_share(on_progress, entered.model, most),
    )
    with open_warehouse(warehouse) as opened:
        return _conclude(opened, chooser, pool_spec, entered.model, asked, started)


def _plan(warehouse: Warehouse, chooser: _Chooser, n: int) -> tuple[int, ...]:
    """The number of documents of each benchmark, `n` in all, including those asked already. Raises InputError
    for too small an `n`."""
    designs = chooser.designs(warehouse)
    seen = chooser.judge(warehouse)
    sizes, asked = [len(design.dataset) for design in designs], [already for already, _ in seen]
    until = spread_documents(n, asked, sizes, [verdict == "unclear" for _, verdict in seen])
    fewest = [min(len(design.dataset), design.strata.min_draw) for design in designs]
    if any(0 < share < least for share, least in zip(until, fewest, strict=True)) or not any(until):
        raise InputError(
            f"a probe of {n} documents tells too little of {count_noun(len(designs), 'benchmark')}; give at "
            f"least {sum(asked) + max(fewest) * len(designs)}"
        )
    return tuple(until)


def spread_documents(
    n: int, n_asked: Sequence[int], sizes: Sequence[int], is_open: Sequence[bool]
) -> list[int]:
    """The number of documents of each benchmark, `n` in all, including those asked already. New documents are
    spread equally over the open benchmarks (over all, if none is open), as far as each has any left."""
    left, shares = max(n - sum(n_asked), 0), list(n_asked)
    chosen = [benchmark for benchmark, goes_on in enumerate(is_open) if goes_on or not any(is_open)]
    for place, benchmark in enumerate(
        sorted(chosen, key=lambda benchmark: sizes[benchmark] - n_asked[benchmark])
    ):
        more = min(sizes[benchmark] - n_asked[benchmark], left // (len(chosen) - place))
        shares[benchmark] += more
        left -= more
    return shares


def _read_answers(warehouse: Warehouse, probe_id: str, design: Design) -> tuple[Ints, TeamEvidence, Bools]:
    """The positions of the documents that a probe asked, in order, (n,); the model's answers to them; and
    which of them are the largest draw that is asked as a whole, (n,), none if that is too small to judge."""
    data = design.dataset
    stored = warehouse.query(
        "SELECT a.task, a.doc_id, p.prediction, p.probs, p.answer, coalesce(p.correct, false) AS correct, "
        "list_transform(a.passes, lambda s: s.answer) AS given FROM probe_answers AS a "
        "LEFT JOIN probe_predictions AS p USING (probe_id, model, benchmark, task, doc_id) "
        "WHERE a.probe_id = ? AND a.benchmark = ?",
        [probe_id, data.benchmark],
    ).to_pylist()
    rows, each, n = sort_answers(data, design.strata, stored)
    correct = np.array([row["correct"] for row in each], dtype=np.bool_)
    read = _read_choices if data.kind == "choices" else _read_free_answers
    x, exists, labels, predictions = read(data, rows, each, correct)
    is_drawn = np.isin(rows, design.strata.draw(n)) & (n >= design.strata.min_draw)
    return rows, TeamEvidence(x, exists, labels, correct, predictions), is_drawn


def _read_choices(
    data: Dataset, rows: Ints, answers: Sequence[dict[str, Any]], correct: Bools
) -> tuple[Floats, Bools, Ints, Ints]:
    """The log-probs and slots (n, C), and the labels and predictions (n,), of a model's choices."""
    exists = np.arange(data.probs.shape[2]) < data.n_choices[rows, None]
    x = np.zeros(exists.shape)
    for number, row in enumerate(answers):
        if row["probs"]:
            x[number, : len(row["probs"])] = np.log(np.maximum(row["probs"], MIN_PROBABILITY))
    predictions = np.array([-1 if row["prediction"] is None else row["prediction"] for row in answers])
    return x, exists, data.labels[rows], predictions


def _read_free_answers(
    data: Dataset, rows: Ints, answers: Sequence[dict[str, Any]], correct: Bools
) -> tuple[Floats, Bools, Ints, Ints]:
    """The shares of samples and the slots (n, C + 1), and the labels and predictions (n,), of a model's free
    answers. Answers that no member gave share the last slot."""
    n_slots = data.probs.shape[2]
    x, labels, predictions = np.zeros((len(rows), n_slots + 1)), data.labels[rows], np.full(len(rows), -1)
    for number, row in enumerate(answers):
        slot = {answer: place for place, answer in enumerate(data.slots[rows[number]])}
        for answer in row["given"] or ():
            if answer is not None:
                x[number, slot.get(answer, n_slots)] += 1 / len(row["given"])
        if row["answer"] is not None:
            predictions[number] = slot.get(row["answer"], n_slots)
            if correct[number]:
                labels[number] = predictions[number]
    return x, x > 0, labels, predictions


def _conclude(
    warehouse: Warehouse, chooser: _Chooser, pool: PoolSpec, model: str, asked: int, started: datetime
) -> Probe:
    """The estimates from all answers of a probe, which it also stores."""
    assessments, paired_answers, drawn = [], [], []
    for design in chooser.designs(warehouse):
        rows, answers, is_drawn = _read_answers(warehouse, chooser.probe_id, design)
        if not is_drawn.any():
            continue
        assessments.append(design.assess(rows[is_drawn], answers.take(is_drawn), chooser.error(design)))
        data = design.dataset
        paired_answers.append(
            replace(
                PairedAnswers.from_dataset(data.take(rows)),
                models=(*data.models, model),
                predictions=np.column_stack([data.predictions[rows], answers.predictions]),
                labels=answers.labels,
            )
        )
        probabilities = design.strata.probabilities(int(is_drawn.sum()))
        drawn.append((data, rows, np.where(is_drawn, probabilities[rows], np.nan)))
    store_estimates(warehouse, chooser.probe_id, model, _make_estimates(assessments), drawn)
    verdicts = {assessment.verdict for assessment in assessments}
    return Probe(
        chooser.probe_id,
        model,
        pool.name,
        "join" if "join" in verdicts else "unclear" if "unclear" in verdicts else "do not join",
        tuple(assessments),
        most_like(model, count_common_errors(paired_answers)),
        asked,
        *_take(warehouse, chooser.probe_id, started, assessments),
        tuple(b.name for b in pool.benchmarks if b.name not in chooser.benchmarks),
    )


def _take(
    warehouse: Warehouse, probe_id: str, started: datetime, assessments: Sequence[Assessment]
) -> tuple[int, float, float | None, float, float | None]:
    """The number of documents asked, their seconds and cents, and the seconds and cents of the documents not
    asked."""
    rows = warehouse.rows(
        "SELECT benchmark, count(*), sum(seconds), sum(paid), "
        "coalesce(avg(seconds) FILTER (asked_at >= $started), avg(seconds)), avg(paid) "
        "FROM probe_answers WHERE probe_id = $probe GROUP BY benchmark",
        {"probe": probe_id, "started": started},
    )
    left = {assessment.benchmark: assessment.n_docs - assessment.n for assessment in assessments}
    n = np.array([left.get(row[0], 0) for row in rows])
    of = np.array([row[1:] for row in rows], dtype=np.float64)
    cents = None if np.isnan(of[:, 2]).all() else (float(np.nansum(of[:, 2])), float(np.nansum(n * of[:, 4])))
    paid, paid_left = cents or (None, None)
    return int(of[:, 0].sum()), float(of[:, 1].sum()), paid, float(n @ of[:, 3]), paid_left


def _make_estimates(assessments: Sequence[Assessment]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for assessment in assessments:
        where = {
            "benchmark": assessment.benchmark,
            "n": assessment.n,
            "n_docs": assessment.n_docs,
            "verdict": assessment.verdict,
        }
        every: list[tuple[str, str, Interval]] = [
            ("accuracy", "", assessment.accuracy), ("gain", "", assessment.gain),
            ("gain by task", "", assessment.gain_by_task),
            *(("failure correlation", pair.member, pair.correlation) for pair in assessment.pairs),
            *(("focal diversity", pair.member, pair.focal_diversity) for pair in assessment.pairs),
            *((f"gain of best {pool.size}", pool.leaves, pool.gain) for pool in assessment.pools),
        ]  # fmt: skip
        for metric, other, (value, low, high) in every:
            rows.append(where | {"metric": metric, "other": other, "value": value, "low": low, "high": high})
    return rows

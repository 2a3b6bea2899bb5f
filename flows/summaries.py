"""What a regeneration did: where it would do nothing, known without Prefect, whose server takes longer."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from flows import RegenerationRequest, report_path
from rlfocal.base.errors import InputError, RunError
from rlfocal.evaluation import Evaluation, EvaluationRequest
from rlfocal.extraction.running.events import Failure
from rlfocal.pool import PoolSpec
from rlfocal.pool.specs import Benchmark
from rlfocal.upkeep.drift import Drift, have_answers_changed, last_looked_at
from warehouse import Warehouse, open_warehouse

if TYPE_CHECKING:
    from rlfocal.evaluation.leaderboard import Board  # imports scipy.stats, which extraction does not need
    from rlfocal.evaluation.promising import PromiseRecord
    from rlfocal.new_model.asking_again import Recheck


@dataclass(frozen=True)
class Summary:
    """What one regeneration did."""

    pool: str
    extracted: int
    """Partitions (model, task) committed now."""
    present: int
    """Partitions that were there already."""
    evaluations: tuple[Evaluation, ...]
    """Of every method on every benchmark, computed now or already there."""
    report: Path | None
    gaps: tuple[Failure, ...]
    seconds: float
    drift: Drift | None = None
    """How answers differ from those that were last looked at; None if none were written since."""
    withdrawn: tuple[PromiseRecord, ...] = ()
    """The promises that broke since the last look."""
    looked_at: int | None = None
    """The snapshot up to which this run looked at answers and promises; None if it found nothing new."""
    changed: tuple[Recheck, ...] = ()
    """Models whose service no longer answers as it did."""
    boards: tuple[Board, ...] = ()
    """Of `evaluations`."""


def evaluation_of(
    pool: PoolSpec, benchmark: Benchmark, seeds: int, failed: Collection[str] = ()
) -> EvaluationRequest | None:
    """The evaluation of a benchmark on the pool's models that have not failed; None where none is left."""
    models = [m.model for m in pool.models if m.model not in failed and benchmark.asks(m.model)]
    if not models:  # an empty list would mean all models that the warehouse holds, other pools' too
        return None
    return replace(EvaluationRequest(benchmark.name, models=models, seeds=seeds), beside=pool.methods)


def find_summary(request: RegenerationRequest) -> Summary | None:
    """The summary of a regeneration that would do nothing; None where it has to run.

    It has to where a Prefect server of the user's records runs, or where services are asked again.
    """
    pool = request.load_pool()
    if _has_server() or (pool.probe and any(model.is_closed for model in pool.models)):
        return None
    try:
        with open_warehouse(request.location, read_only=True, create=False) as warehouse:
            return _find_summary(warehouse, pool, request) if _may_be_whole(warehouse, pool) else None
    except (InputError, RunError):  # it was to write, or the flow says what is wrong
        return None


def _has_server() -> bool:
    home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    return bool(os.environ.get("PREFECT_API_URL")) or (home / "profiles.toml").exists()


def _may_be_whole(warehouse: Warehouse, pool: PoolSpec) -> bool:
    """Whether each model has answered some of each benchmark, and each was evaluated: known at once."""
    answered = {(key.model, key.benchmark) for key in warehouse.committed()}
    evaluated = {name for (name,) in warehouse.rows("SELECT DISTINCT benchmark FROM evaluations")}
    wanted = {(m.model, b.name) for b in pool.benchmarks for m in pool.models if b.asks(m.model)}
    return wanted <= answered and {b.name for b in pool.benchmarks} <= evaluated


def _must_look(warehouse: Warehouse) -> bool:
    """Whether drift or promises are to be looked at; raises InputError where a promise is to be tested."""
    from rlfocal.evaluation.promising import look_again, withdrawn_since

    if not warehouse.rows("FROM drift_looks LIMIT 1"):
        return True
    since = last_looked_at(warehouse)
    look_again(warehouse)
    return have_answers_changed(warehouse, since) or bool(withdrawn_since(warehouse, since))


def _find_summary(warehouse: Warehouse, pool: PoolSpec, request: RegenerationRequest) -> Summary | None:
    """As `find_summary`; raises InputError or RunError where something would be written."""
    from rlfocal.evaluation.leaderboard import leaderboard
    from rlfocal.evaluation.running import find_unexplained, run_evaluation
    from rlfocal.extraction.running.missing import plan_extraction
    from rlfocal.extraction.tasks import load_tasks
    from rlfocal.report.html import is_current

    started = perf_counter()
    report = Path(request.report or report_path(request.location))
    if not is_current(warehouse, report) or _must_look(warehouse):
        return None
    tasks = load_tasks(pool.benchmarks, request.limit, request.datasets)
    plans = plan_extraction(warehouse, pool.models, tasks, request.backend or pool.backend)
    if any(plan.is_incomplete for plan in plans):
        return None
    evaluations: list[Evaluation] = []
    for benchmark in pool.benchmarks:
        if (evaluation := evaluation_of(pool, benchmark, request.seeds)) is None:
            return None
        found = run_evaluation(warehouse, evaluation)
        if find_unexplained(warehouse, evaluation, found):
            return None
        evaluations += found.rows
    return Summary(
        pool=pool.name,
        extracted=0,
        present=sum(len(plan.covered) for plan in plans),
        evaluations=tuple(evaluations),
        report=report,
        gaps=(),
        seconds=perf_counter() - started,
        boards=tuple(leaderboard(warehouse, runs={row.run_id for row in evaluations})),
    )

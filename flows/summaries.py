"""The summary of a regeneration, which is found without Prefect's slow server if there is nothing to do."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from flows import RegenerationRequest, report_path
from rlfocal.base.atomic import write_file
from rlfocal.base.errors import InputError, RunError
from rlfocal.base.names import LOOK_MESSAGE
from rlfocal.evaluation import Evaluation, EvaluationRequest
from rlfocal.evaluation.conclusion import Verdicts
from rlfocal.extraction.running.events import Failure
from rlfocal.pool import PoolSpec
from rlfocal.pool.specs import Benchmark
from rlfocal.report.inputs import is_made_from, report_inputs
from warehouse import Warehouse, open_warehouse

if TYPE_CHECKING:
    from rlfocal.evaluation.leaderboard import Board  # imports scipy.stats, which extraction does not need
    from rlfocal.evaluation.promising import PromiseRecord
    from rlfocal.new_model.asking_again import Recheck
    from rlfocal.upkeep.drift import Drift


@dataclass(frozen=True)
class Summary:
    """The results of one regeneration."""

    pool: str
    extracted: int
    """The number of partitions (model, task) committed now."""
    present: int
    """The number of partitions that were committed already."""
    evaluations: tuple[Evaluation, ...]
    """The evaluation of every method on every benchmark, computed now or stored before."""
    report: Path | None
    gaps: tuple[Failure, ...]
    seconds: float
    drift: Drift | None = None
    """The drift of answers since the last comparison; None if no answers were written since."""
    withdrawn: tuple[PromiseRecord, ...] = ()
    """The promises that were withdrawn since the last check."""
    looked_at: int | None = None
    """The snapshot that this run checked; None if no answers were new and no promise was withdrawn."""
    changed: tuple[Recheck, ...] = ()
    """The models whose service no longer answers as before."""
    evaluated_from: int = 0
    """The snapshot that the run evaluated."""
    boards: tuple[Board, ...] = ()
    """The leaderboards of `evaluations`; empty in a summary of a regeneration that had nothing to do."""
    verdicts: Verdicts | None = None
    """The verdicts of `boards`."""
    replaced: tuple[str, ...] = ()
    """Sentences on committed partitions that were replaced, and why."""


def evaluation_of(
    pool: PoolSpec, benchmark: Benchmark, seeds: int, failed: Collection[str] = ()
) -> EvaluationRequest | None:
    """A request to evaluate the pool's models on a benchmark, without failed ones; None if none is left."""
    models = [m.model for m in pool.models if m.model not in failed and benchmark.includes_model(m.model)]
    if not models:  # an empty list would mean all models that the warehouse holds, other pools' too
        return None
    return replace(EvaluationRequest(benchmark.name, models=models, seeds=seeds), beside=pool.methods)


def find_summary(request: RegenerationRequest) -> Summary | None:
    """The summary of a regeneration that has nothing to do; None if it has to run.

    It has nothing to do if nothing changed since the last one that `keep_summary` stored. It has to run if
    the user has a Prefect server or profile, which record runs, or if services are asked again.
    """
    pool = request.load_pool()
    if _has_server() or (pool.probe and any(model.is_closed for model in pool.models)):
        return None
    try:
        with open_warehouse(request.location, read_only=True, create=False) as warehouse:
            return _find_summary(warehouse, pool, request)
    except (InputError, RunError):  # it was to write, or the flow says what is wrong
        return None


def keep_summary(request: RegenerationRequest, summary: Summary) -> None:
    """Stores a run's summary for `find_summary`, unless something failed or the warehouse changed since."""
    pool = request.load_pool()
    if summary.gaps or summary.verdicts is None or summary.report is None or pool.methods:
        return  # methods of other packages change without notice
    with open_warehouse(request.location, read_only=True) as warehouse:
        inputs = report_inputs(warehouse)
        if not is_made_from(summary.report, inputs) or not _is_only_evaluated(
            warehouse, summary.evaluated_from
        ):
            return
        runs = list(dict.fromkeys(row.run_id for row in summary.evaluations))
        kept = {"inputs": inputs, "runs": runs, "verdicts": summary.verdicts.to_json()}
        with suppress(OSError):  # the run itself is done
            write_file(_name_file(warehouse, pool, request), json.dumps(kept))


def _is_only_evaluated(warehouse: Warehouse, snapshot: int) -> bool:
    """Whether all snapshots after this one changed only evaluations and records of checks."""
    others = (
        "SELECT count(*) FROM warehouse.snapshots() WHERE snapshot_id > ? AND commit_message IS DISTINCT "
        "FROM ? AND NOT starts_with(coalesce(commit_message, ''), 'evaluate ')"
    )
    return warehouse.rows(others, [snapshot, LOOK_MESSAGE]) == [(0,)]


def _name_file(warehouse: Warehouse, pool: PoolSpec, request: RegenerationRequest) -> Path:
    """The file of a request's summary: one for each pool, data and number of seeds."""
    asked = (pool.model_dump_json(), request.limit, request.datasets, request.backend, request.seeds)
    name = sha256(repr(asked).encode()).hexdigest()[:16]
    return warehouse.location.local / "regenerations" / f"{name}.json"


def _find_summary(warehouse: Warehouse, pool: PoolSpec, request: RegenerationRequest) -> Summary | None:
    """The result of `find_summary` from an open warehouse. Raises InputError or RunError if it would
    write."""
    started = perf_counter()
    try:
        kept = json.loads(_name_file(warehouse, pool, request).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    report = Path(request.report or report_path(request.location))
    if kept["inputs"] != report_inputs(warehouse) or not is_made_from(report, kept["inputs"]):
        return None
    from rlfocal.evaluation.storing import read_runs
    from rlfocal.extraction.running.missing import plan_extraction
    from rlfocal.extraction.tasks import load_tasks

    tasks = load_tasks(pool.benchmarks, request.limit, request.datasets)
    plans = plan_extraction(warehouse, pool.models, tasks, request.backend or pool.backend)
    if any(plan.is_incomplete for plan in plans):
        return None
    return Summary(
        pool=pool.name,
        extracted=0,
        present=sum(len(plan.present_partitions) for plan in plans),
        evaluations=read_runs(warehouse, kept["runs"]),
        report=report,
        gaps=(),
        seconds=perf_counter() - started,
        verdicts=Verdicts.from_json(kept["verdicts"]),
    )


def _has_server() -> bool:
    home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    return bool(os.environ.get("PREFECT_API_URL")) or (home / "profiles.toml").exists()

"""The main job as a Prefect flow: extract what is missing, train and evaluate, report.

Every step asks the warehouse what is already there: an interrupted run is simply started again, and no
result depends on Prefect's own caching.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from prefect import allow_failure, flow, get_run_logger, tags, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.utilities.annotations import quote

from flows import REPORT
from flows.drift import DriftLimits, compared, marked, newest_snapshot, to_train_on
from flows.idle import as_it_is
from flows.models import Asked, extract_all
from flows.support.deploying import TAG
from flows.support.ending import ended
from flows.support.pages import accuracies, publish
from flows.support.parameters import Count, Name, Names, secret_kept
from flows.support.progress import OnProgress, tell, told
from flows.support.server import prefect_server
from flows.support.silence import end_silent_runs
from flows.support.summary import ALL, IncompleteError, Summary
from flows.support.threads import in_thread
from rlfocal.base.failures import plain
from rlfocal.evaluation import Evaluation, evaluate
from rlfocal.extraction.engines.backends import check_backend
from rlfocal.extraction.running.events import Failure
from rlfocal.extraction.tasks import TaskDocuments, load_each
from rlfocal.pool import PoolSpec, load_pool
from rlfocal.pool.specs import Backend, Benchmark
from rlfocal.report import write_report
from warehouse import check_location, open_warehouse
from warehouse.store import Committed, PartitionKey


@task(task_run_name="train and evaluate on {benchmark}", cache_policy=NO_CACHE, persist_result=False)
def train_and_evaluate(
    location: str | None, benchmark: str, models: Sequence[str], seeds: int, snapshot: int | None = None
) -> tuple[Evaluation, ...]:
    """Every method on one benchmark; a run that the warehouse holds for the same data is not repeated."""
    with open_warehouse(location) as warehouse:
        return evaluate(
            warehouse, benchmark, models=models, seeds=seeds, snapshot=snapshot, on_progress=tell
        ).rows


@task(task_run_name="report", cache_policy=NO_CACHE, persist_result=False)
def report_all(location: str | None, path: str) -> Path:
    """One HTML file about everything evaluated here so far."""
    with open_warehouse(location, read_only=True) as warehouse:
        return write_report(warehouse, path)


@flow(name="regenerate", flow_run_name="regenerate {pool}", persist_result=False)
def regenerate(
    pool: Name = "lab",
    warehouse: Name | None = None,
    benchmarks: Names | None = None,
    models: Names | None = None,
    limit: Count | None = None,
    datasets: Name | None = None,
    backend: Backend | None = None,
    jobs: Count | None = None,
    minutes_per_model: Count | None = None,
    seeds: Count = 3,
    report: Name = str(REPORT),
    drift: DriftLimits | None = None,
) -> Summary | State[Summary]:
    """Fill the warehouse from a pool, train and evaluate every method on it, and write the report.

    A model or benchmark that fails does not stop the others: the flow reports the rest, and then fails
    with the list of what failed. If another run is doing the same work, this one waits until it ends.
    If workers of the deployment extract-model are online, each model becomes a run of its own there.

    Args:
        pool: The pool: lab, small, paper, or the path of a YAML file on the worker.
        warehouse: A directory that every worker reaches, or the URI of a Postgres catalogue without its
            password. Default: RLFOCAL_WAREHOUSE of the worker, else .rlfocal/warehouse in its checkout.
        benchmarks: Only these benchmarks of the pool. Default: all.
        models: Only these models of the pool. Default: all.
        limit: Only the first N documents of each task. Default: all.
        datasets: A mirror of the data sets on the worker, made with `rlfocal datasets mirror`. Default: the
            hub.
        backend: The engine. Default: the pool's.
        jobs: How many models run at once, one process each. Default: as many as there are GPUs; without a GPU
            2, or 1 with vllm. If models are handed over to workers: that many per worker; once the server has
            a limit rlfocal-models, that limit applies.
        minutes_per_model: The time limit of each try to extract a model, in minutes; one that takes longer is
            stopped, and what it committed stays. Default: none.
        seeds: How many seeds methods that use randomness are trained with: 0, 1, ... below this number.
        report: The HTML file to write on the worker.
        drift: When answers that differ from earlier ones count as drift; the run then ends as Drifted.
    """

    def work() -> Summary | State[Summary]:
        started = perf_counter()
        chosen = load_pool(pool).choose(models, benchmarks)
        engine = backend or chosen.backend
        for name in end_silent_runs():
            get_run_logger().warning("run %s has died, and is marked as crashed", name)
        tasks, gaps = _load_all(chosen.benchmarks, limit, datasets)
        asked = Asked(pool, warehouse, benchmarks, limit, datasets, engine, jobs, minutes_per_model)
        same = f"{chosen.model_dump_json()} {limit} {datasets} {engine} {seeds}"
        with _alone(warehouse, same, chosen.name):
            with open_warehouse(warehouse, read_only=True) as opened:
                before = accuracies(opened)
                done = None if gaps else as_it_is(opened, chosen, tasks, engine, seeds, report, started)
                if done is not None:
                    publish(done, opened, before)
                    return done
            summary = _regenerate(chosen, tasks, gaps, asked, seeds, report, drift or DriftLimits())
            with open_warehouse(warehouse, read_only=True) as opened:
                publish(summary, opened, before)
        if summary.gaps:
            raise IncompleteError(summary)
        return marked(summary)

    return ended(warehouse, work)


def _regenerate(
    pool: PoolSpec,
    tasks: Sequence[TaskDocuments],
    gaps: list[Failure],
    asked: Asked,
    seeds: int,
    report: str,
    limits: DriftLimits,
) -> Summary:
    """The work itself; `gaps` are the tasks that did not load."""
    started = perf_counter()
    location = asked.warehouse
    wanted = {(m.model, t.benchmark, t.task) for m in pool.models for t in tasks}
    before = _committed(location)
    start = newest_snapshot(location)

    extractions, missing = extract_all(pool, tasks, asked)
    gaps += missing
    extracted = {key for key, made in _committed(location).items() if before.get(key) != made} & wanted
    drift = compared(location, start, limits) if extracted else None
    lost = {(gap.model, gap.benchmark, gap.task) for gap in gaps}

    evaluations: list[Evaluation] = []
    trained: list[State[Any]] = []
    loaded = {t.benchmark for t in tasks}
    for benchmark in (b for b in pool.benchmarks if b.name in loaded):
        failed = {gap.model for gap in gaps if gap.benchmark in (benchmark.name, ALL)}
        snapshot, kept = to_train_on(drift, limits, benchmark.name, before)
        whole = [m.model for m in pool.models if m.model not in failed and (kept is None or m.model in kept)]
        if not whole:  # an empty list would mean all models that the warehouse holds, other pools' too
            gaps.append(
                Failure("evaluate", ALL, benchmark.name, ALL, "no model of the pool answered all of it")
            )
            continue
        evaluated = train_and_evaluate(
            location,
            benchmark.name,
            quote(whole),
            seeds,
            snapshot,
            return_state=True,
            wait_for=_ended(extractions),
        )
        trained.append(evaluated)
        if evaluated.is_completed():
            evaluations += evaluated.result()
        else:
            gaps.append(Failure("evaluate", ALL, benchmark.name, ALL, _reason(evaluated)))

    reported = report_all(location, report, return_state=True, wait_for=_ended(trained))
    if not reported.is_completed():
        gaps.append(Failure("report", ALL, ALL, ALL, _reason(reported)))

    return Summary(
        pool=pool.name,
        extracted=len(extracted),
        present=len((wanted & before.keys()) - extracted - lost),
        evaluations=tuple(evaluations),
        report=reported.result() if reported.is_completed() else None,
        gaps=tuple(gaps),
        seconds=perf_counter() - started,
        drift=drift,
    )


def run(on_progress: OnProgress | None = None, **parameters: Any) -> Summary:
    """The flow, here and now, on a temporary Prefect server or the one that PREFECT_API_URL names.

    `parameters` are the flow's. Returns the summary, of an incomplete run too.
    Raises InputError, with nothing written, where a parameter is wrong.
    """
    pool = load_pool(parameters.get("pool", "lab"))
    pool.choose(parameters.get("models"), parameters.get("benchmarks"))
    check_backend(parameters.get("backend") or pool.backend)
    check_location(parameters.get("warehouse"))
    with told(on_progress), secret_kept(parameters) as safe, prefect_server(), tags(TAG):
        state = in_thread(lambda: regenerate(**safe, return_state=True))
    result = state.result(raise_on_failure=False)
    if isinstance(result, IncompleteError):
        return result.summary
    if isinstance(result, BaseException):
        raise result
    assert isinstance(result, Summary)
    return result


@contextmanager
def _alone(location: str | None, work: str, pool: str) -> Iterator[None]:
    """Holds the warehouse's lock for this work: two concurrent runs would train the same agents twice."""
    with open_warehouse(location) as warehouse:
        with warehouse.lock(work, wait=False) as mine:
            if mine:
                yield
                return
        waiting = f"another run is regenerating pool {pool} in this warehouse; waiting for it to finish"
        get_run_logger().info(waiting)
        tell(waiting, 0.0)
        with warehouse.lock(work, wait=True):
            tell(waiting, 1.0)
            yield


def _load_all(
    benchmarks: Sequence[Benchmark], limit: int | None, datasets: str | None
) -> tuple[list[TaskDocuments], list[Failure]]:
    """The tasks of every benchmark that loads, and a failure for each other one. Raises if none loads."""
    tasks: list[TaskDocuments] = []
    failed: dict[str, Exception] = {}
    for benchmark, loaded in load_each(benchmarks, limit, datasets):
        if isinstance(loaded, Exception):
            failed[benchmark.name] = loaded
        else:
            tasks += loaded
    if not tasks:
        raise next(iter(failed.values()))
    return tasks, [Failure("extract", ALL, name, ALL, plain(error)) for name, error in failed.items()]


def _ended(states: Iterable[State[Any]]) -> list[Any]:
    """For `wait_for`: draws the page's arrows from runs whether they failed or not."""
    return [allow_failure(state) for state in states]


def _committed(location: str | None) -> dict[PartitionKey, Committed]:
    """The committed partitions; every commit has an id of its own."""
    with open_warehouse(location) as warehouse:
        return warehouse.committed()


def _reason(state: State[Any]) -> str:
    error = state.result(raise_on_failure=False)
    return plain(error) if isinstance(error, BaseException) else str(state.message)


if __name__ == "__main__":
    regenerate()

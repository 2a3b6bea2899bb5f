"""The main job as a Prefect flow: extract what is missing, train and evaluate, report.

Every step asks the warehouse what is already there: an interrupted run is simply started again, and no
result depends on Prefect's own caching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

from prefect import allow_failure, flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Failed
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.utilities.annotations import quote
from pydantic import Field

from flows import REPORT
from flows.deploying import check_checkout
from flows.drift import DriftLimits, compared, marked, newest_snapshot, to_train_on
from flows.pages import accuracies, log_sentences, publish
from flows.server import prefect_server
from flows.summary import ALL, IncompleteError, Summary, sentence
from flows.threads import in_thread
from rlfocal.errors import InputError, RunError
from rlfocal.evaluation import Evaluation, evaluate
from rlfocal.extraction.engines.backends import check_backend
from rlfocal.extraction.tasks import TaskDocuments, load_each
from rlfocal.failures import plain
from rlfocal.jobs.events import Failure, share_of_tasks
from rlfocal.jobs.runner import ModelOutcome, default_jobs, extract_model
from rlfocal.pool import PoolSpec, load_pool
from rlfocal.pool.specs import Backend, Benchmark
from rlfocal.report import write_report
from rlfocal.wording import counted
from warehouse import check_location, open_warehouse
from warehouse.store import Committed, PartitionKey

OnProgress = Callable[[str, float], None]
"""Called with what is running and the finished share of it, 0 to 1."""
Name = Annotated[str, Field(min_length=1)]
Names = Annotated[list[Name], Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]

# A flow's parameters are JSON, which a callback is not; Prefect hands this context on to its task threads.
_listener: ContextVar[OnProgress | None] = ContextVar("listener", default=None)


@task(task_run_name="extract {model}", cache_policy=NO_CACHE, retries=1, retry_delay_seconds=2)
def extract(
    location: str | None,
    pool: PoolSpec,
    model: str,
    backend: str,
    limit: int | None,
    jobs: int,
    tasks: Sequence[TaskDocuments],
) -> ModelOutcome | State[ModelOutcome]:
    """Every answer of one model, in its own process; a second try leaves alone what the first committed."""
    title = f"extract {model}"
    outcome = extract_model(
        location,
        pool,
        model,
        backend=backend,
        limit=limit,
        jobs=jobs,
        tasks=tasks,
        on_progress=share_of_tasks(_on_progress, len(tasks)),
    )
    if outcome.missing:
        return Failed(
            message=f"{counted(len(outcome.missing), 'partition')}: {outcome.missing[0].reason}", data=outcome
        )
    _on_progress(title, 1.0)
    return outcome


@task(task_run_name="train and evaluate on {benchmark}", cache_policy=NO_CACHE)
def train_and_evaluate(
    location: str | None, benchmark: str, models: Sequence[str], seeds: int, snapshot: int | None = None
) -> tuple[Evaluation, ...]:
    """Every method on one benchmark; a run that the warehouse holds for the same data is not repeated."""
    with open_warehouse(location) as warehouse:
        return evaluate(
            warehouse, benchmark, models=models, seeds=seeds, snapshot=snapshot, on_progress=_on_progress
        ).rows


@task(task_run_name="report", cache_policy=NO_CACHE)
def report_all(location: str | None, path: str) -> Path:
    """One HTML file about everything that was ever evaluated here."""
    with open_warehouse(location, read_only=True) as warehouse:
        return write_report(warehouse, path)


@flow(name="regenerate", flow_run_name="regenerate {pool}")
def regenerate(
    pool: Name = "lab",
    warehouse: Name | None = None,
    benchmarks: Names | None = None,
    models: Names | None = None,
    limit: Count | None = None,
    datasets: Name | None = None,
    backend: Backend | None = None,
    jobs: Count | None = None,
    seeds: Count = 3,
    report: Name = str(REPORT),
    drift: DriftLimits | None = None,
) -> Summary | State[Summary]:
    """Fill the warehouse from a pool, train and evaluate every method on it, and write the report.

    A model or a benchmark that fails stops no other: the flow reports the rest, and then fails
    with the list of what failed. If another run does the same work, this one waits until it ends.

    Args:
        pool: The pool: lab, small, paper, or the path of a YAML file on the worker.
        warehouse: A directory on the worker or the URI of a Postgres catalogue. Default: RLFOCAL_WAREHOUSE of
            the worker, else .rlfocal/warehouse in its checkout.
        benchmarks: Only these benchmarks of the pool. Default: all.
        models: Only these models of the pool. Default: all.
        limit: Only the first documents of each task, this many. Default: all.
        datasets: A mirror of the data sets on the worker, as `rlfocal datasets mirror` makes it. Default: the
            hub.
        backend: The engine. Default: the pool's.
        jobs: How many models run at once, one process each. Default: 2, and 1 with vllm.
        seeds: Methods that use randomness are trained with the seeds 0, 1, ... below this number.
        report: The HTML file to write on the worker.
        drift: When answers that differ from those before count as drift; the run then ends as Drifted.
    """
    log_sentences()
    try:
        check_checkout()
        chosen = load_pool(pool).choose(models, benchmarks)
        backend = backend or chosen.backend
        jobs = jobs or default_jobs(backend)
        tasks, gaps = _load_all(chosen.benchmarks, limit, datasets)
        work = f"{chosen.model_dump_json()} {limit} {datasets} {backend} {seeds}"
        with _alone(warehouse, work, chosen.name):
            before = accuracies(warehouse)
            summary = _regenerate(
                chosen, tasks, gaps, warehouse, backend, limit, jobs, seeds, report, drift or DriftLimits()
            )
            publish(summary, warehouse, before)
    except (InputError, RunError) as error:
        return _failed(error)
    return _failed(IncompleteError(summary)) if summary.gaps else marked(summary)


def _regenerate(
    pool: PoolSpec,
    tasks: Sequence[TaskDocuments],
    gaps: list[Failure],
    location: str | None,
    backend: str,
    limit: int | None,
    jobs: int,
    seeds: int,
    report: str,
    limits: DriftLimits,
) -> Summary:
    """The work itself; `gaps` are the tasks that did not load."""
    started = perf_counter()
    wanted = {(m.model, t.benchmark, t.task) for m in pool.models for t in tasks}
    before = _committed(location)
    start = newest_snapshot(location)

    extractions = _extract_all(pool, tasks, location=location, backend=backend, limit=limit, jobs=jobs)
    for model, state in zip(pool.models, extractions, strict=True):
        gaps += _missing(model.model, state.result(raise_on_failure=False))
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
    token = _listener.set(on_progress)
    try:
        with prefect_server():
            state = in_thread(lambda: regenerate(**parameters, return_state=True))
    finally:
        _listener.reset(token)
    result = state.result(raise_on_failure=False)
    if isinstance(result, IncompleteError):
        return result.summary
    if isinstance(result, BaseException):
        raise result
    assert isinstance(result, Summary)
    return result


@contextmanager
def _alone(location: str | None, work: str, pool: str) -> Iterator[None]:
    """Holds the warehouse's lock for this work: two runs at once would train the same agents twice."""
    with open_warehouse(location) as warehouse:
        with warehouse.lock(work, wait=False) as mine:
            if mine:
                yield
                return
        waiting = f"another run is regenerating pool {pool} in this warehouse; waiting for it to finish"
        get_run_logger().info(waiting)
        _on_progress(waiting, 0.0)
        with warehouse.lock(work, wait=True):
            _on_progress(waiting, 1.0)
            yield


def _failed(error: InputError | RunError) -> State[Any]:
    """A failed state whose message says why in one sentence; of a raised error Prefect logs a traceback."""
    if isinstance(error, IncompleteError):
        for gap in error.summary.gaps:
            get_run_logger().error("failed: %s", sentence(gap))
    return Failed(message=plain(error), data=error)


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


def _extract_all(
    pool: PoolSpec, tasks: Sequence[TaskDocuments], *, jobs: int, **common: Any
) -> list[State[ModelOutcome]]:
    """One task run per model, `jobs` at a time. Returns their final states, by model."""
    # Prefect looks for other runs' results in all that a task is given: `quote` spares it every document, and
    # the page an arrow wherever two models were given the same object.
    given = {
        name: quote(value) for name, value in {**common, "pool": pool, "jobs": jobs, "tasks": tasks}.items()
    }
    with ThreadPoolTaskRunner[Any](max_workers=jobs) as runner:
        futures = [runner.submit(extract, {**given, "model": model.model}) for model in pool.models]
        for future in futures:
            future.wait()
    return [future.state for future in futures]


def _ended(states: Iterable[State[Any]]) -> list[Any]:
    """For `wait_for`: the page's arrows from runs that count whether they failed or not."""
    return [allow_failure(state) for state in states]


def _missing(model: str, outcome: ModelOutcome | BaseException) -> Iterator[Failure]:
    if isinstance(outcome, BaseException):
        yield Failure("extract", model, ALL, ALL, plain(outcome))
    else:
        yield from outcome.missing


def _committed(location: str | None) -> dict[PartitionKey, Committed]:
    """The committed partitions; every commit has an id of its own."""
    with open_warehouse(location) as warehouse:
        return warehouse.committed()


def _reason(state: State[Any]) -> str:
    error = state.result(raise_on_failure=False)
    return plain(error) if isinstance(error, BaseException) else str(state.message)


def _on_progress(title: str, share: float) -> None:
    if (listener := _listener.get()) is not None:
        listener(title, share)


if __name__ == "__main__":
    regenerate()

"""Extracts the answers of one model, or of all models of a pool: several at a time here, or each on a
worker."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from prefect import allow_failure, flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Failed
from prefect.task_runners import ThreadPoolTaskRunner
from prefect.tasks import Task, exponential_backoff
from prefect.utilities.annotations import quote

from flows import RegenerationRequest
from flows.support.capacity import release_reserved
from flows.support.pages import ANY_NAME, report_progress, sentence, show_progress
from flows.support.parameters import Count, Place, with_final_state
from flows.workers import LIMIT_NAME, Turns, Workers, find_workers, hand_over, update_limit
from rlfocal.base import options
from rlfocal.base.errors import InputError, RunError, describe_error
from rlfocal.base.wording import count_noun
from rlfocal.extraction.budget import GPUBudget, make_budget
from rlfocal.extraction.running.events import Failure, share_of_tasks
from rlfocal.extraction.running.missing import MissingWork, plan_extraction
from rlfocal.extraction.running.runner import ModelOutcome, default_jobs, find_gpus_of
from rlfocal.extraction.running.runner import extract_model as extract_now
from rlfocal.extraction.tasks import TaskDocuments, load_tasks
from rlfocal.pool import ModelSpec, PoolSpec, load_pool
from rlfocal.pool.downloads import download
from rlfocal.pool.hub import pin_revision
from warehouse import open_warehouse
from warehouse.store import PartitionKey

N_RETRIES = 2
FIRST_DELAY = 5
"""The seconds before the first retry; each later retry waits twice as long as the one before."""


def _may_help(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Whether a retry of an extraction can end differently: false if every failure would recur."""
    outcome: Any = state.data
    while isinstance(outcome, State):
        outcome = outcome.data
    outcome = getattr(outcome, "result", outcome)  # Prefect's record of it
    return not isinstance(outcome, ModelOutcome) or not all(gap.lasting for gap in outcome.missing)


@task(
    task_run_name="extract {model}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=N_RETRIES,
    retry_delay_seconds=exponential_backoff(FIRST_DELAY),
    retry_condition_fn=_may_help,
)
def extract(
    location: str | None,
    model: str,
    missing: MissingWork,
    backend: str,
    jobs: int,
    minutes: int | None,
    stop_if_slower: bool = False,
    budget: GPUBudget | None = None,
) -> ModelOutcome | State[ModelOutcome]:
    """Extracts all missing answers of one model in its own process; what earlier tries committed stays."""
    title = f"extract {model}"
    with show_progress(title) as on_progress:
        outcome = extract_now(
            location,
            missing,
            backend,
            jobs=jobs,
            seconds=None if minutes is None else 60.0 * minutes,
            stop_if_slower=stop_if_slower,
            budget=budget,
            on_progress=share_of_tasks(on_progress, lambda _: len(missing.tasks)),
        )
    if outcome.missing:
        return Failed(
            message=f"{count_noun(len(outcome.missing), 'partition')}: {outcome.missing[0].reason}",
            data=outcome,
        )
    report_progress(title, 1.0)
    return outcome


@flow(name="extract-model", flow_run_name="extract {model}", persist_result=False)
@with_final_state
def extract_model(
    model: options.Name,
    pool: options.Pool,
    benchmarks: options.Benchmarks = None,
    backend: options.Backend = None,
    limit: options.Limit = None,
    datasets: options.Datasets = None,
    minutes: Count | None = None,
    stop_if_slower: options.StopIfSlower = False,
    download_only: bool = False,
    warehouse: Place = None,
) -> ModelOutcome:
    """Run every benchmark of a pool on one of its models, and commit the answers.

    Committed answers are left alone; if another run is extracting the same ones, this run waits for it.

    Args:
        model: The model's name in the pool.
        minutes: The time limit of each try, in minutes; a model that takes longer is stopped, and what it
            committed stays. Default: none.
        download_only: Download data sets, tokenizer and weights, without a GPU, and ask nothing.
    """
    chosen = load_pool(pool).choose([model], benchmarks)
    if download_only:
        return _download(chosen, datasets)
    tasks = load_tasks(chosen.benchmarks, limit, datasets)
    engine = backend or chosen.backend
    with open_warehouse(warehouse) as opened:
        [missing] = plan_extraction(opened, chosen.models, tasks, engine)
    release_reserved()
    state = extract(warehouse, model, missing, engine, 1, minutes, stop_if_slower, return_state=True)
    outcome: Any = state.result(raise_on_failure=False)
    if not isinstance(outcome, ModelOutcome):
        raise RunError(f"extract {model}: {describe_error(outcome)}")
    for gap in outcome.missing:
        get_run_logger().error("failed: %s", sentence(gap))
    if outcome.missing:
        n = count_noun(len(outcome.missing), "partition")
        raise RunError(f"{n} of {model} missing: {outcome.missing[0].reason}")
    return outcome


def _download(pool: PoolSpec, datasets: str | None) -> ModelOutcome:
    """Downloads the data sets, tokenizer and weights that the pool's one model needs.

    Failures are logged, because the extraction reports them again.
    """
    [model] = pool.models
    try:
        load_tasks(pool.benchmarks, None, datasets)
        gigabytes = download(pin_revision(model))
        get_run_logger().info("%.1f GB of %s are here", gigabytes, model.model)
    except (InputError, RunError, OSError) as error:
        get_run_logger().warning("%s could not be downloaded: %s", model.model, describe_error(error))
    return ModelOutcome(model.model, (), (), ())


def submit_each(
    task: Any, each: Sequence[dict[str, Any]], *, at_once: int, after: Iterable[State[Any]] = ()
) -> list[State[Any]]:
    """Runs a task with each of these sets of arguments, at most `at_once` at a time; returns the final
    states. `after`: states of earlier runs, failed or not; Prefect's page draws arrows from them."""
    # Prefect looks for other runs' results in all that a task is given: `quote` spares it every document, and
    # the page an arrow wherever two models were given the same object.
    with ThreadPoolTaskRunner[Any](max_workers=at_once) as runner:
        given = [
            {name: value if isinstance(value, str) else quote(value) for name, value in parameters.items()}
            for parameters in each
        ]
        before = with_failures(after)
        futures = [runner.submit(task, parameters, wait_for=before) for parameters in given]
        for future in futures:
            future.wait()
    return [future.state for future in futures]


def with_failures(states: Iterable[State[Any]]) -> list[Any]:
    """The states as arguments of `wait_for`, so that Prefect's page draws arrows from them, failed or not."""
    return [allow_failure(state) for state in states]


def extract_all(
    pool: PoolSpec, tasks: Sequence[TaskDocuments], request: RegenerationRequest
) -> tuple[list[State[Any]], list[Failure]]:
    """Runs a task for each model that lacks answers; returns the tasks' final states and the failures."""
    backend = request.backend or pool.backend
    with open_warehouse(request.location) as warehouse:
        plans = plan_extraction(warehouse, pool.models, tasks, backend)
    lacking = sorted((plan for plan in plans if plan.is_incomplete), key=lambda plan: plan.place)
    if not lacking:
        return [], []
    workers = find_workers()
    if workers is None:
        return _extract_locally(lacking, request, backend)
    return _extract_on_workers([plan.model for plan in lacking], tasks, request, backend, workers)


def _extract_locally(
    lacking: Sequence[MissingWork], request: RegenerationRequest, backend: str
) -> tuple[list[State[Any]], list[Failure]]:
    jobs = request.jobs or default_jobs(backend)
    given = {
        "location": request.location,
        "backend": backend,
        "jobs": jobs,
        "minutes": request.minutes_per_model,
        "stop_if_slower": request.stop_if_slower,
        "budget": make_budget(request.gpu_hours, len(find_gpus_of(backend))),
    }
    each = [{**given, "model": plan.model.model, "missing": plan} for plan in lacking]
    states = submit_each(extract, each, at_once=jobs)
    outcomes = [state.result(raise_on_failure=False) for state in states]
    pairs = zip(lacking, outcomes, strict=True)
    return states, [gap for plan, outcome in pairs for gap in _list_missing(plan.model.model, outcome)]


def _list_missing(model: str, outcome: ModelOutcome | BaseException) -> Iterator[Failure]:
    if isinstance(outcome, BaseException):
        yield Failure("extract", model, ANY_NAME, ANY_NAME, describe_error(outcome))
    else:
        yield from outcome.missing


def _extract_on_workers(
    lacking: Sequence[ModelSpec],
    tasks: Sequence[TaskDocuments],
    request: RegenerationRequest,
    backend: str,
    workers: Workers,
) -> tuple[list[State[Any]], list[Failure]]:
    workers = workers._replace(widest=max(model.tensor_parallel for model in lacking))
    limit = update_limit(workers)
    online, models = count_noun(workers.online, "worker"), count_noun(len(lacking), "model")
    get_run_logger().info(
        "%s for %s of work pool %s, with %d slots (limit %s)", models, online, workers.pool, limit, LIMIT_NAME
    )
    parameters = {
        "pool": request.pool,
        "warehouse": request.location,
        "benchmarks": request.benchmarks,
        "limit": request.limit,
        "datasets": request.datasets,
        "backend": backend,
        "minutes": request.minutes_per_model,
        "stop_if_slower": request.stop_if_slower or None,
    }
    given = {name: value for name, value in parameters.items() if value is not None}
    turns = Turns()
    budget = make_budget(request.gpu_hours, limit)
    each = [
        {
            "model": model.model,
            "gpus": model.tensor_parallel,
            "workers": workers,
            "turns": turns,
            "place": place,
            "budget": budget,
            "parameters": {**given, "model": model.model},
        }
        for place, model in enumerate(lacking)
    ]
    states = submit_each(hand_over, each, at_once=request.jobs or len(each))
    with open_warehouse(request.location, read_only=True) as warehouse:
        committed = warehouse.committed_partitions()
    gaps: list[Failure] = []
    for model, state in zip(lacking, states, strict=True):
        asked = [(task.benchmark, task.task) for task in tasks if task.includes_model(model.model)]
        absent = [key for key in asked if PartitionKey(model.model, *key) not in committed]
        gaps += _find_gaps(model.model, state, absent, workers)
    return states, gaps


def _find_gaps(
    model: str, state: State[Any], absent: Sequence[tuple[str, str]], workers: Workers
) -> Iterator[Failure]:
    """Yields a failure for each partition that a worker's run lacks, or one for the model if none is
    lacking."""
    if state.is_completed():
        reason = (
            f"its run on a worker of {workers.pool} succeeded, but this warehouse has no answers of it; "
            "give all workers the same RLFOCAL_WAREHOUSE, one that each of them can reach"
        )
    else:
        reason = str(state.message)
        # Where nothing is absent, an older partition is there and the new one is not.
        absent = absent or [(ANY_NAME, ANY_NAME)]
    for key in absent:
        yield Failure("extract", model, *key, reason)

"""One model's answers: the unit of GPU work, here or on the worker that takes it."""

from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Failed
from prefect.tasks import Task, exponential_backoff

from flows.support.pages import sentence
from flows.support.parameters import Count, Place, with_final_state
from flows.support.progress import report_progress, show_progress
from rlfocal.base import options
from rlfocal.base.errors import RunError
from rlfocal.base.failures import plain
from rlfocal.base.wording import counted
from rlfocal.extraction.running.events import share_of_tasks
from rlfocal.extraction.running.missing import Missing, plan_extraction
from rlfocal.extraction.running.runner import ModelOutcome
from rlfocal.extraction.running.runner import extract_model as extract_now
from rlfocal.extraction.tasks import load_tasks
from rlfocal.pool import load_pool
from warehouse import open_warehouse

RETRIES = 2
FIRST_DELAY = 5
"""Seconds before the first retry; then twice that."""


def may_help(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Whether another try can end differently: not if every failure would recur."""
    outcome: Any = state.data
    while isinstance(outcome, State):
        outcome = outcome.data
    outcome = getattr(outcome, "result", outcome)  # Prefect's record of it
    return not isinstance(outcome, ModelOutcome) or not all(gap.lasting for gap in outcome.missing)


@task(
    task_run_name="extract {model}",
    cache_policy=NO_CACHE,
    persist_result=False,
    retries=RETRIES,
    retry_delay_seconds=exponential_backoff(FIRST_DELAY),
    retry_condition_fn=may_help,
)
def extract(
    location: str | None,
    model: str,
    missing: Missing,
    backend: str,
    jobs: int,
    minutes: int | None,
) -> ModelOutcome | State[ModelOutcome]:
    """Every answer of one model, in its own process; a retry leaves alone what earlier tries committed."""
    title = f"extract {model}"
    with show_progress(title) as on_progress:
        outcome = extract_now(
            location,
            missing,
            backend,
            jobs=jobs,
            seconds=None if minutes is None else 60.0 * minutes,
            on_progress=share_of_tasks(on_progress, len(missing.tasks)),
        )
    if outcome.missing:
        return Failed(
            message=f"{counted(len(outcome.missing), 'partition')}: {outcome.missing[0].reason}", data=outcome
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
    warehouse: Place = None,
) -> ModelOutcome:
    """Run every benchmark of a pool on one of its models, and commit the answers.

    Committed answers are left alone; if another run is extracting the same ones, this run waits for it.

    Args:
        model: The model's name in the pool.
        minutes: The time limit of each try, in minutes; a model that takes longer is stopped, and what it
            committed stays. Default: none.
    """
    chosen = load_pool(pool).choose([model], benchmarks)
    tasks = load_tasks(chosen.benchmarks, limit, datasets)
    engine = backend or chosen.backend
    with open_warehouse(warehouse) as opened:
        [missing] = plan_extraction(opened, chosen.models, tasks, engine)
    state = extract(warehouse, model, missing, engine, 1, minutes, return_state=True)
    outcome: Any = state.result(raise_on_failure=False)
    if not isinstance(outcome, ModelOutcome):
        raise RunError(f"extract {model}: {plain(outcome)}")
    for gap in outcome.missing:
        get_run_logger().error("failed: %s", sentence(gap))
    if outcome.missing:
        n = counted(len(outcome.missing), "partition")
        raise RunError(f"{n} of {model} missing: {outcome.missing[0].reason}")
    return outcome

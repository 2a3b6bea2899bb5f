"""A regeneration as a Prefect flow: it extracts missing answers, trains, evaluates, and writes the report.

Every step asks the warehouse what is stored already. So an interrupted run can simply be started again, and
no result depends on Prefect's own caching.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from prefect import flow, get_run_logger, tags, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Completed

from flows import RegenerationRequest, report_path
from flows.extracting import extract_all, submit_each, with_failures
from flows.summaries import Summary, evaluation_of
from flows.support.deploying import RUN_TAG, end_silent_runs
from flows.support.looking import ask_anew, begin_look, look_at_promises, measure_drift
from flows.support.pages import (
    ANY_NAME,
    IncompleteError,
    keep_published,
    progress_sink,
    publish,
    read_published,
    report_progress,
)
from flows.support.parameters import Place, hide_password, with_final_state
from flows.support.server import prefect_server, run_in_thread
from rlfocal.base.errors import InputError, RunError, describe_error
from rlfocal.base.options import takes
from rlfocal.base.request import Progress
from rlfocal.evaluation import EvaluationRequest
from rlfocal.evaluation.conclusion import summarise
from rlfocal.evaluation.leaderboard import leaderboard
from rlfocal.evaluation.running import evaluate_apart
from rlfocal.evaluation.storing import Evaluation
from rlfocal.extraction.partition import explain_replaced
from rlfocal.extraction.running.events import Failure
from rlfocal.extraction.running.runner import cores
from rlfocal.extraction.tasks import TaskDocuments, load_each
from rlfocal.methods import entry_of
from rlfocal.new_model.asking_again import Recheck, ask_again, recheck_table
from rlfocal.pool import PoolSpec
from rlfocal.pool.specs import Benchmark
from rlfocal.report import write_report
from rlfocal.upkeep.drift import headline, store_look
from warehouse import check_location, open_warehouse
from warehouse.store import PartitionKey, PartitionRecord

DRIFTED_STATE, WITHDRAWN_STATE = "Drifted", "Withdrawn"
"""The final states of a run whose answers drifted, and of one that withdrew promises.

Both are completed states: everything was extracted and stored, so nothing has to run again, and automations
for failures are not triggered. Other automations can wait for the event `prefect.flow-run.Drifted`.
"""
Location = str | Path | None


@task(task_run_name="train and evaluate on {benchmark}", cache_policy=NO_CACHE, persist_result=False)
def train_and_evaluate(
    location: Location, benchmark: str, request: EvaluationRequest
) -> tuple[Evaluation, ...]:
    """Evaluates every method on one benchmark; runs that the warehouse has for the same data are not
    repeated."""
    return evaluate_apart(location, replace(request, on_progress=report_progress)).rows


@task(task_run_name="report", cache_policy=NO_CACHE, persist_result=False)
def report_all(location: Location, path: str | Path) -> Path:
    """Writes the HTML report on everything that the warehouse has evaluated."""
    with open_warehouse(location, read_only=True) as warehouse:
        return write_report(warehouse, path)


@flow(name="regenerate", flow_run_name="regenerate {pool}", persist_result=False)
@with_final_state
@takes(RegenerationRequest, without=("location",))
def regenerate(request: RegenerationRequest, warehouse: Place = None) -> Summary | State[Summary]:
    """Fill the warehouse from a pool, train and evaluate every method on it, and write the report.

    A model or benchmark that fails does not stop the others: the flow reports the rest, and then fails
    with the list of what failed. If another run is doing the same work, this one waits until it ends.
    If workers of the deployment extract-model are online, each model becomes a run of its own there, at
    most `jobs` at once; without `jobs`, as many as the workers have GPUs for (the limit rlfocal-models).
    """
    request = replace(request, location=warehouse)
    chosen = request.load_pool()
    for name in end_silent_runs():
        get_run_logger().warning("run %s has died, and is marked as crashed", name)
    for method in chosen.methods:
        entry_of(method)  # an unknown one ends the run before hours of extraction
    tasks, gaps = _load_all(chosen.benchmarks, request.limit, request.datasets)
    engine = request.backend or chosen.backend
    same = f"{chosen.model_dump_json()} {request.limit} {request.datasets} {engine} {request.seeds}"
    with _hold_lock(warehouse, same, chosen.name):
        before = read_published(warehouse)
        summary = _regenerate(chosen, tasks, gaps, request)
        with open_warehouse(warehouse, read_only=True) as opened:
            boards = leaderboard(opened, runs={row.run_id for row in summary.evaluations})
        summary = replace(summary, boards=tuple(boards), verdicts=summarise(boards))
        publish(summary, before)
        keep_published(warehouse, boards, before)
    if summary.gaps:
        raise IncompleteError(summary)
    return _mark_drifted(summary, request)


def _regenerate(
    pool: PoolSpec,
    tasks: Sequence[TaskDocuments],
    gaps: list[Failure],
    request: RegenerationRequest,
) -> Summary:
    """Does the work of `regenerate`; `gaps` has failures of tasks that did not load, and gets all later
    ones."""
    started = perf_counter()
    location = request.location
    wanted = {(m.model, t.benchmark, t.task) for m in pool.models for t in tasks if t.includes_model(m.model)}
    with open_warehouse(location) as warehouse:
        before, since = warehouse.committed_partitions(), begin_look(warehouse)

    rechecks, unasked = _probe_services(pool, request) if pool.probe else ((), [])
    extractions, missing = extract_all(pool, tasks, request)
    gaps += unasked + missing
    committed = _read_committed(location)
    extracted = {key for key, made in committed.items() if before.get(key) != made} & wanted
    replaced = explain_replaced(before, committed, extracted)
    for sentence in replaced:
        get_run_logger().warning("replaced: %s", sentence)
    withdrawn = look_at_promises(location, since)
    drift, looked_at = measure_drift(location, since)
    lost = {(gap.model, gap.benchmark, gap.task) for gap in gaps}

    requests: list[EvaluationRequest] = []
    loaded = {t.benchmark for t in tasks}
    for benchmark in (b for b in pool.benchmarks if b.name in loaded):
        failed = {gap.model for gap in gaps if gap.benchmark in (benchmark.name, ANY_NAME)}
        if (evaluation := evaluation_of(pool, benchmark, request.seeds, failed)) is not None:
            requests.append(evaluation)
        else:
            reason = "no model of the pool answered all of it"
            gaps.append(Failure("evaluate", ANY_NAME, benchmark.name, ANY_NAME, reason))
    n_documents: Counter[str] = Counter()
    for t in tasks:
        n_documents[t.benchmark] += len(t.documents)
    trained = _evaluate_side_by_side(location, requests, n_documents, extractions)
    evaluations: list[Evaluation] = []
    for name in (about.benchmark for about in requests):
        if trained[name].is_completed():
            evaluations += trained[name].result()
        else:
            gaps.append(Failure("evaluate", ANY_NAME, name, ANY_NAME, _explain(trained[name])))

    waited_for = with_failures(trained.values())
    path = request.report or report_path(location)
    reported = report_all(location, path, return_state=True, wait_for=waited_for)
    if not reported.is_completed():
        gaps.append(Failure("report", ANY_NAME, ANY_NAME, ANY_NAME, _explain(reported)))

    return Summary(
        pool=pool.name,
        extracted=len(extracted),
        present=len((wanted & before.keys()) - extracted - lost),
        evaluations=tuple(evaluations),
        report=reported.result() if reported.is_completed() else None,
        gaps=tuple(gaps),
        seconds=perf_counter() - started,
        drift=drift,
        withdrawn=withdrawn,
        evaluated_from=looked_at,
        looked_at=looked_at if drift is not None or withdrawn else None,
        changed=tuple(recheck for recheck in rechecks if recheck.changed),
        replaced=tuple(replaced),
    )


def _probe_services(
    pool: PoolSpec, request: RegenerationRequest
) -> tuple[tuple[Recheck, ...], list[Failure]]:
    """Asks models of services some documents again; returns comparisons with their earlier answers, and
    failures."""
    rechecks, gaps = [], []
    answered = {key[:2] for key in _read_committed(request.location)}
    closed = [model.model for model in pool.models if model.is_closed]
    asked = [(model, b.name) for model in closed for b in pool.benchmarks if (model, b.name) in answered]
    for model, benchmark in asked:
        try:
            recheck = ask_again(
                benchmark,
                model,
                pool=request.pool,
                warehouse=request.location,
                backend=request.backend,
                datasets=request.datasets,
                on_progress=report_progress,
            )
            rechecks.append(recheck)
        except (InputError, RunError) as error:
            gaps.append(Failure("probe", model, benchmark, ANY_NAME, describe_error(error)))
    if rechecks:
        lines = recheck_table(rechecks).markdown()
        create_markdown_artifact(key="regenerate-probes", markdown="\n".join(lines))
    return tuple(rechecks), gaps


@regenerate.on_completion
def end_look(flow: object, flow_run: FlowRun, state: State[Any]) -> None:
    """Stores the snapshot up to which the run checked drift and promises, once the server has its final
    state. A run that dies earlier has shown nothing, so the next one checks the same."""
    summary: Summary = state.result()
    if summary.looked_at is not None:
        with open_warehouse(flow_run.parameters.get("warehouse")) as warehouse:
            store_look(warehouse, summary.looked_at)


def _mark_drifted(summary: Summary, request: RegenerationRequest) -> Summary | State[Summary]:
    """The summary, in a state that says whether something drifted or was withdrawn.

    The state is Withdrawn if a promise broke. It is Drifted if answers differ beyond the limits, or a
    service's model has changed.
    """
    if summary.withdrawn:
        broken = [f"{p.method} on {p.benchmark}: at most {100 * p.target:g} %" for p in summary.withdrawn]
        return Completed(
            name=WITHDRAWN_STATE, message=" · ".join(["promises withdrawn", *broken]), data=summary
        )
    if summary.changed:
        swapped = [f"{recheck.model} on {recheck.benchmark}" for recheck in summary.changed]
        message = " · ".join(
            ["services changed", *swapped, *ask_anew(summary.changed, request.pool, request.location)]
        )
        return Completed(name=DRIFTED_STATE, message=message, data=summary)
    if summary.drift is None or not summary.drift.exceeded_limits:
        return summary
    places = [f"{key.model} on {key.benchmark}/{key.task}" for key in summary.drift.exceeded_limits]
    message = " · ".join([headline(summary.drift), *places[:5], *(["..."] if len(places) > 5 else [])])
    return Completed(name=DRIFTED_STATE, message=message, data=summary)


def _evaluate_side_by_side(
    location: Location,
    requests: Sequence[EvaluationRequest],
    n_documents: Mapping[str, int],
    extractions: Sequence[State[Any]],
) -> dict[str, State[Any]]:
    """By benchmark, the final state of its evaluation; as many evaluations run at once as there are cores.

    The benchmark with the most documents begins first, so that no long one is left for the end.
    """
    ordered = sorted(requests, key=lambda request: -n_documents[request.benchmark])
    each = [{"location": location, "benchmark": request.benchmark, "request": request} for request in ordered]
    states = submit_each(train_and_evaluate, each, at_once=cores(), after=extractions)
    return {request.benchmark: state for request, state in zip(ordered, states, strict=True)}


def run(request: RegenerationRequest, on_progress: Progress | None = None) -> Summary:
    """Runs the flow now, on a temporary Prefect server or the one that PREFECT_API_URL names.

    Returns the summary, also of an incomplete run. Raises InputError, with nothing written, if a parameter is
    wrong.
    """
    request.load_pool()  # refuses a wrong pool or backend before a server starts
    check_location(request.location)
    parameters = dict(vars(request))
    location = parameters.pop("location")
    parameters["report"] = request.report or str(report_path(location))
    parameters["warehouse"] = location and str(location)
    with progress_sink(on_progress), hide_password(parameters) as safe, prefect_server(), tags(RUN_TAG):
        state: Any = run_in_thread(lambda: regenerate(**safe, return_state=True))
    result = state.result(raise_on_failure=False)
    if isinstance(result, IncompleteError):
        return result.summary
    if isinstance(result, BaseException):
        raise result
    assert isinstance(result, Summary)
    return result


@contextmanager
def _hold_lock(location: Location, work: str, pool: str) -> Iterator[None]:
    """Holds the warehouse's lock for this work during a block; two concurrent runs would train the same
    agents."""
    with open_warehouse(location) as warehouse:
        with warehouse.lock(work, wait=False) as mine:
            if mine:
                yield
                return
        waiting = f"another run is regenerating pool {pool} in this warehouse; waiting for it to finish"
        get_run_logger().info(waiting)
        report_progress(waiting, 0.0)
        with warehouse.lock(work, wait=True):
            report_progress(waiting, 1.0)
            yield


def _load_all(
    benchmarks: Sequence[Benchmark], limit: int | None, datasets: str | Path | None
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
    return tasks, [
        Failure("extract", ANY_NAME, name, ANY_NAME, describe_error(error)) for name, error in failed.items()
    ]


def _read_committed(location: Location) -> dict[PartitionKey, PartitionRecord]:
    """The records of committed partitions, which have a new id after every commit."""
    with open_warehouse(location) as warehouse:
        return warehouse.committed_partitions()


def _explain(state: State[Any]) -> str:
    error = state.result(raise_on_failure=False)
    return describe_error(error) if isinstance(error, BaseException) else str(state.message)


if __name__ == "__main__":
    regenerate("lab")

"""Runs methods on one benchmark's test rows, unless the warehouse has their decisions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import get_args

from threadpoolctl import threadpool_limits

from rlfocal.base import options
from rlfocal.base.errors import InputError, RunError
from rlfocal.base.names import RL_FOCAL, Protocol
from rlfocal.base.request import Progress
from rlfocal.base.wording import count_noun
from rlfocal.evaluation import EvaluationRequest
from rlfocal.evaluation.candidates import make_candidate, missing_runs, run_methods
from rlfocal.evaluation.explaining import explain, explanation_file, load
from rlfocal.evaluation.planning import Setup, parse_settings, read_dataset
from rlfocal.evaluation.promising import promise, stored_promises, warnings_of
from rlfocal.evaluation.storing import Evaluation, read_runs, renew
from rlfocal.evaluation.tuning import holds_out_tasks, inner_folds
from rlfocal.extraction.running.processes import Send, run_each
from rlfocal.methods import check_methods, entry_of, every_method, find_methods, methods_for, with_references
from rlfocal.statistics.selective import share
from warehouse import Warehouse, open_warehouse
from warehouse.locations import Location, locate

EVALUATION_MODULES = (
    "rlfocal.evaluation.fitting",
    "rlfocal.methods.rl_focal.gated",
    "rlfocal.methods.rl_focal.training",
    "rlfocal.methods.rl_focal_sequential.training",
    "scipy.optimize",
    "sklearn.linear_model",
)
"""Modules that most methods import; they are imported once for all processes."""


@dataclass(frozen=True)
class EvaluationReport:
    """The runs of an evaluation, computed now or stored before."""

    rows: tuple[Evaluation, ...]
    ran: tuple[str, ...]
    """The ids of the runs that were computed now."""
    left_out: tuple[tuple[str, str], ...]
    """(model, reason) of the models that did not answer every document."""
    skipped: tuple[tuple[str, str], ...] = ()
    """(method, reason) of the methods that did not run, because the data do not admit them."""
    warnings: tuple[str, ...] = ()
    """Sentences on why promises that were made may not hold."""

    def remarks(self) -> list[str]:
        """The warnings, and one sentence for each reason why models and methods are left out."""
        of_reason = defaultdict(list)
        for name, reason in (*self.left_out, *self.skipped):
            of_reason[reason].append(name)
        omissions = [
            f"left out, as each {reason}: {', '.join(names)}"
            if names[1:]
            else f"left out: {names[0]}, which {reason}"
            for reason, names in of_reason.items()
        ]
        return [*self.warnings, *omissions]


def evaluate(
    warehouse: Warehouse,
    benchmark: options.Benchmark,
    *,
    methods: options.Methods = None,
    models: options.Models = None,
    seeds: options.Seeds = 3,
    per: options.Per = "benchmark",
    protocol: options.ProtocolOrBoth = "frozen",
    split: options.Split = "given",
    budgets: options.Budgets = None,
    settings: options.Settings = None,
    tune: options.Tune = 0,
    snapshot: options.Snapshot = None,
    force: options.Again = False,
    at_once: options.AtOnce = 1,
    target_errors: options.TargetErrors = None,
    beside: Sequence[str] | None = None,
    on_progress: Progress | None = None,
) -> EvaluationReport:
    """Fits each method on train rows, decides on test rows, and stores evaluations and decisions.

    For example `evaluate(warehouse, "mmlu", methods=["soft_vote"], seeds=1)`. `EvaluationRequest` and
    `rlfocal evaluate --help` describe the parameters. Unless `force`, stored runs (same data, method, seed,
    protocol) are not repeated, and trained agents are not trained again. Settings that `tune` finds hold for
    all seeds and budgets. RL-Focal always runs beside the reference policies. Unless methods are named, it
    also runs beside constant pools of as many models as it asks. Raises InputError for a wrong name and for
    data that cannot be split.
    """
    request = EvaluationRequest(
        benchmark,
        methods=methods,
        models=models,
        seeds=seeds,
        per=per,
        protocol=protocol,
        split=split,
        budgets=budgets,
        settings=settings,
        tune=tune,
        snapshot=snapshot,
        force=force,
        at_once=at_once,
        target_errors=target_errors,
        beside=beside,
        on_progress=on_progress,
    )
    return run_evaluation(warehouse, request)


def evaluate_apart(location: str | Path | None, request: EvaluationRequest) -> EvaluationReport:
    """Evaluates a request in a separate process, because Python runs one thread at a time.

    Also stores the explanation of the first seed of RL-Focal's agents, which the report shows. Raises
    RunError with a sentence on what went wrong in that process.
    """
    reports: list[EvaluationReport] = []

    def on_event(_: str, event: EvaluationReport | tuple[str, float]) -> None:
        if isinstance(event, EvaluationReport):
            reports.append(event)
        elif request.on_progress is not None:
            request.on_progress(*event)

    job = {request.benchmark: (locate(location), replace(request, on_progress=None))}
    [reason] = run_each(
        _evaluate_here, job, at_once=1, on_event=on_event, preload=EVALUATION_MODULES
    ).values()
    if reason is not None:
        raise RunError(reason)
    return reports[0]


def _evaluate_here(send: Send, location: Location, request: EvaluationRequest) -> None:
    own = replace(request, on_progress=lambda title, share: send((title, share)))
    with threadpool_limits(1), open_warehouse(location, create=False) as warehouse:
        report = run_evaluation(warehouse, own)
        # Explanations are of frozen agents with the default settings, on the present rows.
        is_usual = not (request.tune or request.settings) and request.protocol == "frozen"
        for row in report.rows if is_usual and request.snapshot is None else ():
            is_ours = row.method in RL_FOCAL[:2] and (row.task, row.seed) == ("*", 0)
            if is_ours and load(explanation_file(warehouse, row.run_id)) is None:
                explain(
                    warehouse,
                    row.benchmark,
                    method=row.method,
                    models=row.models,
                    per=request.per,
                    split=request.split,
                    on_progress=own.on_progress,
                )
        send(report)


def run_evaluation(warehouse: Warehouse, request: EvaluationRequest) -> EvaluationReport:
    """Fits the methods of a request, decides on test rows, and stores and reports the results."""
    parse_settings(request.settings or ())
    for text in request.target_errors or ():
        share(text)  # raises InputError for a text that is no share
    if request.target_errors and (request.protocol != "frozen" or request.tune):
        raise InputError(
            "--target-error promises what frozen methods with given settings do; leave out --tune and "
            "--protocol"
        )
    dataset = read_dataset(warehouse, request.benchmark, request.models, request.snapshot, request.split)
    both: tuple[Protocol, ...] = get_args(Protocol)
    requests = [replace(request, protocol=each) for each in both] if request.protocol == "both" else [request]
    # Fits are small: threads of the linear algebra wait for one another and take three times the CPU.
    with threadpool_limits(1, user_api="blas"):
        reports = [_evaluate(Setup(warehouse, dataset, each)) for each in requests]
    ran = tuple(run_id for report in reports for run_id in report.ran)
    rows = tuple(row for report in reports for row in report.rows)
    return EvaluationReport(rows, ran, dataset.left_out, reports[-1].skipped, reports[-1].warnings)


def _evaluate(setup: Setup) -> EvaluationReport:
    """Evaluates the methods of a request under one protocol."""
    warehouse, dataset, request = setup.warehouse, setup.dataset, setup.request
    names, skipped = _choose_methods(setup)
    if request.tune:  # before hours of fitting
        inner_folds(dataset.train, request.per, whole_tasks=holds_out_tasks(dataset))
    candidates = [make_candidate(setup, name) for name in names]
    ran: list[str] = []
    if request.at_once > 1:
        missing = {name: runs for name, runs in missing_runs(setup, candidates).items() if runs}
        if len(missing) > 1:
            warehouse.check_writable()
            _run_side_by_side(setup, list(missing))
            ran = [run.run_id for runs in missing.values() for run in runs]
            setup = replace(setup, request=replace(request, force=False))
    runs_of, new = run_methods(setup, candidates)
    if request.methods is None:
        ours = [
            [row.mean_pool_size for row in read_runs(warehouse, runs_of[name]) if row.task == "*"]
            for name in find_methods("rl_focal")
            if name in runs_of
        ]
        pools = dict.fromkeys(
            f"{name}:{max(round(fmean(sizes)), 1)}"
            for sizes in ours
            for name in _select_methods(request, find_methods("constant_pool"))
            if name not in skipped
        )
        of_pools, new_of_pools = run_methods(setup, [make_candidate(setup, name) for name in pools])
        runs_of, new = runs_of | of_pools, new | new_of_pools
    run_ids = [run_id for runs in runs_of.values() for run_id in runs]
    for candidate in candidates if request.target_errors else ():
        promise(setup, candidate, list(map(share, request.target_errors or ())))
    renew(setup, run_ids)
    ran += [run_id for run_id in run_ids if run_id in new]
    left_out = dataset.left_out, tuple(skipped.items())
    warnings = warnings_of(stored_promises(warehouse, run_ids)) if request.target_errors else ()
    return EvaluationReport(read_runs(warehouse, run_ids), tuple(ran), *left_out, tuple(warnings))


def _choose_methods(setup: Setup) -> tuple[list[str], dict[str, str]]:
    """The methods to run, and why some usual methods and constant pools do not run."""
    data, request = setup.dataset, setup.request
    about = data, request.protocol, setup.settings, request.per
    names, skipped = list(request.methods or ()), dict[str, str]()
    if request.methods is None:
        usual = _select_methods(request, methods_for(len(data.models), data.kind, request.protocol))
        usual += request.beside or ()
        for name in (*usual, *_select_methods(request, find_methods("constant_pool"))):
            if (reason := entry_of(name).explain_missing(*about)) is not None:
                skipped[name] = reason
        names = [name for name in usual if name not in skipped]
    elif names == ["all"]:
        names, skipped = every_method(*about)
    names = with_references(names, data, request.protocol, request.per)
    check_methods(names, *about)
    return names, skipped


def _select_methods(request: EvaluationRequest, names: Iterable[str]) -> list[str]:
    """The names without methods of other packages, unless the request's `beside` names them or is None."""
    asked = request.beside
    return [name for name in names if asked is None or name in asked or not entry_of(name).package]


def _run_side_by_side(setup: Setup, names: Sequence[str]) -> None:
    """Runs every method in a separate process, at most `at_once` of them at a time, and stores the results.

    If a method fails, raises RunError after all have ended. Stored results of other methods stay.
    """
    data, on_progress = setup.dataset, setup.request.on_progress
    request = replace(setup.request, models=data.models, on_progress=None)
    done: set[str] = set()
    in_all = f"{data.benchmark}: all {len(names)} methods"

    def on_event(name: str, event: tuple[str, float]) -> None:
        if on_progress is not None:
            on_progress(*event)
            if event[1] >= 1 and event[0].startswith("stored "):
                done.add(name)
                on_progress(in_all, len(done) / len(names))

    if on_progress is not None:
        on_progress(in_all, 0.0)
    shared = (setup.warehouse.location, request, data.fingerprint())
    reasons = run_each(
        _run_one,
        {name: (*shared, name) for name in names},
        at_once=request.at_once,
        on_event=on_event,
        preload=EVALUATION_MODULES,
    )
    failed = {name: reason for name, reason in reasons.items() if reason is not None}
    if failed:
        of_reason = defaultdict[str, list[str]](list)
        for name, reason in failed.items():
            of_reason[reason].append(name)
        each = "; ".join(f"{', '.join(of)}: {reason}" for reason, of in of_reason.items())
        raise RunError(
            f"{count_noun(len(failed), 'method')} of {len(names)} failed, the others are stored. {each}"
        )


def _run_one(send: Send, location: Location, request: EvaluationRequest, data: str, name: str) -> None:
    # One thread a process: more of them than cores wait for one another by spinning.
    with threadpool_limits(1), open_warehouse(location, create=False, threads=1) as warehouse:
        dataset = read_dataset(warehouse, request.benchmark, request.models, request.snapshot, request.split)
        if dataset.fingerprint() != data:
            raise RunError(f"{request.benchmark!r} changed during evaluation; run it again")
        own = replace(request, on_progress=lambda title, share: send((title, share)))
        setup = Setup(warehouse, dataset, own)
        run_methods(setup, [make_candidate(setup, name)])
    send((f"stored {name}", 1.0))

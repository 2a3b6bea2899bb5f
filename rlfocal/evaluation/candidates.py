"""Evaluates one method on one benchmark: searches settings if asked to, fits, decides and stores."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from rlfocal.base.errors import InputError, RunError, describe_error
from rlfocal.evaluation.confidence import Probabilities
from rlfocal.evaluation.fitting import decide_groups, fit_groups, fitting_lock, hold_to_budget
from rlfocal.evaluation.planning import TRIALS_KEY, Candidate, Run, Setup
from rlfocal.evaluation.storing import (
    Result,
    ResultBatch,
    make_result,
    rule_out,
    stored_runs,
)
from rlfocal.evaluation.tuning import SEARCH_REVISION, Search, holds_out_tasks, tune
from rlfocal.methods import Method, MethodArguments, entries, entry_of, list_settings, make_method

SETTINGS_STUDY = "settings"
"""The study of runs with settings other than the defaults. Such runs are on no leaderboard."""
TUNING_FOLDER = "tuning"
"""The folder of the searches' journals, inside the folder of studies."""


def run_methods(setup: Setup, candidates: Collection[Candidate]) -> tuple[dict[str, list[str]], set[str]]:
    """Fits methods on train rows, decides on test rows and stores the runs that are not yet stored.

    Returns the ids of the runs by method, one per budget and seed, and the ids of those that were made now.
    An error in another package's method, except InputError, becomes a RunError that names the package.
    """
    batch = ResultBatch(setup)
    name = ""
    try:
        missing = missing_runs(setup, candidates)
        for candidate in candidates:
            name = candidate.name
            if missing[name]:
                _run_method(setup, candidate, missing[name], batch)
    except InputError:
        raise
    except Exception as error:
        entry = entries().get(name.partition(":")[0])
        if entry is None or not entry.package:
            raise
        raise RunError(f"{name} of package {entry.package!r} failed: {describe_error(error)}") from error
    finally:
        batch.store()
    runs_of = {candidate.name: [run.run_id for run in candidate.runs(setup)] for candidate in candidates}
    return runs_of, batch.stored


def _run_method(setup: Setup, candidate: Candidate, new: list[Run], batch: ResultBatch) -> None:
    """Makes the runs `new` of one method that are still missing, and gives their results to `batch`."""
    warehouse, dataset = setup.warehouse, setup.dataset
    warehouse.check_writable()  # before hours of fitting, not after
    with fitting_lock(setup, candidate.name, new[0].settings + candidate.tuned):
        [new] = missing_runs(setup, [candidate]).values()  # another process may have stored them meanwhile
        method, chosen = candidate.tune() if new and candidate.tune else (candidate.method, {})
        seeds = list(dict.fromkeys(run.seed or 0 for run in new))
        tasks = candidate.reads_task
        started = time.perf_counter()
        fitted = dict(zip(seeds, fit_groups(method, dataset, setup.groups, seeds, tasks=tasks), strict=True))
        fitting = (time.perf_counter() - started) / max(len(seeds), 1)
        made: list[Result] = []
        budgets = tuple(dict.fromkeys(run.budget for run in new))
        probabilities = Probabilities(method, dataset, setup.groups, budgets, tasks=tasks)
        for run in new:
            policies = hold_to_budget(run.budget, fitted[run.seed or 0])
            if policies is None:
                rule_out(warehouse, run)
                continue
            started = time.perf_counter()
            decisions = decide_groups(dataset, setup.groups, policies, setup.request.protocol, tasks=tasks)
            if setup.request.protocol == "frozen":
                decisions = probabilities.add_probabilities(decisions, policies, run.seed or 0, run.budget)
            seconds = fitting + time.perf_counter() - started
            made.append(make_result(setup, replace(run, chosen=chosen), policies, decisions, seconds))
        batch.add(made)


def missing_runs(setup: Setup, candidates: Collection[Candidate]) -> dict[str, list[Run]]:
    """By method, each candidate's runs that are neither stored nor ruled out by their budget.

    All its runs if the request has `force`.
    """
    held = set() if setup.request.force else stored_runs(setup)
    return {
        candidate.name: [run for run in candidate.runs(setup) if run.run_id not in held]
        for candidate in candidates
    }


def make_candidate(setup: Setup, name: str) -> Candidate:
    """The candidate of this method with the requested settings, and a search of the others if requested."""
    about, title = entry_of(name), f"{setup.dataset.benchmark} {name}"

    def make(settings: Mapping[str, Any]) -> Method:
        making = MethodArguments(store=setup.store, settings=settings, on_progress=setup.progress(title))
        return make_method(name, making)

    has = list_settings(make({}))
    of_all = {n: value for n, value in setup.settings.get("", {}).items() if n in has}
    settings = of_all | dict(setup.settings.get(name.partition(":")[0], {}))
    # Rows of other settings must not take the place of the method's own. What must be given is no other.
    study = SETTINGS_STUDY if settings.keys() - {about.needs_setting} else None
    candidate = Candidate(name, make(settings), study, settings, about.has_budgets, "task" in about.reads)
    space = {n: where for n, where in about.space.items() if n not in settings}
    if not (setup.request.tune and space):
        return candidate

    def make_trial(trial_settings: Mapping[str, Any]) -> Method:
        return make_method(name, MethodArguments(settings={**settings, **trial_settings}))

    def run_search() -> tuple[Method, Mapping[str, Any]]:
        search = Search(
            name,
            make_trial,
            space,
            setup.dataset.train,
            setup.request.per,
            setup.request.protocol,
            whole_tasks=holds_out_tasks(setup.dataset),
            fixed_settings=settings,
            tasks=candidate.reads_task,
        )
        folder, tell = setup.warehouse.location.studies / TUNING_FOLDER, setup.request.on_progress
        on_share = None if tell is None else lambda share: tell(f"{title} tuning", share)
        trials, force = setup.request.tune, setup.request.force
        result = tune(search, trials, folder, force=force, on_progress=on_share)
        return make({**settings, **result.settings}), {**result.settings, TRIALS_KEY: result.trials}

    return replace(
        candidate, tuned=f"{setup.request.tune} trials of {SEARCH_REVISION} {space!r}", tune=run_search
    )

"""Methods by name, with the settings that are given or searched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlfocal.evaluation.planning import TUNED, Candidate, Setup
from rlfocal.evaluation.runs import run_method
from rlfocal.evaluation.tuning import REVISION, Search, holds_out_tasks, tune
from rlfocal.methods import Making, Method, entry_of, make_method, reads_task, settable

SETTINGS = "settings"
"""The study of runs with settings other than the defaults: they are on no leaderboard."""
TUNING = "tuning"
"""The folder of the searches' journals, among the studies."""


def run_named(setup: Setup, name: str) -> tuple[list[str], list[str]]:
    """As `run_method` does, by the method's name."""
    return run_method(setup, _candidate(setup, name))


def run_ids_of(setup: Setup, name: str) -> list[str]:
    """The ids of its runs, one per seed and budget. Nothing is fitted."""
    return [run.run_id for run in _candidate(setup, name).runs(setup)]


def run_id_of(setup: Setup, name: str, seed: int) -> str:
    """The id of one seed's run without a budget. Nothing is fitted."""
    return replace(_candidate(setup, name).runs(setup)[0], seed=seed).run_id


def _candidate(setup: Setup, name: str) -> Candidate:
    about, base = entry_of(name), name.partition(":")[0]
    making = Making(store=setup.store, on_progress=setup.progress(f"{setup.dataset.benchmark} {name}"))
    known = settable(make_method(name, making))
    settings = {n: v for n, v in setup.settings.get("", {}).items() if n in known} | dict(
        setup.settings.get(base, {})
    )
    method = make_method(name, replace(making, settings=settings))
    # Rows of other settings must not take the place of the method's own. What must be given is no other.
    study = SETTINGS if settings.keys() - {about.needs_setting} else None
    candidate = Candidate(name, method, study, settings, about.has_budgets, reads_task(name))
    space = {n: where for n, where in about.space.items() if n not in settings}
    return _tuned(setup, candidate, space) if setup.request.tune and space else candidate


def _tuned(setup: Setup, candidate: Candidate, space: Mapping[str, Any]) -> Candidate:
    """The candidate, whose settings are searched once one of its runs is missing."""
    name, fixed = candidate.name, candidate.settings

    def make(settings: Mapping[str, Any]) -> Method:
        return make_method(name, Making(settings={**fixed, **settings}))

    def run_search() -> tuple[Method, Mapping[str, Any]]:
        search = Search(
            name,
            make,
            space,
            setup.dataset.train,
            setup.request.per,
            setup.request.protocol,
            whole_tasks=holds_out_tasks(setup.dataset),
            fixed=fixed,
            tasks=candidate.reads_task,
        )
        title, tell = f"{setup.dataset.benchmark} {name} tuning", setup.request.on_progress
        found = tune(
            search,
            setup.request.tune,
            setup.warehouse.location.studies / TUNING,
            force=setup.request.force,
            on_progress=None if tell is None else lambda share: tell(title, share),
        )
        making = Making(
            store=setup.store,
            settings={**fixed, **found.settings},
            on_progress=setup.progress(f"{setup.dataset.benchmark} {name}"),
        )
        return make_method(name, making), {**found.settings, TUNED: found.trials}

    return replace(candidate, tuned=f"{setup.request.tune} trials of {REVISION} {space!r}", tune=run_search)

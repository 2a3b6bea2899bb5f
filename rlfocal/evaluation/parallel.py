"""Methods side by side, one process each: what one has stored stays even if others fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from threadpoolctl import threadpool_limits

from rlfocal.base.errors import RunError
from rlfocal.base.wording import counted
from rlfocal.evaluation import EvaluationRequest
from rlfocal.evaluation.candidates import make_candidate, run_method
from rlfocal.evaluation.planning import Setup, read_dataset
from rlfocal.extraction.running.processes import run_each
from warehouse import open_warehouse
from warehouse.locations import Location

PRELOAD = (
    "rlfocal.evaluation.fitting",
    "rlfocal.methods.gated_log_linear",
    "rlfocal.methods.rl_focal.training",
    "rlfocal.methods.rl_focal_sequential.training",
    "scipy.optimize",
    "sklearn.linear_model",
)
"""What most methods import, imported once."""


def run_side_by_side(setup: Setup, names: Sequence[str]) -> None:
    """Runs every method in a process of its own, at most `at_once` at a time, and stores the results.

    If one fails, raises RunError once all have ended; what the others stored stays.
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
        _run,
        {name: (*shared, name) for name in names},
        at_once=request.at_once,
        on_event=on_event,
        preload=PRELOAD,
    )
    failed = {name: reason for name, reason in reasons.items() if reason is not None}
    if failed:
        each = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise RunError(
            f"{counted(len(failed), 'method')} of {len(names)} failed, the others are stored. {each}"
        )


def _run(
    send: Callable[[Any], None], location: Location, request: EvaluationRequest, data: str, name: str
) -> None:
    # One thread a process: more of them than cores wait for one another by spinning.
    with threadpool_limits(1), open_warehouse(location, create=False) as warehouse:
        dataset = read_dataset(warehouse, request.benchmark, request.models, request.snapshot, request.split)
        if dataset.fingerprint() != data:
            raise RunError(f"{request.benchmark!r} changed during evaluation; run it again")
        own = replace(request, on_progress=lambda title, share: send((title, share)))
        setup = Setup(warehouse, dataset, own)
        run_method(setup, make_candidate(setup, name))
    send((f"stored {name}", 1.0))

"""Methods side by side, one process each: what one has stored stays even if others fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from threadpoolctl import threadpool_limits

from rlfocal.base.errors import RunError
from rlfocal.base.wording import counted
from rlfocal.data.policy import Budget
from rlfocal.evaluation.candidates import run_named
from rlfocal.evaluation.planning import Per, Progress, Setup, read_dataset
from rlfocal.extraction.running.processes import run_each
from rlfocal.methods.registry import Settings
from warehouse import open_warehouse
from warehouse.locations import Location

PRELOAD = ("rlfocal.evaluation.fitting", "scipy.optimize", "sklearn.linear_model", "torch")
"""What most methods import, imported once."""


@dataclass(frozen=True)
class Shared:
    """What every process needs to run a method on the same rows."""

    location: Location
    benchmark: str
    models: tuple[str, ...]
    snapshot: int | None
    split: str
    seeds: int
    per: Per
    protocol: str
    settings: Settings
    budgets: tuple[Budget, ...]
    force: bool
    tune: int
    data: str
    """The dataset's fingerprint."""

    @classmethod
    def of(cls, setup: Setup, snapshot: int | None) -> Shared:
        data = setup.dataset
        return cls(
            setup.warehouse.location,
            data.benchmark,
            data.models,
            snapshot,
            setup.split,
            setup.seeds,
            setup.per,
            setup.protocol,
            setup.settings,
            setup.budgets,
            setup.force,
            setup.tune,
            data.fingerprint(),
        )


def run_side_by_side(
    shared: Shared, names: Sequence[str], at_once: int, on_progress: Progress | None
) -> None:
    """Runs every method in a process of its own, at most `at_once` at a time, and stores the results.

    If one fails, raises RunError once all have ended; what the others stored stays.
    """
    done: set[str] = set()
    in_all = f"{shared.benchmark}: all {len(names)} methods"

    def on_event(name: str, event: tuple[str, float]) -> None:
        if on_progress is not None:
            on_progress(*event)
            if event[1] >= 1 and event[0].startswith("stored "):
                done.add(name)
                on_progress(in_all, len(done) / len(names))

    if on_progress is not None:
        on_progress(in_all, 0.0)
    ended = run_each(
        _run, {name: (shared, name) for name in names}, at_once=at_once, on_event=on_event, preload=PRELOAD
    )
    failed = {name: reason for name, reason in ended.items() if reason is not None}
    if failed:
        each = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise RunError(
            f"{counted(len(failed), 'method')} of {len(names)} failed, the others are stored. {each}"
        )


def _run(send: Callable[[Any], None], shared: Shared, name: str) -> None:
    # One thread a process: more of them than cores wait for one another by spinning.
    with threadpool_limits(1), open_warehouse(shared.location, create=False) as warehouse:
        dataset = read_dataset(warehouse, shared.benchmark, shared.models, shared.snapshot, shared.split)
        if dataset.fingerprint() != shared.data:
            raise RunError(f"{shared.benchmark!r} was written to in the meantime; evaluate again")
        setup = Setup(
            warehouse,
            dataset,
            shared.seeds,
            shared.per,
            shared.protocol,
            shared.split,
            shared.settings,
            shared.budgets,
            shared.force,
            lambda title, share: send((title, share)),
            shared.tune,
        )
        run_named(setup, name)
    send((f"stored {name}", 1.0))

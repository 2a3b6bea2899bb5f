"""Models on GPUs: starts the first waiting model that fits on the free GPUs, until every model has run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from rlfocal.base.wording import counted
from rlfocal.extraction.gpus import FREE_MIB, Device, Lease, find_foreign_use, offer_free, restrict_to
from rlfocal.extraction.running.processes import Processes

SECONDS_BETWEEN_LOOKS = 0.2
PATIENCE = 10.0
"""Seconds after which a message says what a run waits for."""
FOREIGN_PATIENCE = 60.0
"""Seconds after which a model fails if others use GPUs that it needs; a driver frees memory sooner."""
SECONDS_OF_FOREIGN_USE = 5.0
"""Seconds until the driver is asked again whether others still use GPUs."""
_log = logging.getLogger(__name__)


def run_on_gpus(
    job: Callable[..., None],
    arguments: Mapping[str, tuple[Any, ...]],
    widths: Mapping[str, int],
    devices: Sequence[Device],
    folder: Path,
    *,
    at_once: int | None = None,
    seconds: float | None = None,
    on_event: Callable[[str, Any], None],
    preload: Sequence[str] = (),
) -> dict[str, str | None]:
    """Runs `job(send, *arguments[model])` in a process per model, which sees `widths[model]` GPUs of its own.

    Models start in the order of `arguments`; one that fits overtakes those that need more GPUs than are free.
    At most `at_once` run at a time. Leases in `folder` let several callers share a machine. The rest is as in
    `run_each`.
    """
    waiting = {model: widths[model] for model in arguments if widths[model] <= len(devices)}
    ended: dict[str, str | None] = {
        model: (
            f"it needs {counted(widths[model], 'GPU')} (tensor_parallel), but only {len(devices)} may "
            "be used here; run it on a larger machine, or lower tensor_parallel in its pool entry"
        )
        for model in arguments
        if model not in waiting
    }
    gpus = _FreeGPUs(devices, folder)
    with Processes(on_event, preload, seconds) as processes:
        while processes or waiting:
            while len(processes) < (at_once or len(devices)) and (placed := gpus.place(waiting)):
                model, lease = placed
                del waiting[model]
                processes.start(model, job, arguments[model], restrict_to(lease.devices), lease)
            if blockers := gpus.find_blockers():
                for model, width in waiting.items():
                    needs = counted(width, "GPU")
                    ended[model] = (
                        f"it needs {needs}, but other processes use {blockers}; stop what uses them"
                    )
                waiting.clear()
            gpus.report_waiting(bool(waiting) and not processes)
            ended |= processes.wait(SECONDS_BETWEEN_LOOKS)
    return ended


class _FreeGPUs:
    """Finds GPUs that no run of rlfocal holds by a lease and no other program uses."""

    def __init__(self, devices: Sequence[Device], folder: Path) -> None:
        self._devices = devices
        self._folder = folder
        self._used: dict[str, int] = {}
        self._reported: set[str] = set()
        self._blocked_since: float | None = None
        self._waiting_since: float | None = None
        self._next_look = 0.0

    def place(self, waiting: Mapping[str, int]) -> tuple[str, Lease] | None:
        """The first model that fits, and a lease on its GPUs; None if none can start now."""
        if monotonic() < self._next_look:
            return None
        with offer_free(self._folder, self._devices) as offer:
            free = offer.devices
            if _first_that_fits(waiting, len(free)) is None:
                self._blocked_since = None
                return None
            self._used = find_foreign_use(free)
            self._report_used()
            unused = [device for device in free if device.uuid not in self._used]
            model = _first_that_fits(waiting, len(unused))
            if model is not None:
                self._blocked_since = None
                return model, offer.take(unused[: waiting[model]])
        now = monotonic()
        self._next_look = now + SECONDS_OF_FOREIGN_USE
        self._blocked_since = (self._blocked_since or now) if len(free) == len(self._devices) else None
        return None

    def find_blockers(self) -> str | None:
        """The GPUs that others have used for a minute in which no lease was held, by name."""
        if self._blocked_since is None or monotonic() - self._blocked_since < FOREIGN_PATIENCE:
            return None
        return ", ".join(device.name for device in self._devices if device.uuid in self._used)

    def report_waiting(self, is_waiting: bool) -> None:
        """Logs once that leases of other runs are what this one waits for."""
        now = monotonic()
        self._waiting_since = (self._waiting_since or now) if is_waiting and not self._blocked_since else None
        is_long = self._waiting_since is not None and now - self._waiting_since > PATIENCE
        if is_long and "waiting" not in self._reported:
            self._reported.add("waiting")
            _log.warning("waiting for GPUs: other runs of rlfocal hold them")

    def _report_used(self) -> None:
        for device in self._devices:
            if device.uuid in self._used and device.uuid not in self._reported:
                self._reported.add(device.uuid)
                _log.warning(
                    "skipping GPU %s: other processes use %s MiB of it (more than %s)",
                    *(device.name, f"{self._used[device.uuid]:,}", f"{FREE_MIB:,}"),
                )


def _first_that_fits(waiting: Mapping[str, int], n_free: int) -> str | None:
    return next((model for model, width in waiting.items() if width <= n_free), None)

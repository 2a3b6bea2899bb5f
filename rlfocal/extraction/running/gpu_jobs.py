"""Engines on GPUs: starts one wherever GPUs are free and it helps, until every task is accounted for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

from rlfocal.base.wording import counted
from rlfocal.extraction.gpus.devices import FREE_MIB, Device, sees_only, used_by_others
from rlfocal.extraction.gpus.leases import Lease, offered
from rlfocal.extraction.gpus.schedule import Running, Work, choose, in_order, ordered
from rlfocal.extraction.running.events import AlreadyCommitted, Event, Progress
from rlfocal.extraction.running.processes import Processes

SECONDS_BETWEEN_LOOKS = 0.2
PATIENCE = 10.0
"""Seconds that GPUs stay free for other models before one that is already running takes them too."""
FOREIGN_PATIENCE = 60.0
"""Seconds after which a model fails if others use GPUs that it needs; a driver frees memory sooner."""
SECONDS_OF_FOREIGN_USE = 5.0
"""Seconds until the driver is asked again whether others still use GPUs."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Jobs:
    """What runs in the processes, and its arguments."""

    extract: Callable[..., None]
    """Called with `send`, the arguments, and whether to work on a model that other processes have begun."""
    wait: Callable[..., None]
    """Called with `send` and the arguments, without a GPU: until other processes end what they work on."""
    arguments: Callable[[str, Collection[str]], tuple[Any, ...]]
    """Of a model and those of its tasks that are left."""


@dataclass
class _Engine:
    """A process of a model: an engine, or one that waits."""

    model: str
    lease: Lease | None
    """None if it waits for others."""
    begun: float
    since: float | None
    """When it last began a task, by `monotonic`; None while it starts."""


def run_on_gpus(
    jobs: Jobs,
    works: Sequence[Work],
    devices: Sequence[Device],
    folder: Path,
    *,
    at_once: int | None = None,
    seconds: float | None = None,
    on_event: Callable[[str, Event], None],
    preload: Sequence[str] = (),
    patience: float = PATIENCE,
) -> dict[str, str | None]:
    """Runs every model of `works` on GPUs of its own, in a process per engine, at most `at_once` of them.

    Each engine sees only its own GPUs, and holds them by a lease in `folder`, so that several callers can
    share a machine; one that takes longer than `seconds` is stopped. Calls `on_event(model, event)` here for
    everything sent. Returns, by model, None or one sentence that says why tasks are not accounted for.
    """
    placing = _Placing(jobs, devices, folder, at_once, on_event, patience)
    for work in ordered(works):
        placing.add(work)
    with Processes(placing.heard, preload, seconds) as processes:
        placing.start(processes)
        while processes or placing.waiting:
            ended = processes.wait(SECONDS_BETWEEN_LOOKS)
            for key, reason in ended.items():
                placing.ended(processes, key, reason)
            placing.start(processes)
    return placing.reasons


@dataclass
class _Placing:
    """The state of a run."""

    jobs: Jobs
    devices: Sequence[Device]
    folder: Path
    at_once: int | None
    on_event: Callable[[str, Event], None]
    patience: float
    works: dict[str, Work] = field(default_factory=dict)
    left: dict[str, set[str]] = field(default_factory=dict)
    """Tasks that are neither committed nor reported as failed, by model."""
    waiting: list[str] = field(default_factory=list)
    given_up: set[str] = field(default_factory=set)
    """Models that other processes had begun and, at least in part, left undone."""
    engines: dict[str, _Engine] = field(default_factory=dict)
    reasons: dict[str, str | None] = field(default_factory=dict)
    _n_started: int = 0
    _crashed: set[str] = field(default_factory=set)
    """Models that get no further engine beside those at work."""
    _free_since: dict[Device, float] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _stuck_since: float | None = None
    _held_since: float | None = None
    _next_look: float = 0.0

    def add(self, work: Work) -> None:
        """Puts a model in the queue, or fails it where the machine has too few GPUs."""
        self.works[work.model], self.left[work.model] = work, set(work.tasks)
        if work.gpus > len(self.devices):
            self.reasons[work.model] = (
                f"it needs {counted(work.gpus, 'GPU')} (tensor_parallel), but only {len(self.devices)} may "
                "be used here; run it on a larger machine, or lower tensor_parallel in its pool entry"
            )
        else:
            self.waiting.append(work.model)

    def heard(self, key: str, event: Event) -> None:
        """Passes an event on, unless another engine has said the same of its task."""
        engine = self.engines[key]
        now = monotonic()
        if isinstance(event, AlreadyCommitted):
            is_new = f"{event.benchmark}/{event.task}" in self.left[engine.model]
        else:
            is_new = True
            if engine.since is None:
                work = self.works[engine.model]
                self.works[engine.model] = replace(work, start=min(work.start, now - engine.begun))
                engine.since = now
        if not isinstance(event, Progress):
            engine.since = engine.since and now
            self.left[engine.model].discard(f"{event.benchmark}/{event.task}")
        if is_new:
            self.on_event(engine.model, event)

    def ended(self, processes: Processes, key: str, reason: str | None) -> None:
        """What a process's end means for its model."""
        engine = self.engines.pop(key)
        model = engine.model
        if reason is not None:
            self._crashed.add(model)
        if any(other.model == model for other in self.engines.values()):
            return
        if reason is not None or not self.left[model]:
            self.reasons[model] = reason if self.left[model] else None
        elif engine.lease is None:
            self.waiting.append(model)
            self.given_up.add(model)
        else:  # other processes are at it
            self._launch(processes, model, None)

    def start(self, processes: Processes) -> None:
        """Starts engines for as long as there are GPUs for another one."""
        while self.at_once is None or self._n_engines() < self.at_once:
            placed = None if monotonic() < self._next_look else self._placed()
            if placed is None:
                return
            model, lease = placed
            joins = model not in self.waiting or model in self.given_up
            if model in self.waiting:
                self.waiting.remove(model)
            self._launch(processes, model, lease, joins=joins)

    def _n_engines(self) -> int:
        return sum(engine.lease is not None for engine in self.engines.values())

    def _launch(self, processes: Processes, model: str, lease: Lease | None, *, joins: bool = True) -> None:
        self._n_started += 1
        key = f"{model} {self._n_started}"
        given = self.jobs.arguments(model, self.left[model])
        now = monotonic()
        self.engines[key] = _Engine(model, lease, begun=now, since=now if lease is None else None)
        if lease is None:
            processes.start(key, self.jobs.wait, given)
        else:
            seen = sees_only(lease.devices)
            processes.start(key, self.jobs.extract, (*given, joins), seen, lease)

    def _placed(self) -> tuple[str, Lease] | None:
        """The next model and its GPUs; None if none can start now."""
        waiting = ordered(self.works[model] for model in self.waiting)
        running = [] if waiting else self._running()
        taken = {
            device for engine in self.engines.values() if engine.lease for device in engine.lease.devices
        }
        with offered(self.folder, [device for device in self.devices if device not in taken]) as offer:
            free = self._unused(offer.devices, waiting)
            if (work := choose(waiting, running, len(free))) is None:
                self._tell_waiting()
                return None
            foreign = used_by_others(free)
            self._tell(foreign)
            free = [device for device in free if device.uuid not in foreign]
            work = choose(waiting, running, len(free))
            if work is None:
                self._next_look = monotonic() + SECONDS_OF_FOREIGN_USE
                self._give_up(len(free) + len(foreign), foreign)
                return None
            self._stuck_since = None
            return work.model, offer.take(free[: work.gpus])

    def _unused(self, free: Sequence[Device], waiting: Sequence[Work]) -> list[Device]:
        """The GPUs that a model may take now: a running one leaves free GPUs to others for a while."""
        now = monotonic()
        self._free_since = {device: self._free_since.get(device, now) for device in free}
        if waiting:
            return list(free)
        return [device for device, since in self._free_since.items() if now - since >= self.patience]

    def _running(self) -> list[Running]:
        """An estimate: the engines of a model are assumed to be at its longest tasks that are left.

        Where a process waits for others, one engine of theirs is.
        """
        now = monotonic()
        found = []
        for model, work in self.works.items():
            engines = [e for e in self.engines.values() if e.model == model]
            if not engines or model in self._crashed:
                continue
            tasks = in_order({task: work.tasks[task] for task in self.left[model]})
            ready = [e.since for e in engines if e.since is not None]
            starting = [max(0.0, e.begun + work.start - now) for e in engines if e.since is None]
            at_work = zip(ready, tasks, strict=False)
            busy = [max(0.0, work.tasks[task] - (now - since)) for since, task in at_work]
            idle = [0.0] * (len(ready) - len(busy))
            unbegun = tuple(work.tasks[task] for task in tasks[len(busy) :])
            found.append(Running(work, (*busy, *idle, *starting), unbegun))
        return found

    def _tell(self, foreign: Mapping[str, int]) -> None:
        for device in self.devices:
            if device.uuid in foreign and device.uuid not in self._told:
                self._told.add(device.uuid)
                _log.warning(
                    "GPU %s is left out: others use %s MiB of it (more than %s)",
                    *(device.name, f"{foreign[device.uuid]:,}", f"{FREE_MIB:,}"),
                )

    def _tell_waiting(self) -> None:
        if not self.waiting or self.engines:
            self._held_since = None
            return
        now = monotonic()
        self._held_since = self._held_since or now
        if now - self._held_since > PATIENCE and "waiting" not in self._told:
            self._told.add("waiting")
            _log.warning("waiting for GPUs: other runs of rlfocal have them")

    def _give_up(self, n_unheld: int, foreign: Mapping[str, int]) -> None:
        """Fails models that have waited a minute for GPUs that are in use without a lease."""
        if n_unheld < len(self.devices):
            self._stuck_since = None
            return
        self._stuck_since = self._stuck_since or monotonic()
        if monotonic() - self._stuck_since < FOREIGN_PATIENCE:
            return
        used = ", ".join(device.name for device in self.devices if device.uuid in foreign)
        for model in self.waiting:
            needs = counted(self.works[model].gpus, "GPU")
            self.reasons[model] = f"it needs {needs}, but others use {used}; stop what uses them"
        self.waiting.clear()

"""Which model starts next on free GPUs, and the schedule that comes of it: pure functions of estimates.

Jobs are rigid (a model takes the GPUs of its entry or none), and divisible: its tasks are independent, and
further engines of the same model, replicas, can share them, each at the cost of a start. Wider models go
first, and among equally wide ones the one with the most work (list scheduling, Graham 1969,
doi:10.1137/0117039). If every width divides the next and the machine's, as 1, 2, 4 and 8 do, the free GPUs
always have room for the next model, so no GPU is idle while a model waits; other widths may leave gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heapreplace


@dataclass(frozen=True)
class Work:
    """What a model has to do."""

    model: str
    gpus: int
    """Of every engine that runs it."""
    start: float
    """Seconds until an engine of it answers."""
    tasks: Mapping[str, float]
    """Seconds an engine takes for each task."""

    @property
    def seconds(self) -> float:
        """Of one engine alone."""
        return self.start + sum(self.tasks.values())


@dataclass(frozen=True)
class Running:
    """A model that engines are at work on."""

    work: Work
    busy: tuple[float, ...]
    """Seconds until each of its engines can begin another task."""
    open: tuple[float, ...]
    """Seconds of each task that none of them has begun."""


@dataclass(frozen=True)
class Span:
    """A task's seconds on the clock of its schedule."""

    task: str
    begin: float
    end: float


@dataclass(frozen=True)
class Bar:
    """An engine's time on its GPUs, in seconds from the schedule's beginning."""

    model: str
    gpus: tuple[int, ...]
    begin: float
    end: float
    tasks: tuple[Span, ...]


@dataclass(frozen=True)
class Schedule:
    """All engines of a run; `makespan` and `lower_bound` in seconds."""

    gpus: int
    bars: tuple[Bar, ...]
    makespan: float
    lower_bound: float


def ordered(works: Iterable[Work]) -> list[Work]:
    """The order of models: the widest first, then the one with the most work."""
    return sorted(works, key=lambda work: (-work.gpus, -work.seconds, work.model))


def in_order(tasks: Mapping[str, float]) -> list[str]:
    """The longest task first, so that what is left at the end can be shared evenly."""
    return sorted(tasks, key=lambda task: (-tasks[task], task))


def choose(waiting: Sequence[Work], running: Iterable[Running], n_free: int) -> Work | None:
    """The model to start an engine for on some of `n_free` GPUs; None if that would not help.

    It is the first of `waiting` that fits. If no model waits, it is, of the running ones that would end
    sooner with another engine (its start included), the one that would end last.
    """
    if waiting:
        return next((work for work in waiting if work.gpus <= n_free), None)
    helped = [
        (end, one.work.model, one.work)
        for one in running
        if one.work.gpus <= n_free
        and one.open
        and finish((*one.busy, one.work.start), one.open) < (end := finish(one.busy, one.open))
    ]
    return max(helped)[2] if helped else None


def finish(busy: Sequence[float], tasks: Iterable[float]) -> float:
    """When the last of some engines ends, each taking the longest task that is left once it is free.

    >>> finish([0, 1], [2, 2, 3])
    5
    """
    free = list(busy)
    heapify(free)
    for seconds in sorted(tasks, reverse=True):
        heapreplace(free, free[0] + seconds)
    return max(free)


def lower_bound(works: Sequence[Work], n_gpus: int) -> float:
    """Seconds that no schedule can beat: the longest task after its start, or all work on all GPUs."""
    longest = max((work.start + max(work.tasks.values()) for work in works if work.tasks), default=0.0)
    return max(longest, sum(work.gpus * work.seconds for work in works if work.tasks) / n_gpus)


@dataclass
class _Engine:
    """An engine of the simulation."""

    work: Work
    gpus: tuple[int, ...]
    begin: float
    until: float
    """When its start or its task ends."""
    tasks: list[Span] = field(default_factory=list)


def simulate(works: Sequence[Work], n_gpus: int) -> Schedule:
    """The schedule that `choose` makes of the works if every estimate is right and all GPUs start idle.

    Works without tasks are left out. Every model must fit on the GPUs.
    """
    waiting = ordered(work for work in works if work.tasks)
    left = {work.model: in_order(work.tasks) for work in waiting}
    free = list(range(n_gpus))
    engines: list[_Engine] = []
    bars: list[Bar] = []
    now = 0.0
    while True:
        while free and (work := choose(waiting, _running(engines, left, now), len(free))) is not None:
            if work in waiting:
                waiting.remove(work)
            gpus, free = tuple(free[: work.gpus]), free[work.gpus :]
            engines.append(_Engine(work, gpus, now, now + work.start))
        if not engines:
            return Schedule(n_gpus, tuple(bars), now, lower_bound(works, n_gpus))
        engine = min(engines, key=lambda engine: engine.until)
        now = engine.until
        if left[engine.work.model]:
            task = left[engine.work.model].pop(0)
            engine.until = now + engine.work.tasks[task]
            engine.tasks.append(Span(task, now, engine.until))
        else:
            engines.remove(engine)
            free = sorted([*free, *engine.gpus])
            bars.append(Bar(engine.work.model, engine.gpus, engine.begin, now, tuple(engine.tasks)))


def _running(engines: Iterable[_Engine], left: Mapping[str, Sequence[str]], now: float) -> list[Running]:
    busy: dict[str, list[float]] = {}
    works: dict[str, Work] = {}
    for engine in engines:
        works[engine.work.model] = engine.work
        busy.setdefault(engine.work.model, []).append(engine.until - now)
    return [
        Running(work, tuple(busy[model]), tuple(work.tasks[task] for task in left[model]))
        for model, work in works.items()
    ]

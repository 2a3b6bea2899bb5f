"""The schedule of models on GPUs that `run_on_gpus` makes if every estimate is right, and its drawing.

A model takes the GPUs of its entry or none. Wider models go first, and among equally wide ones the one with
the most work (list scheduling, Graham 1969, doi:10.1137/0117039). If every width divides the next and the
machine's, as 1, 2, 4 and 8 do, no GPU is idle while a model waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from string import ascii_lowercase, ascii_uppercase

IDLE = "·"
UNNAMED = "#"
"""Stands for a model after the 52nd."""


@dataclass(frozen=True)
class Work:
    """What a model has to do on its GPUs."""

    model: str
    gpus: int
    seconds: float
    """Start included."""


@dataclass(frozen=True)
class Bar:
    """A model's time on its GPUs, in seconds from the schedule's beginning."""

    model: str
    gpus: tuple[int, ...]
    begin: float
    end: float


@dataclass(frozen=True)
class Schedule:
    """All models of a run; `makespan` and `lower_bound` in seconds."""

    gpus: int
    bars: tuple[Bar, ...]
    makespan: float
    lower_bound: float
    """What no schedule can beat: the longest model, or all work on all GPUs."""


def simulate(works: Sequence[Work], n_gpus: int) -> Schedule:
    """The schedule of the works if all GPUs start idle. Every model must fit on the GPUs."""
    waiting = sorted(works, key=lambda work: (-work.gpus, -work.seconds, work.model))
    idle = list(range(n_gpus))
    running: list[Bar] = []
    ended: list[Bar] = []
    now = 0.0
    while waiting or running:
        while work := next((work for work in waiting if work.gpus <= len(idle)), None):
            waiting.remove(work)
            running.append(Bar(work.model, tuple(idle[: work.gpus]), now, now + work.seconds))
            del idle[: work.gpus]
        bar = min(running, key=lambda bar: bar.end)
        now = bar.end
        running.remove(bar)
        ended.append(bar)
        idle = sorted([*idle, *bar.gpus])
    longest = max((work.seconds for work in works), default=0.0)
    bound = max(longest, sum(work.gpus * work.seconds for work in works) / n_gpus)
    return Schedule(n_gpus, tuple(ended), now, bound)


def letters(schedule: Schedule) -> dict[str, str]:
    """A letter for each model, in the order in which they begin."""
    models = dict.fromkeys(bar.model for bar in sorted(schedule.bars, key=lambda bar: (bar.begin, bar.gpus)))
    return dict(zip(models, chain(ascii_uppercase, ascii_lowercase, repeat(UNNAMED)), strict=False))


def draw(schedule: Schedule, columns: int) -> list[str]:
    """For each GPU, `columns` signs: which model has it in the middle of each part of the makespan."""
    sign = letters(schedule)
    lines = [[IDLE] * columns for _ in range(schedule.gpus)]
    for bar in schedule.bars:
        for column in range(columns):
            if bar.begin <= (column + 0.5) * schedule.makespan / columns < bar.end:
                for gpu in bar.gpus:
                    lines[gpu][column] = sign[bar.model]
    return ["".join(line) for line in lines]

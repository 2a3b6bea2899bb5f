"""A schedule as lines of text: a row per GPU, a letter per model, time from left to right."""

from __future__ import annotations

from itertools import chain, repeat
from string import ascii_lowercase, ascii_uppercase

from rlfocal.extraction.gpus.schedule import Schedule

IDLE = "·"
UNNAMED = "#"
"""For a model after the 52nd."""


def letters(schedule: Schedule) -> dict[str, str]:
    """A letter for each model, in the order in which they begin."""
    models = dict.fromkeys(bar.model for bar in sorted(schedule.bars, key=lambda bar: (bar.begin, bar.gpus)))
    return dict(zip(models, chain(ascii_uppercase, ascii_lowercase, repeat(UNNAMED)), strict=False))


def rows(schedule: Schedule, columns: int) -> list[str]:
    """For each GPU, `columns` signs: which model has it in the middle of each part of the makespan."""
    sign = letters(schedule)
    lines = [[IDLE] * columns for _ in range(schedule.gpus)]
    for bar in schedule.bars:
        for column in range(columns):
            if bar.begin <= (column + 0.5) * schedule.makespan / columns < bar.end:
                for gpu in bar.gpus:
                    lines[gpu][column] = sign[bar.model]
    return ["".join(line) for line in lines]

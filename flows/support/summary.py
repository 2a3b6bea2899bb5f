"""What one regeneration did, and how an incomplete one fails."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlfocal.base.errors import RunError
from rlfocal.evaluation import Evaluation
from rlfocal.extraction.running.events import Failure
from rlfocal.upkeep.drift import Drift

if TYPE_CHECKING:
    from rlfocal.evaluation.leaderboard import Board  # imports scipy.stats, which extraction does not need

ALL = "*"


@dataclass(frozen=True)
class Summary:
    """What one regeneration did."""

    pool: str
    extracted: int
    """Partitions (model, task) committed now."""
    present: int
    """Partitions that were there already."""
    evaluations: tuple[Evaluation, ...]
    """Of every method on every benchmark, computed now or already there."""
    report: Path | None
    gaps: tuple[Failure, ...]
    seconds: float
    drift: Drift | None = None
    """How answers differ from those before the run; None if nothing was extracted."""
    boards: tuple[Board, ...] = ()
    """Of `evaluations`."""


class IncompleteError(RunError):
    """A regeneration in which steps failed; `summary` lists them."""

    def __init__(self, summary: Summary) -> None:
        n = len(summary.gaps)
        count = "one step failed" if n == 1 else f"{n} steps failed, the first"
        super().__init__(f"{count}: {sentence(summary.gaps[0])}")
        self.summary = summary


def sentence(gap: Failure) -> str:
    """A failure in words; `*` means all and is left out.

    >>> sentence(Failure("extract", "phi", "bbh", "dates", "the disk is full"))
    'extract phi on bbh/dates: the disk is full'
    >>> sentence(Failure("report", "*", "*", "*", "the disk is full"))
    'report: the disk is full'
    """
    of = [] if gap.model == ALL else [gap.model]
    on = [part for part in (gap.benchmark, gap.task) if part != ALL]
    where = [f"on {'/'.join(on)}"] if on else []
    return f"{' '.join([gap.step, *of, *where])}: {gap.reason}"

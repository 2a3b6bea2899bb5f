"""What the docs claim of intervals and probes, beside how often it holds where the truth is planted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import binomtest

from benchmarks.coverage import PLANTED, PROMISED, SEEDS, cover
from benchmarks.planted import LEAST_COVERAGE, MOST_WRONG, POOLS, Probed, probe_members, probe_pool
from rlfocal.data.loading import load_dataset
from warehouse import open_warehouse

CHANCE = 0.999
"""A share is beyond its claim where its interval of this confidence is."""
MEMBERS = 6
"""Of a real pool that are newcomers in turn."""
Progress = Callable[[str], None]


def is_within(n: int, of: int, least: float = 0.0, most: float = 1.0) -> bool:
    """Whether a share of `of` cases, as far as chance tells, is between two claimed ones."""
    if of == 0:
        return True
    found = binomtest(n, of).proportion_ci(CHANCE)
    return bool(found.high >= least and found.low <= most)


@dataclass(frozen=True)
class CheckedInterval:
    """Intervals of one planted truth, with so many seeds."""

    planted: str
    seeds: int
    draws: int
    share: float
    """That hold the truth."""
    width: float
    """Half, as a fraction."""

    @property
    def name(self) -> str:
        return f"{self.planted}, {self.seeds} seeds"

    @property
    def is_kept(self) -> bool:
        return is_within(round(self.share * self.draws), self.draws, *PROMISED)


@dataclass(frozen=True)
class CheckedProbe(Probed):
    """Probes of one newcomer."""

    @property
    def name(self) -> str:
        return f"{self.pool}, {self.newcomer}"

    @property
    def is_kept(self) -> bool:
        is_held = is_within(self.held, self.draws, least=LEAST_COVERAGE)
        return is_held and is_within(self.wrong, self.clear, most=MOST_WRONG)


Checked = CheckedInterval | CheckedProbe


def check_intervals(draws: int, on_progress: Progress) -> list[CheckedInterval]:
    """All planted truths, each with 1 to 10 seeds."""
    checked = []
    for planted in PLANTED:
        for n_seeds in SEEDS:
            found = cover(n_seeds, planted, draws, seed=n_seeds)
            checked.append(CheckedInterval(planted.name, n_seeds, draws, *found))
        on_progress(f"intervals, {planted.name}: done")
    return checked


def check_probes(
    draws: int, benchmarks: Sequence[str], warehouse: str | Path | None, on_progress: Progress
) -> list[CheckedProbe]:
    """Of every planted newcomer, and of the first members of benchmarks in a warehouse."""
    found: list[Probed] = []
    for pool in POOLS:
        found += probe_pool(pool, draws, seed=0)
        on_progress(f"probes, {pool.name}: done")
    for name in benchmarks:
        with open_warehouse(warehouse, read_only=True, create=False) as opened:
            data = load_dataset(opened, name)
        found += probe_members(name, data, MEMBERS, draws)
    return [CheckedProbe(**vars(one)) for one in found]

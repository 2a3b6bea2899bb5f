"""Checks of the docs' claims on intervals, probes, promises and fallbacks, on data whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import binomtest

from benchmarks import promises
from benchmarks.coverage import PROMISED_COVERAGE, SEED_COUNTS, SYNTHETIC_CASES, cover
from benchmarks.fallback import share_of_changes
from benchmarks.planted import SYNTHETIC_POOLS, NewcomerProbes, probe_members, probe_pool
from rlfocal.base.tables import Table
from rlfocal.base.wording import count_noun, percent
from rlfocal.data.loading import load_dataset
from warehouse import open_warehouse

CLAIM_CONFIDENCE = 0.999
"""The confidence of intervals of measured shares; a claim is broken if such an interval lies beyond it."""
LEAST_COVERAGE = 0.93
MOST_WRONG = 0.05
"""The largest share of a pool's clear verdicts that may be wrong."""
N_MEMBERS = 6
"""The number of a real pool's members that are probed, each as the newcomer to the others."""
DIFFERENCE_SHARE = 0.2
"""The share of documents on which a later policy differs from the first."""
CHOICE_RATES = {"no better": (0.0, 0.05), "a point worse": (-0.01, 0.01)}
"""By case, the later policies' lead over the first, and the largest share of fits that may choose one."""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class ClaimCheck:
    """An event's share of draws, `n` of `of`, and the bounds that the docs claim for it."""

    claim: str
    case: str
    n: int
    of: int
    least: float = 0.0
    most: float = 1.0

    @property
    def is_kept(self) -> bool:
        """Whether the share is within the claimed bounds, or beyond them only by chance."""
        if self.of == 0:
            return True
        found = binomtest(self.n, self.of).proportion_ci(CLAIM_CONFIDENCE)
        return bool(found.high >= self.least and found.low <= self.most)

    @property
    def claimed(self) -> str:
        """The claimed bounds in percent, such as "≤ 5"."""
        if self.least == 0:
            return f"≤ {100 * self.most:g}"
        return f"≥ {100 * self.least:g}" if self.most == 1 else f"{100 * self.least:g} to {100 * self.most:g}"


def check_intervals(draws: int) -> Iterator[ClaimCheck]:
    """Checks how often intervals contain the true difference of two methods, by case and number of seeds."""
    for planted in SYNTHETIC_CASES:
        for n_seeds in SEED_COUNTS:
            share, width = cover(n_seeds, planted, draws, seed=n_seeds)
            case = f"{planted.name}, {count_noun(n_seeds, 'seed')}, ± {percent(width, 1)} points"
            yield ClaimCheck(
                "intervals hold the difference", case, round(share * draws), draws, *PROMISED_COVERAGE
            )


def check_probes(draws: int, benchmarks: Sequence[str], warehouse: str | Path | None) -> Iterator[ClaimCheck]:
    """Checks probes' intervals and verdicts, on synthetic pools and on members of stored `benchmarks`."""
    for pool in SYNTHETIC_POOLS:
        yield from _check_pool(probe_pool(pool, draws, seed=0))
    for name in benchmarks:
        with open_warehouse(warehouse, read_only=True, create=False) as opened:
            data = load_dataset(opened, name)
        yield from _check_pool(probe_members(name, data, N_MEMBERS, draws))


def _check_pool(probed: Sequence[NewcomerProbes]) -> Iterator[ClaimCheck]:
    for one in probed:
        case = f"{one.pool}, {one.newcomer}: {percent(one.gain)} points"
        yield ClaimCheck("probes' intervals hold the gain", case, one.n_covering, one.draws, LEAST_COVERAGE)
    wrong, clear = sum(one.n_wrong for one in probed), sum(one.n_clear for one in probed)
    yield ClaimCheck("clear verdicts of probes are wrong", probed[0].pool, wrong, clear, most=MOST_WRONG)


def check_promises(draws: int) -> Iterator[ClaimCheck]:
    """Checks how often draws of train lead to a broken promise, by population, method and target error."""
    claim, most = "draws of train lead to a broken promise", promises.MAX_BROKEN_SHARE
    for one in promises.simulate(draws):
        case = f"{one.population}, {one.method}, {100 * one.target:g} %: {one.n_promises} made"
        yield ClaimCheck(claim, case, one.n_broken, draws, most=most)


def check_fallbacks(draws: int) -> Iterator[ClaimCheck]:
    """Checks how often a policy is chosen to decide that is no better than the first, by size of train."""
    for case, (gain, most) in CHOICE_RATES.items():
        for n in (80, 300, 1000):
            changes = round(share_of_changes((0.0, gain, gain, gain), n, DIFFERENCE_SHARE, draws) * draws)
            named = f"{case}, {count_noun(n, 'document')}"
            yield ClaimCheck("a policy that is not better decides", named, changes, draws, most=most)


def check_all(
    draws: int, probes: int, benchmarks: Sequence[str], warehouse: str | Path | None, on_progress: Progress
) -> list[ClaimCheck]:
    """Checks every claim, by so many `probes` of each newcomer, and so many `draws` of all else."""
    checks = {
        "intervals": check_intervals(draws),
        "probes": check_probes(probes, benchmarks, warehouse),
        "promises": check_promises(draws),
        "fallbacks": check_fallbacks(draws),
    }
    found: list[ClaimCheck] = []
    for name, of_name in checks.items():
        found += of_name
        on_progress(f"{name}: done")
    return found


def table_of(checked: Sequence[ClaimCheck]) -> Table:
    """The table of checks: a row for each, under the name of its claim."""
    table = Table("claim", "share %", "of", "claimed %", texts=("",))
    claim = ""
    for one in checked:
        if one.claim != claim:
            claim = one.claim
            table.add(claim, style="bold")
        share = percent(one.n / one.of if one.of else None, 1)
        table.add(f"  {one.case}", share, f"{one.of:,}", one.claimed, "" if one.is_kept else "BROKEN")
    return table

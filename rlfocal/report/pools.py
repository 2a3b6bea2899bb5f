"""Which pools RL-Focal asked on test documents, and how diverse they are by the warehouse's macros."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb

from rlfocal.evaluation.comparable import answering
from warehouse import Warehouse
from warehouse.scripts import script

SHOWN = 10
ALL_POOLS_LIMIT = 5_000


@dataclass(frozen=True)
class Pool:
    """A set of models with its statistics on the test documents; None if a statistic is undefined."""

    models: tuple[str, ...]
    focal_diversity: float | None
    plurality_accuracy: float | None


@dataclass(frozen=True)
class ChosenPool(Pool):
    share: float
    """The share of (document, seed) pairs that RL-Focal decided with this pool."""


@dataclass(frozen=True)
class PoolChoice:
    """What RL-Focal chose on one benchmark, against what there was to choose."""

    chosen: tuple[ChosenPool, ...]
    """The most frequent ones, by falling share."""
    distinct: int
    """How many different pools it used."""
    full: Pool
    best: Pool
    """The pool with the highest plurality accuracy on these documents, of all that were looked at: known only
    in hindsight."""
    others: tuple[Pool, ...]
    """All other pools up to `max_size`; empty where the warehouse has too many models."""
    max_size: int


def pool_choice(
    warehouse: Warehouse, benchmark: str, runs: Sequence[str], models: Sequence[str]
) -> PoolChoice | None:
    """The pools of the given runs, which may be none. None if the benchmark has one model.

    A pool with a model that the warehouse has lost keeps its share, and has no statistics.
    """
    counted = warehouse.rows(script("queries/chosen_pools"), (list(runs),))
    if len(models) < 2:
        return None
    total = sum(count for _, count in counted)
    max_size = min(largest_enumerable(_n_models(warehouse, benchmark)), len(models))
    every: Mapping[tuple[str, ...], Pool] = {}
    if max_size > 1:
        every = _all_pools(warehouse, warehouse.snapshot(), benchmark, max_size, frozenset(models))
    present = answering(warehouse, benchmark)

    def described(members: Sequence[str]) -> Pool:
        key = tuple(sorted(members))
        if not present.issuperset(key):
            return Pool(key, None, None)
        return every[key] if key in every else _pool(warehouse, benchmark, key)

    chosen = [(described(members), count / total) for members, count in counted[:SHOWN]]
    full = described(models)
    looked_at = [*every.values(), *(pool for pool, _ in chosen if len(pool.models) > 1), full]
    best = max(looked_at, key=lambda pool: (pool.plurality_accuracy or 0.0, -len(pool.models)))
    taken = {full.models, best.models, *(pool.models for pool, _ in chosen)}
    others = tuple(pool for pool in every.values() if pool.models not in taken)
    return PoolChoice(
        tuple(ChosenPool(p.models, p.focal_diversity, p.plurality_accuracy, share) for p, share in chosen),
        len(counted),
        full,
        best,
        others,
        max_size,
    )


def _pool(warehouse: Warehouse, benchmark: str, models: tuple[str, ...]) -> Pool:
    [row] = warehouse.rows(
        "SELECT focal_diversity, plurality_accuracy FROM pool_diversity(?, ?, split := 'test')",
        (benchmark, list(models)),
    )
    return Pool(models, *row)


@lru_cache(maxsize=1)
def _all_pools(
    warehouse: Warehouse, snapshot: int, benchmark: str, max_size: int, models: frozenset[str]
) -> Mapping[tuple[str, ...], Pool]:
    """Every pool of 2 to max_size of the models, by its members in alphabetical order."""
    rows = warehouse.rows(
        script("queries/every_pool"),
        (benchmark, max_size),
    )
    return {tuple(row[0]): Pool(tuple(row[0]), row[1], row[2]) for row in rows if models.issuperset(row[0])}


def _n_models(warehouse: Warehouse, benchmark: str) -> int:
    """How many models `all_pools` takes its pools from, on test documents."""
    [(n,)] = warehouse.rows(
        "SELECT count(DISTINCT model) FROM outcomes WHERE benchmark = ? AND split = 'test'", [benchmark]
    )
    return int(n)


def largest_enumerable(n: int) -> int:
    """The largest size up to which all pools of n models can be looked at; below 2 if there is none."""
    sizes = (
        size for size in range(1, n + 1) if sum(comb(n, k) for k in range(2, size + 1)) <= ALL_POOLS_LIMIT
    )
    return max(sizes, default=0)

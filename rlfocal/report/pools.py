"""The pools that RL-Focal asked on test documents, with their diversity and accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from math import comb

import numpy as np

from rlfocal.base.arrays import Bools, Ints
from rlfocal.base.wording import number_or_none
from rlfocal.data.dataset import Kind
from rlfocal.evaluation.notes import find_answering_models, kind_of
from rlfocal.statistics.diversity import every_pool, pool_diversity
from warehouse import Warehouse
from warehouse.scripts import script

POOL_METRICS = ("focal_diversity", "plurality_accuracy")
MAX_POOLS_SHOWN = 10
ALL_POOLS_LIMIT = 5_000


@dataclass(frozen=True)
class PoolFigures:
    """A pool with its statistics on the test documents; None for a statistic that is undefined."""

    models: tuple[str, ...]
    focal_diversity: float | None
    plurality_accuracy: float | None


@dataclass(frozen=True)
class PoolUse(PoolFigures):
    share: float
    """The share of (document, seed) pairs that RL-Focal decided with this pool."""


@dataclass(frozen=True)
class PoolChoice:
    """The pools that RL-Focal chose on one benchmark, and those that it could have chosen."""

    chosen_pools: tuple[PoolUse, ...]
    """The most frequently chosen pools, by falling share."""
    n_distinct: int
    """The number of different pools that RL-Focal used."""
    whole_pool: PoolFigures
    best_pool: PoolFigures
    """The pool with the highest plurality accuracy on the test documents, of all that were measured."""
    other_pools: tuple[PoolFigures, ...]
    """All other pools of up to `max_size` models; empty if there are too many models."""
    max_size: int


@dataclass(frozen=True)
class _TestAnswers:
    """The answers of N models to the T test documents of a benchmark."""

    kind: Kind
    models: tuple[str, ...]
    """The names of the N models, in alphabetical order."""
    predictions: Ints
    """(T, N) choices, or codes of free answers, equal for equal answers to a document; -1 for none."""
    labels: Ints
    """(T,) the right choice or code; -1 if no model is right."""
    is_given: Bools
    """(T, N) whether the warehouse has the model's answer."""

    def describe(self, pools: Bools) -> dict[tuple[str, ...], PoolFigures]:
        """By members, the statistics of pools (P, N), each on the documents that all its members answered."""
        statistics = pool_diversity(
            self.predictions, self.labels, pools, kind=self.kind, answered=self.is_given, wanted=POOL_METRICS
        )
        members = [tuple(compress(self.models, pool)) for pool in pools.tolist()]
        numbers = zip(*(statistics.metrics[name].tolist() for name in POOL_METRICS), strict=True)
        return {
            of: PoolFigures(of, *map(number_or_none, both)) for of, both in zip(members, numbers, strict=True)
        }


def pool_choice(
    warehouse: Warehouse, benchmark: str, runs: Sequence[str], models: Sequence[str]
) -> PoolChoice | None:
    """The pools that the given runs chose, if any; None if fewer than two of the models have answers.

    A pool with a model that was deleted from the warehouse keeps its share, and has no statistics.
    """
    whole = tuple(sorted(models))
    left = tuple(sorted(find_answering_models(warehouse, benchmark).intersection(models)))
    if len(left) < 2:
        return None
    counted = warehouse.rows(script("queries/chosen_pools"), (list(runs),))
    total = sum(count for _, count in counted)
    shares = {tuple(members): count / total for members, count in counted[:MAX_POOLS_SHOWN]}
    answers, every = _try_all(warehouse, warehouse.snapshot(), benchmark, left)
    rest = [members for members in {whole, *shares} if members not in every and set(members) <= set(left)]
    masks = np.array([np.isin(left, members) for members in rest], np.bool_).reshape(-1, len(left))
    by_members = {**every, **answers.describe(masks)}

    def find_figures(members: tuple[str, ...]) -> PoolFigures:
        return by_members.get(members, PoolFigures(members, None, None))

    looked_at = [*(pool for members, pool in by_members.items() if len(members) > 1), find_figures(whole)]
    best = max(looked_at, key=lambda pool: (pool.plurality_accuracy or 0.0, -len(pool.models)))
    return PoolChoice(
        tuple(PoolUse(**vars(find_figures(members)), share=share) for members, share in shares.items()),
        len(counted),
        find_figures(whole),
        best,
        tuple(pool for members, pool in every.items() if members not in {whole, best.models, *shares}),
        largest_enumerable(len(left)),
    )


@lru_cache(maxsize=1)
def _try_all(
    warehouse: Warehouse, snapshot: int, benchmark: str, models: tuple[str, ...]
) -> tuple[_TestAnswers, Mapping[tuple[str, ...], PoolFigures]]:
    """The models' answers, and the statistics of all small pools and of all models together; cached."""
    about = {"benchmark": benchmark, "models": list(models)}
    columns = warehouse.columns(script("queries/test_answers"), about)
    cells = columns["number"], columns["model"]
    shape = (int(columns["number"].max(initial=-1)) + 1, len(models))
    predictions, right = np.full(shape, -1), np.zeros(shape, np.bool_)
    answered = np.zeros(shape, np.bool_)
    predictions[cells], right[cells], answered[cells] = columns["code"], columns["correct"], True
    labels = np.where(right, predictions, -1).max(axis=1)
    answers = _TestAnswers(kind_of(warehouse, benchmark), models, predictions, labels, answered)
    few = every_pool(len(models), largest_enumerable(len(models)))
    return answers, answers.describe(np.vstack([few, np.ones((1, len(models)), np.bool_)]))


def largest_enumerable(n: int) -> int:
    """The largest size up to which all pools of n models are measured; 1 if those of two are too many."""
    sizes = (
        size for size in range(1, n + 1) if sum(comb(n, k) for k in range(2, size + 1)) <= ALL_POOLS_LIMIT
    )
    return max(sizes, default=0)

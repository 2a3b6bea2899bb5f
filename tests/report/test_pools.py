"""Which pools were chosen, beside every other: against oracles, whatever is missing."""

from __future__ import annotations

import numpy as np
import pytest
from support.pool_oracles import Answers, column, fill, insert, pool_oracle, same

from rlfocal.data.dataset import Kind
from rlfocal.report.pools import pool_choice
from warehouse import Warehouse


@pytest.mark.parametrize("kind", ["choices", "answers"])
def test_every_pool_is_as_by_definition_whatever_is_missing(warehouse: Warehouse, kind: Kind) -> None:
    rng = np.random.default_rng(5)
    answered = rng.random((30, 5)) < (1, 0.7, 1, 1, 0.8)
    said = rng.integers(0 if kind == "choices" else -1, 4, answered.shape)
    data = Answers(kind, said, rng.integers(0, 3, 30), answered)
    models = fill(warehouse.connection, data)
    shared = {"run_id": "r", "benchmark": "b", "task": "t00", "correct": True}
    chosen = [["gone", "m00"], ["m04", "m01"], ["m04", "m01"]]
    insert(
        warehouse.connection, "decisions", [shared | {"doc_id": i, "pool": p} for i, p in enumerate(chosen)]
    )
    choice = pool_choice(warehouse, "b", ["r"], [*models, "gone"])
    assert choice is not None
    assert [(pool.models, pool.share) for pool in choice.chosen_pools] == [
        (("m01", "m04"), 2 / 3),
        (("gone", "m00"), 1 / 3),
    ]
    assert choice.n_distinct == 2
    lost = choice.chosen_pools[1], choice.whole_pool
    assert all((pool.focal_diversity, pool.plurality_accuracy) == (None, None) for pool in lost)
    found = {pool.models: pool for pool in (*choice.other_pools, choice.chosen_pools[0], choice.best_pool)}
    assert len(found) == 2**5 - 1 - 5
    for members, pool in found.items():
        oracle = pool_oracle(data, tuple(map(models.index, members)))
        same(column([pool.focal_diversity])[0], oracle["focal_diversity"])
        same(column([pool.plurality_accuracy])[0], oracle["plurality_accuracy"])
    assert choice.best_pool.plurality_accuracy == max(pool.plurality_accuracy or 0 for pool in found.values())


@pytest.mark.parametrize(("n", "max_size"), [(40, 2), (110, 1)])
def test_pools_of_many_models_are_small(warehouse: Warehouse, n: int, max_size: int) -> None:
    rng = np.random.default_rng(6)
    shape = (4, n)
    data = Answers("choices", rng.integers(0, 2, shape), np.zeros(4, np.int64), np.ones(shape, np.bool_))
    models = fill(warehouse.connection, data)
    choice = pool_choice(warehouse, "b", [], models)
    assert choice is not None
    assert choice.max_size == max_size
    pairs = {pool.models for pool in (*choice.other_pools, choice.best_pool) if len(pool.models) == 2}
    assert len(pairs) == (n * (n - 1) // 2 if max_size == 2 else 0)
    assert choice.whole_pool.plurality_accuracy == pool_oracle(data, tuple(range(n)))["plurality_accuracy"]
    few = pool_choice(warehouse, "b", [], models[:5])
    assert few is not None
    assert few.max_size == 5

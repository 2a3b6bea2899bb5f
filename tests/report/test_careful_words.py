"""add-model and the report claim only what their figures show."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from rlfocal.evaluation.notes import note_guessing
from rlfocal.new_model.copies import Errors, most_like
from rlfocal.new_model.pools import BestPools, Pool
from rlfocal.statistics.intervals import Difference
from warehouse import Warehouse


def best(low: float | None, *, train: float = 0.6) -> BestPools:
    gain = None if low is None else Difference(mean=low + 0.1, low=low, high=low + 0.2, p_value=0.5)
    return BestPools(2, Pool(("a", "b"), 0.5, 0.5), Pool(("a", "new"), train, 0.5), gain)


@pytest.mark.parametrize(
    ("found", "gains"),
    [(best(0.01), True), (best(0.0), False), (best(None), False), (best(0.1, train=0.5), False)],
)
def test_a_pool_is_entered_where_the_interval_excludes_0(found: BestPools, gains: bool) -> None:
    assert found.gains is gains


def test_a_near_copy_is_called_one_beside_near_copies() -> None:
    """Eight-bit versions of one model in a pool raise what is usual; 91 % is still no coincidence."""
    others = {
        (f"a{i}", f"b{i}"): Errors(300, round(300 * share)) for i, share in enumerate((0.3, 0.9, 0.5, 0.95))
    }
    found = most_like("new", others | {("a0", "new"): Errors(400, 364)})
    assert found is not None
    assert found.is_copy
    honest = most_like("new", others | {("a0", "new"): Errors(400, 240)})
    assert honest is not None
    assert not honest.is_copy


@pytest.mark.parametrize(("right", "near"), [(30, True), (60, False)])
def test_a_pool_near_guessing_is_called_that(warehouse: Warehouse, right: int, near: bool) -> None:
    n = 100
    docs = {
        "benchmark": ["b"] * n,
        "task": ["t"] * n,
        "doc_id": range(n),
        "label": [0] * n,
        "split": ["test"] * n,
    }
    logprobs = np.full((n, 4), -2.0)
    logprobs[np.arange(n), np.where(np.arange(n) < right, 0, 1)] = -1.0
    scored = {"benchmark": ["b"] * 4 * n, "task": ["t"] * 4 * n, "doc_id": np.repeat(range(n), 4)}
    with warehouse.transaction("answers"):
        warehouse.append("docs", pa.table({name: list(values) for name, values in docs.items()}))
        rows = scored | {"model": ["m"] * 4 * n, "choice": list(range(4)) * n, "logprob": logprobs.ravel()}
        warehouse.append("choice_logprobs", pa.table(rows))
    note = note_guessing(warehouse, "b", ["m"])
    assert (note is not None) is near
    if note is not None:
        assert "m, is right on 30.00 % of 100 documents, and guessing is on 25.00 %" in note

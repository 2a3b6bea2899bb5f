"""Thresholds of drift: what counts as more than chance."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rows import put

from rlfocal.base.errors import InputError
from rlfocal.upkeep.drift import LOW, Thresholds, drift_since, exceeds
from warehouse import Warehouse


@given(count=st.integers(0, 50), more=st.integers(0, 50), percent=st.integers(0, 100))
def test_exceeding_is_more_than_chance(count: int, more: int, percent: int) -> None:
    n, share = count + more + 1, percent / 100
    p_value = sum(comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(count, n + 1))
    if abs(p_value - 0.05) > 1e-9:
        assert exceeds(count, n, share, 0.05) == (count > share * n and p_value < 0.05)
    assert not exceeds(0, n, share, 0.05)
    assert exceeds(count, n, 0.0, 1e-9) == (count > 0)


def test_noise_of_many_partitions_raises_no_alarm() -> None:
    """1,000 partitions of 20 to 500 documents, as noisy as the thresholds grant: about one alarm in 20."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(100):
        n = rng.integers(20, 500, 1000)
        flips = rng.binomial(n, LOW.flipped)
        alarms += any(
            exceeds(int(count), int(of), LOW.flipped, 0.05 / 1000)
            for count, of in zip(flips, n, strict=True)
            if count > 2 * LOW.flipped * of
        )
    assert alarms <= 10


def test_given_thresholds(warehouse: Warehouse) -> None:
    rng = np.random.default_rng(7)
    before = rng.normal(size=(400, 3))
    a = put(warehouse, before.tolist())
    put(warehouse, (before + rng.normal(0.2, 0.2, before.shape)).tolist())
    lenient = Thresholds().changed(logprob=5, flipped=1, accuracy=1)
    assert not drift_since(warehouse, a, lenient).beyond
    by_flips = drift_since(warehouse, a, Thresholds().changed(logprob=5, accuracy=1)).beyond
    assert [len(row.reasons) for row in by_flips] == [1]
    assert "of the predictions flipped, more than 1.0%" in by_flips[0].reasons[0]
    for wrong in ({"logprob": -1.0}, {"logprob": float("nan")}, {"flipped": 1.1}, {"accuracy": -0.1}):
        with pytest.raises(InputError, match="drift threshold"):
            Thresholds().changed(**wrong)

"""Thresholds of drift: what counts as more than chance."""

from __future__ import annotations

from math import comb

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rlfocal.upkeep.drift import LOW, exceeds


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

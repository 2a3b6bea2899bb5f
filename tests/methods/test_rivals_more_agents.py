"""A model that votes with itself: its majority is the binomial one."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from rlfocal.methods.pools.more_agents import majority_of


def test_majority_accuracy_is_binomial() -> None:
    said = np.tile([0.6, 0.4], (4000, 1))
    right = (majority_of(said, 5, np.random.default_rng(0)).slots == 0).mean()
    expected = sum(comb(5, k) * 0.6**k * 0.4 ** (5 - k) for k in (3, 4, 5))
    assert right == pytest.approx(expected, abs=4 * (0.25 / 4000) ** 0.5)
    alone = majority_of(said[:3], 1, np.random.default_rng(0)).probability
    assert alone is not None
    assert (alone == 1.0).all()

"""Risk over coverage equals brute force over thresholds, whatever the order of documents."""

from __future__ import annotations

import numpy as np
import pytest

from rlfocal.base.errors import InputError
from rlfocal.statistics.selective import risk_coverage


@pytest.mark.parametrize("seed", range(20))
def test_equals_brute_force_in_any_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = np.where(rng.random(60) < 0.2, np.nan, rng.integers(0, 9, 60) / 8)
    correct = rng.random(60) < 0.6
    curve = risk_coverage(p, correct)
    for t, n, coverage, risk in zip(*curve, strict=True):
        accepted = [right for q, right in zip(p, correct, strict=True) if q >= t]
        assert n == len(accepted)
        assert coverage == pytest.approx(n / 60, abs=1e-9)
        assert risk == pytest.approx(1 - sum(accepted) / n, abs=1e-9)
    by_document = [1 - correct[p >= q].mean() for q in p[~np.isnan(p)]]
    assert curve.area == pytest.approx(np.mean(by_document), abs=1e-9)
    order = rng.permutation(60)
    for one, other in zip(curve, risk_coverage(p[order], correct[order]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_by_hand() -> None:
    perfect = risk_coverage(np.array([0.9, 0.8, 0.2, np.nan]), np.array([True, True, False, False]))
    assert perfect.area == pytest.approx(1 / 9)
    assert perfect.coverage_at(0.05) == 0.5
    assert perfect.accuracy_at(0.5) == 1
    assert np.isnan(perfect.accuracy_at(0.8))
    constant = risk_coverage(np.full(4, 0.5), np.array([True, True, True, False]))
    assert constant.area == 0.25
    assert constant.coverage_at(0.1) == 0
    assert constant.accuracy_at(0.5) == 0.75
    nothing = risk_coverage(np.full(2, np.nan), np.array([True, False]))
    assert np.isnan(nothing.area)
    assert nothing.coverage_at(0.1) == 0
    assert len(nothing.n) == 0


def test_says_what_is_no_probability() -> None:
    with pytest.raises(InputError, match=r"1\.5 is no probability"):
        risk_coverage(np.array([1.5]), np.array([True]))
    with pytest.raises(InputError, match="give one for each"):
        risk_coverage(np.array([0.5]), np.array([True, False]))

"""Risk over coverage equals brute force over thresholds, whatever the order of documents."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from statsmodels.stats.proportion import proportion_confint

from rlfocal.base.errors import InputError
from rlfocal.statistics.selective import (
    REPORTED_COVERAGES,
    REPORTED_ERRORS,
    _bootstrap_figures,
    risk_coverage,
    selective,
)
from warehouse import Warehouse


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


def drawn(seed: int, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities with ties and gaps, and answers that are right about so often."""
    rng = np.random.default_rng(seed)
    probability = rng.integers(0, 8, n) / 7
    correct = rng.random(n) < probability
    return np.where(rng.random(n) < 0.15, np.nan, probability), correct


@pytest.mark.parametrize("seed", range(4))
def test_drawn_documents_count_as_often_as_they_are_drawn(seed: int) -> None:
    """The bootstrap's weights against documents that are really repeated."""
    probability, correct = drawn(seed)
    weights = np.random.default_rng(seed).multinomial(60, np.full(60, 1 / 60), size=5)
    found = _bootstrap_figures(probability, correct, weights)
    for at, of in enumerate(weights):
        curve = risk_coverage(np.repeat(probability, of), np.repeat(correct, of))
        expected = [
            curve.area,
            *map(curve.accuracy_at, REPORTED_COVERAGES),
            *map(curve.coverage_at, REPORTED_ERRORS),
        ]
        np.testing.assert_allclose(found[:, at], expected, atol=1e-12)


def test_intervals_hold_the_figures_of_all_documents() -> None:
    one, other = drawn(1, 500), drawn(2, 500)
    both = selective(np.stack([one[0], other[0]]), np.stack([one[1], other[1]]), draws=200)
    alone = [risk_coverage(*pair) for pair in (one, other)]
    assert both.area.mean == pytest.approx(np.mean([curve.area for curve in alone]))
    for found in (both.area, *both.accuracy_at.values(), *both.coverage_at.values()):
        assert found.low <= found.mean <= found.high or np.isnan(found.mean)
    assert both.area.low < both.area.high


@pytest.mark.parametrize("seed", range(5))
def test_the_macro_is_its_twin(warehouse: Warehouse, seed: int) -> None:
    probability, correct = drawn(seed)
    rows = [
        {
            "run_id": "r",
            "benchmark": "b",
            "task": "t",
            "doc_id": at,
            "correct": bool(right),
            "prediction": None if np.isnan(sure) and at % 2 else 1,
            "probability": None if np.isnan(sure) else sure,
        }
        for at, (sure, right) in enumerate(zip(probability.tolist(), correct, strict=True))
    ]
    with warehouse.transaction("decide"):
        warehouse.append("decisions", pa.Table.from_pylist(rows))
    found = warehouse.columns("FROM risk_coverage('r')")
    curve = risk_coverage(probability, correct)
    for name in ("threshold", "n", "coverage", "risk"):
        np.testing.assert_allclose(found[name], getattr(curve, name), atol=1e-12)
    wrong = np.round(curve.risk * curve.n)
    low, high = proportion_confint(wrong, curve.n, method="wilson")
    np.testing.assert_allclose(found["low"], low, atol=1e-9)
    np.testing.assert_allclose(found["high"], high, atol=1e-9)


def test_a_run_that_does_not_exist_is_named(warehouse: Warehouse) -> None:
    with pytest.raises(duckdb.Error, match="no run lost"):
        warehouse.rows("FROM risk_coverage('lost')")

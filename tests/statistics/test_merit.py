"""Figures of merit: hand-computed cases, literal oracles, and what must hold for any points."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rlfocal.base.errors import InputError
from rlfocal.statistics.cost_curves import (
    aiq,
    apgr,
    cost_save,
    cpt,
    gap_to_oracle,
    non_decreasing_hull,
    pareto_distance,
    pareto_front,
    perf_gain,
    pgr,
)

Floats = NDArray[np.float64]
NAN = math.nan


@st.composite
def points(draw: st.DrawFn, least: int = 1) -> tuple[Floats, Floats]:
    """Costs from 1 to 12 and accuracies in twentieths: ties in both are common."""
    costs = draw(st.lists(st.integers(1, 12), min_size=least, max_size=12))
    right = draw(st.lists(st.integers(0, 20), min_size=len(costs), max_size=len(costs)))
    return np.array(costs, dtype=float), np.array(right) / 20


def _curve(*accuracies: float) -> tuple[Floats, Floats]:
    """Points at even shares from 0 to 1."""
    return np.linspace(0, 1, len(accuracies)), np.array(accuracies)


def test_pgr() -> None:
    assert pgr(np.array([0.5, 0.65, 0.8, 0.86]), 0.5, 0.8) == pytest.approx([0, 0.5, 1, 1.2])
    assert np.isnan(pgr(np.array([0.5, 0.6]), 0.6, 0.6)).all()
    assert np.isnan(pgr(np.array([0.5]), 0.7, 0.6)).all()


def test_apgr() -> None:
    # One threshold, and both ends known: PGR 0.8 at share 0.4.
    one = np.array([0.4]), np.array([0.74])
    assert apgr(*one, 0.5, 0.8) == pytest.approx(0.4 * 0.4 + 0.6 * 0.9)
    # Two thresholds with one share count half each.
    two = np.array([0.4, 0.4]), np.array([0.71, 0.77])
    assert apgr(*two, 0.5, 0.8) == pytest.approx(apgr(*one, 0.5, 0.8))
    assert math.isnan(apgr(*one, 0.8, 0.8))


def test_cpt() -> None:
    curve = _curve(0.5, 0.68, 0.77, 0.8)
    assert cpt(*curve, 0.5, 0.8, 0) == 0
    assert math.isnan(cpt(*curve, 0.5, 0.8, 1.01))
    assert math.isnan(cpt(*curve, 0.8, 0.8, 0.5))
    with pytest.raises(InputError, match="fractions"):
        cpt(np.array([0.0, 50.0]), np.array([0.5, 0.6]), 0.5, 0.6, 0.5)
    # Up, down again, and up: the first time counts.
    assert cpt(*_curve(0.0, 0.6, 0.2, 0.6, 1.0), 0, 1, 0.5) == pytest.approx(0.25 * 5 / 6)


@given(
    st.lists(
        st.tuples(st.integers(0, 10), st.integers(0, 10)), min_size=1, max_size=8, unique_by=lambda p: p[0]
    )
)
@example([(0, 5), (1, 0)])
def test_apgr_and_cpt_are_those_of_a_fine_grid(measured: list[tuple[int, int]]) -> None:
    at = {0: 0.2, 10: 0.8} | {share: right / 10 for share, right in measured}
    grid = np.linspace(0, 1, 100_001)
    recovered = (np.interp(grid, [k / 10 for k in sorted(at)], [at[k] for k in sorted(at)]) - 0.2) / 0.6
    shares, accuracies = np.array([s / 10 for s, _ in measured]), np.array([r / 10 for _, r in measured])
    assert apgr(shares, accuracies, 0.2, 0.8) == pytest.approx(recovered.mean(), abs=1e-4)
    for level in (0.5, 0.8):
        enough = recovered >= level - 1e-9
        expected = grid[enough.argmax()] if enough.any() else NAN
        assert cpt(shares, accuracies, 0.2, 0.8, level) == pytest.approx(expected, abs=2e-5, nan_ok=True)


def test_aiq() -> None:
    # (2, 0.5) lies under the line from (1, 0.4) to (3, 0.8): 2 · 0.6; then level at 0.8 for 2.
    costs, accuracies = np.array([5.0, 2.0, 1.0, 3.0]), np.array([0.7, 0.5, 0.4, 0.8])
    assert non_decreasing_hull(costs, accuracies).tolist() == [2, 3]
    assert aiq(costs, accuracies) == pytest.approx((2 * 0.6 + 2 * 0.8) / 4)
    # (2, 0.7) lies above that line.
    accuracies[1] = 0.7
    assert non_decreasing_hull(costs, accuracies).tolist() == [2, 1, 3]
    assert aiq(costs, accuracies) == pytest.approx((0.55 + 0.75 + 2 * 0.8) / 4)
    assert math.isnan(aiq(np.array([2.0, 2.0]), np.array([0.5, 0.6])))
    assert math.isnan(aiq(np.array([1.0, NAN, 3.0]), np.array([0.5, 0.6, 0.7])))


@given(points())
def test_aiq_is_the_area_below_all_mixtures(given_points: tuple[Floats, Floats]) -> None:
    costs, accuracies = given_points
    assume(np.ptp(costs) > 0)
    x = np.unique(costs)
    best = []
    for c in x:
        mixed = [accuracies[costs <= c].max()]
        for i, j in product(range(len(costs)), repeat=2):
            if costs[i] < c < costs[j]:
                mixed.append(np.interp(c, costs[[i, j]], accuracies[[i, j]]))
        best.append(max(mixed))
    assert aiq(costs, accuracies) == pytest.approx(np.trapezoid(best, x) / np.ptp(x))


def test_pareto_front() -> None:
    # By turns: the cheapest, its equal, beaten at this cost, the best, beaten at this accuracy, unknown.
    costs = np.array([1.0, 1.0, 1.0, 4.0, 5.0, NAN])
    accuracies = np.array([0.5, 0.5, 0.4, 0.9, 0.9, 0.95])
    assert pareto_front(costs, accuracies).tolist() == [True, True, False, True, False, False]


def test_pareto_distance() -> None:
    # Log cost scaled: 0, 1/2, 1 and 1; accuracy scaled: 0, 1/4, 1 and 3/4; unknown costs are in no scale.
    costs, accuracies = np.array([1.0, 10.0, 100.0, 100.0, NAN]), np.array([0.4, 0.5, 0.8, 0.7, 0.99])
    assert pareto_distance(costs, accuracies) == pytest.approx([0, 0, 0, 0.25, NAN], nan_ok=True)
    # The second is beaten now; the nearest of the front is (0, 1/4): half the range of log cost away.
    accuracies[0] = 0.5
    accuracies[3] = 0.4
    # Accuracy scaled: 1/4, 1/4, 1, 0.
    assert pareto_distance(costs, accuracies) == pytest.approx([0, 0.5, 0, 1, NAN], nan_ok=True)
    # Log cost scaled 0, 1/2, 1; accuracy 1/5, 0, 1: the two differences are summed.
    both = pareto_distance(np.array([1.0, 10.0, 100.0]), np.array([0.4, 0.3, 0.8]))
    assert both == pytest.approx([0, 0.5 + 0.2, 0])
    assert np.isnan(pareto_distance(np.array([NAN]), np.array([0.5]))).all()
    assert pareto_distance(np.array([2.0, 2.0]), np.array([0.5, 0.5])).tolist() == [0, 0]
    with pytest.raises(InputError, match="cost 0 has no logarithm"):
        pareto_distance(np.array([1.0, 0.0]), np.array([0.5, 0.6]))


@given(points())
def test_only_the_front_is_at_no_distance_from_it(given_points: tuple[Floats, Floats]) -> None:
    distance = pareto_distance(*given_points)
    assert ((distance == 0) == pareto_front(*given_points)).all()
    assert (distance <= 2).all()


@pytest.mark.parametrize(
    ("x", "y"), [([], []), ([0.1, 0.2], [0.5]), ([0.1], [NAN]), ([math.inf], [0.5])], ids=str
)
def test_points_that_are_none(x: list[float], y: list[float]) -> None:
    for figure in (aiq, pareto_front, pareto_distance):
        with pytest.raises(InputError, match=r"points of shapes|finite numbers"):
            figure(np.array(x), np.array(y))
    with pytest.raises(InputError, match=r"points of shapes|finite numbers"):
        apgr(np.array(x), np.array(y), 0.4, 0.6)


def test_perf_gain() -> None:
    # + 10 % and - 5 %.
    assert perf_gain(np.array([0.55, 0.76]), np.array([0.5, 0.8])) == pytest.approx(0.025)
    assert math.isnan(perf_gain(np.array([0.5, 0.1]), np.array([0.5, 0.0])))
    with pytest.raises(InputError, match="2 accuracies of the method and 1 of the best single"):
        perf_gain(np.array([0.5, 0.6]), np.array([0.5]))


def test_cost_save() -> None:
    assert cost_save(0.8, 3.0, 0.8, 4.0) == pytest.approx(0.25)
    assert cost_save(0.9, 5.0, 0.8, 4.0) == pytest.approx(-0.25)
    assert cost_save(0.1 + 0.2 - 1e-16, 3.0, 0.1 + 0.2, 4.0) == pytest.approx(0.25)
    for unknown in ((0.79, 3.0, 0.8, 4.0), (0.8, NAN, 0.8, 4.0), (0.8, 3.0, 0.8, NAN), (0.8, 0.0, 0.8, 0.0)):
        assert math.isnan(cost_save(*unknown))


def test_gap_to_oracle() -> None:
    assert gap_to_oracle(0.6, 0.8) == pytest.approx(0.25)
    assert gap_to_oracle(0.8, 0.8) == 0
    assert math.isnan(gap_to_oracle(0.0, 0.0))

"""Cascades: cases by hand, and data where they must win."""

from __future__ import annotations

import math
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.datasets import make_logits
from support.rival_data import accuracy, best_single, fitted, telling, within

from rlfocal.data.policy import Budget, decide
from rlfocal.methods import cascade
from rlfocal.methods.cascade import CascadeTable, Chain, best_chain, fit_logistic, run

CASCADES = ("cascade", "frugalgpt")


def test_a_logistic_curve_is_the_minimum_of_its_loss() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2)) * [1.0, 5.0] + [0.0, 3.0]
    right = rng.random(200) < 1 / (1 + np.exp(-x[:, 0]))
    found = fit_logistic(x, right)
    z = (x - x.mean(axis=0)) / x.std(axis=0)

    def loss(w: NDArray[np.float64], b: float) -> float:
        score = np.where(right, 1, -1) * (z @ w + b)
        return float(np.log1p(np.exp(-score)).sum() + w @ w / 2)

    w, b = found.weights * x.std(axis=0), found.bias + float(found.weights @ x.mean(axis=0))
    for step in 0.01 * np.vstack([np.eye(3), -np.eye(3)]):
        assert loss(w, b) < loss(w + step[:2], b + float(step[2]))
    assert fit_logistic(x, np.ones(200, dtype=np.bool_))(x[:3]) == pytest.approx([201 / 202] * 3)


def test_thresholds_by_hand() -> None:
    """m00 is right from 0.6 on, m01 wherever m00 is not; m02 never."""
    scores = np.column_stack([[0.9, 0.8, 0.6, 0.4, 0.3, 0.2], [0.5] * 6, [0.5] * 6])
    right = np.column_stack([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1], [0] * 6]).astype(np.bool_)
    table = CascadeTable(scores, right, np.array([1.0, 4.0, np.nan]))
    free = best_chain(table, np.ones(3), math.inf)
    assert free == Chain((0, 1), (0.6,))
    assert run(Chain((0, 1), (0.6,)), table, np.ones(3))[:2] == (6, 1.5)
    # A third of the documents may go on to m01: two of the three that m00 gets wrong.
    third = best_chain(table, np.ones(3), 4 / 3)
    assert third == Chain((0, 1), (0.4,)) or third == Chain((0, 1), (0.3,))
    cents = Budget(3.0, "cents").costs(table.prices)
    assert cents.tolist() == [1.0, 4.0, math.inf]
    assert best_chain(table, cents, 3.0) == Chain((0, 1), (0.6,))
    assert run(Chain((0, 1), (0.6,)), table, cents).cost == pytest.approx(3.0)
    assert best_chain(table, cents, 0.9) is None
    assert best_chain(table, cents, 1.0) == Chain((0,), ())


@st.composite
def tables(draw: st.DrawFn) -> CascadeTable:
    T, N = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    level = st.sampled_from([0.1, 0.3, 0.5, 0.7])
    scores = np.array(draw(st.lists(level, min_size=T * N, max_size=T * N))).reshape(T, N)
    right = np.array(draw(st.lists(st.booleans(), min_size=T * N, max_size=T * N))).reshape(T, N)
    prices = np.array(draw(st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=N, max_size=N)))
    return CascadeTable(scores, right, prices)


@given(tables(), st.sampled_from([1.0, 1.5, 2.0, 3.7, math.inf]), st.booleans())
def test_the_best_chain_is_the_best_of_all(table: CascadeTable, amount: float, polish: bool) -> None:
    """Every order of up to three models, every threshold that parts the scores."""
    N = len(table.prices)
    reached = [
        run(Chain(order, thresholds), table, table.prices)
        for size in range(1, min(N, 3) + 1)
        for order in permutations(range(N), size)
        for thresholds in product(*[np.unique(table.scores[:, m]).tolist() for m in order[:-1]])
    ]
    affordable = [found for found in reached if found.cost <= amount + 1e-9]
    found = best_chain(table, table.prices, amount, polish=polish)
    if not affordable:
        assert found is None
        return
    assert found is not None
    expected = max((one.n_right, -round(one.cost, 9)) for one in affordable)
    told = run(found, table, table.prices)
    assert (told.n_right, -round(told.cost, 9)) == expected


def test_chains_of_many_models_are_made_of_the_best_trade_offs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cascade, "MAX_CANDIDATE_MODELS", 2)
    right = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 1], [0, 0, 0, 0]], dtype=np.bool_)
    table = CascadeTable(np.zeros((4, 4)), right, np.array([9.0, 8.0, 3.0, 3.0]))
    # m00 is the most accurate; m01 the next and cheaper; then m02, cheaper again.
    assert cascade._preselect(table, table.prices) == [0, 1]
    assert cascade._preselect(table, np.ones(4)) == [0, 1]
    assert cascade._preselect(table, np.array([9.0, math.inf, 9.0, 3.0])) == [0, 3]
    assert cascade._preselect(table, np.array([3.0, 3.0, 3.0, 1.0])) == [0, 3]


@pytest.mark.parametrize("name", CASCADES)
def test_a_cascade_wins_where_confidence_is_informative(name: str) -> None:
    data = telling()
    policy = fitted(name, data.train)
    decided = decide(policy, data.test)
    oracle = data.test.correct[:, :2].any(axis=1).mean()
    assert accuracy(data.test, decided) >= oracle - 0.02
    # m02 has nothing to add, and m01 is asked on the half where m00 is unsure.
    assert not decided.pools[:, 2].any()
    assert decided.pools.sum(axis=1).mean() == pytest.approx(1.5, abs=0.05)
    assert decided.rounds is not None
    assert decided.rounds.max() == 2
    half = within(policy, Budget(1.25))
    assert half is not None
    cheap = decide(half, data.test)
    assert cheap.pools.sum(axis=1).mean() == pytest.approx(1.25, abs=0.05)
    assert best_single(data) + 0.1 < accuracy(data.test, cheap) < oracle - 0.1


@pytest.mark.parametrize("name", CASCADES)
def test_a_cascades_probability_is_calibrated(name: str) -> None:
    logits = make_logits(4, T=4000, N=3)
    for data in (logits.rows(logits.labels >= 0), telling()):
        decided = decide(fitted(name, data.train), data.test)
        assert decided.probability is not None
        said = decided.probability > np.median(decided.probability)
        for part in (said, ~said):
            right = (decided.predictions == data.test.labels)[part].mean()
            assert decided.probability[part].mean() == pytest.approx(right, abs=0.04)

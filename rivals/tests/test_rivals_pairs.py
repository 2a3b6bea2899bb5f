"""Tests of RouteLLM's routers: battles' weights computed by hand, the regression, and thresholds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from support.topics import Floats, NumberEncoder, answered, by_topic, policy_of

from rlfocal.base.errors import InputError
from rlfocal.data.policy import Budget, decide
from rlfocal_rivals.routellm import Pair, PairRouter, Shares, battle_weights, cuts_of, pair_of, parts_of


def test_a_question_weighs_by_its_similarity() -> None:
    found = battle_weights(np.array([[0.8, 0.4, -0.8], [0.0, -0.3, 0.0], [-np.inf, 0.5, 0.25]]), 10.0)
    raw = np.array([[100, 10**1.5, 1], [1, 1, 1], [0, 100, 10**1.5]])
    assert found == pytest.approx(raw / raw.sum(axis=1, keepdims=True))


def test_a_share_of_battles_is_the_weighted_bradley_terry_regression() -> None:
    """The regression is RouteLLM's: rows of ±ln 10, every battle twice, a tie one win each, no intercept."""
    rng = np.random.default_rng(0)
    vectors, won = rng.normal(size=(60, 3)), rng.choice([0.0, 0.5, 1.0], 60, p=[0.2, 0.5, 0.3])
    asked = rng.normal(size=3)
    cosine = vectors @ asked / np.linalg.norm(vectors, axis=1) / np.linalg.norm(asked)
    weights = np.repeat(10 * 10 ** (cosine / cosine.max()), 2)
    rows = np.tile([np.log(10), -np.log(10)], (120, 1))
    wins = np.stack([won > 0, won == 1], axis=1).ravel()
    fitted = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10, max_iter=10_000)
    one, other = 400 * fitted.fit(rows, wins, sample_weight=weights).coef_[0]
    [found] = Shares(NumberEncoder(), vectors, won, 10.0).values((" ".join(map(str, asked)),))
    assert found == pytest.approx(1 / (1 + 10 ** ((other - one) / 400)), abs=1e-4)


def test_no_question_battles_for_its_own_share() -> None:
    shares = Shares(NumberEncoder(), np.eye(3), np.array([1.0, 0.0, 0.0]), 10.0)
    assert shares.train_values() == pytest.approx([0.0, 0.5, 0.5])


def test_the_pair_is_the_cheapest_and_the_best_of_the_dearer() -> None:
    right = np.array([[1, 1, 0, 1], [1, 0, 1, 0], [1, 0, 1, 0], [0, 1, 0, 0]], dtype=np.bool_)
    data = answered(right, "abcd", n_train=4, prices=[4.0, 3.0, 1.0, 2.0])
    assert pair_of(data) == (0, 2)
    # The best is the cheapest: the next best is dearer. Equal prices: the best, and the next best beside it.
    assert pair_of(replace(data, prices=np.array([1.0, 4.0, 2.0, 3.0]))) == (1, 0)
    assert pair_of(replace(data, prices=np.ones(4))) == (1, 0)
    with pytest.raises(InputError, match="'m03' is unknown"):
        pair_of(replace(data, prices=np.array([1.0, 4.0, 2.0, np.nan])))
    with pytest.raises(InputError, match="a strong-weak pair needs two"):
        policy_of("routellm_sw", replace(data, models=("m00",)))


def test_thresholds_by_hand() -> None:
    # Only the strong is right on the first and third, only the weak on the last but one.
    values = np.array([0.9, 0.7, 0.7, 0.4, 0.2])
    right = np.array([[1, 0], [1, 1], [1, 0], [0, 1], [0, 0]], dtype=np.bool_)
    cuts = cuts_of(values, answered(right, [""] * 5, n_train=5), Pair(strong=0, weak=1))
    assert cuts.thresholds.tolist() == pytest.approx([np.inf, 0.8, 0.55, 0.3, -np.inf])
    assert cuts.shares.tolist() == [0.0, 0.2, 0.6, 0.8, 1.0]
    assert cuts.gains.tolist() == [0, 1, 2, 1, 1]

    @dataclass(frozen=True)
    class NumberScorer:
        def values(self, questions: tuple[str, ...]) -> Floats:
            return np.array([float(text) for text in questions])

        def train_values(self) -> Floats:
            return np.zeros(0)

    prices = np.array([10.0, 5.0])
    router = PairRouter(NumberScorer(), Pair(strong=0, weak=1), prices, cuts, 0.5)
    data = answered(np.ones((2, 2), dtype=np.bool_), ["0.5", "0.49"], n_train=0)
    assert decide(router, data).pools.tolist() == [[True, False], [False, True]]
    assert router.choose_best_threshold().threshold == pytest.approx(0.55)
    shares = [router.choose_share_threshold(share).threshold for share in (0.0, 0.59, 0.6, 1.0)]
    assert shares == pytest.approx([np.inf, 0.8, 0.55, -np.inf])
    thresholds = {
        cents: router.hold_to_budget(Budget(cents, "cents")) for cents in (4.9, 5.0, 7.9, 8.0, 99.0)
    }
    found = {cents: one and one.threshold for cents, one in thresholds.items()}
    assert found.pop(4.9) is None
    assert found == pytest.approx({5.0: np.inf, 7.9: 0.8, 8.0: 0.55, 99.0: 0.55})
    # A strong model that is also the cheaper: a budget is kept by asking it more often.
    cheap = replace(router, prices=np.array([5.0, 10.0])).hold_to_budget(Budget(6.0, "cents"))
    assert cheap is not None
    assert cheap.threshold == pytest.approx(0.3)


def test_a_tenth_sets_the_threshold() -> None:
    learnt, held = parts_of(by_topic(0, T=60).train)
    assert held.doc_ids.tolist() == [9, 19, 29]
    assert sorted([*learnt.doc_ids.tolist(), *held.doc_ids.tolist()]) == list(range(30))
    few = by_topic(0, T=18).train
    assert all(part is few for part in parts_of(few))

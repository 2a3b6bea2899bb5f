"""Ratings from battles, and pairs of a strong and a weak model: by hand and against the regression."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from support.topics import Floats, Words, accuracy, answered, by_topic, policy_of

from rlfocal.base.errors import InputError
from rlfocal.data.policy import Budget, decide
from rlfocal_rivals.pairs import (
    ChancesAgainst,
    Pair,
    PairRouter,
    StrongWins,
    cuts_of,
    members_of,
    pair_of,
    parts_of,
)
from rlfocal_rivals.routellm import ELO, Ratings, battle_weights, bradley_terry


def test_a_question_weighs_by_its_similarity() -> None:
    found = battle_weights(np.array([[0.8, 0.4, -0.8], [0.0, -0.3, 0.0], [-np.inf, 0.5, 0.25]]))
    raw = np.array([[100, 10**1.5, 1], [1, 1, 1], [0, 100, 10**1.5]])
    assert found == pytest.approx(raw / raw.sum(axis=1, keepdims=True))


def test_bradley_terry_of_many_models_is_the_weighted_regression() -> None:
    """As RouteLLM fits it: rows of ±ln 10, every battle twice, a tie one win each, no intercept."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    vectors, right = rng.normal(size=(60, 3)), (rng.random((60, 4)) < [0.8, 0.5, 0.6, 0.2]).astype(float)
    asked = rng.normal(size=3)
    cosine = vectors @ asked / np.linalg.norm(vectors, axis=1) / np.linalg.norm(asked)
    weights = 10 * 10 ** (cosine / cosine.max())
    rows: list[Floats] = []
    wins: list[bool] = []
    weighs: list[float] = []
    for i in range(60):
        for a in range(4):
            for b in range(a + 1, 4):
                row = np.zeros(4)
                row[a], row[b] = np.log(10), -np.log(10)
                for half in range(2):
                    tie = right[i, a] == right[i, b]
                    rows.append(row)
                    wins.append(half == 0 if tie else right[i, a] > right[i, b])
                    weighs.append(weights[i])
    fitted = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10, max_iter=10_000)
    ratings = 400 * fitted.fit(rows, wins, sample_weight=weighs).coef_[0]
    found = Ratings(Words(), vectors, right).rate((" ".join(map(str, asked)),))[0]
    assert found == pytest.approx(ratings - ratings.mean(), abs=0.05)


def test_a_model_that_always_wins_has_a_high_finite_rating() -> None:
    [[one, other]] = bradley_terry(np.array([[[0.0, 1.0], [0.0, 0.0]]]))
    assert 2000 < one - other < 6000


def test_lopsided_battles_still_find_the_greatest_likelihood() -> None:
    rng = np.random.default_rng(0)
    wins = rng.random((500, 5, 5)) ** rng.integers(1, 30, (500, 1, 1)) * (rng.random((500, 5, 5)) < 0.5)
    wins = wins * (1 - np.eye(5)) / np.maximum(wins.sum(axis=(1, 2), keepdims=True), 1e-9)
    strengths = bradley_terry(wins) / ELO
    p = 1 / (1 + np.exp(strengths[:, None, :] - strengths[:, :, None]))
    slope = wins.sum(axis=2) - ((wins + wins.transpose(0, 2, 1)) * p).sum(axis=2) - 1e-6 * strengths
    assert np.abs(slope).max() < 1e-6


@pytest.mark.parametrize("strong", [0, 1])
def test_the_strong_models_chance_and_others_against_it(strong: int) -> None:
    # Equal weights: m00 has 2.5 wins to 1.5.
    ratings = Ratings(Words(), np.ones((4, 1)), np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    chance = 0.625 if strong == 0 else 0.375
    assert StrongWins(ratings, strong).values(("1",))[0] == pytest.approx(chance, abs=1e-5)
    [scores] = ChancesAgainst(ratings, strong, np.array([1, 3]), 4).scores(("1",))
    placed = [0.5, 0.375] if strong == 0 else [0.625, 0.5]
    assert scores[[1, 3]] == pytest.approx(placed, abs=1e-5)
    assert np.isneginf(scores[[0, 2]]).all()


def test_the_pair_is_the_cheapest_and_the_best_of_the_dearer() -> None:
    right = np.array([[1, 1, 0, 1], [1, 0, 1, 0], [1, 0, 1, 0], [0, 1, 0, 0]], dtype=np.bool_)
    data = answered(right, "abcd", n_train=4, prices=[4.0, 3.0, 1.0, 2.0])
    assert pair_of(data) == (0, 2)
    # The best is the cheapest: the next best is dearer. Equal prices: the best, and the next best beside it.
    assert pair_of(replace(data, prices=np.array([1.0, 4.0, 2.0, 3.0]))) == (1, 0)
    assert pair_of(replace(data, prices=np.ones(4))) == (1, 0)
    with pytest.raises(InputError, match="'m03' is unknown"):
        pair_of(replace(data, prices=np.array([1.0, 4.0, 2.0, np.nan])))
    assert [members_of(data, n).tolist() for n in (2, 3, 9)] == [[0, 2], [0, 1, 2], [0, 1, 2, 3]]
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
    class Told:
        def values(self, questions: tuple[str, ...]) -> Floats:
            return np.array([float(text) for text in questions])

    prices = np.array([10.0, 5.0])
    router = PairRouter(Told(), Pair(strong=0, weak=1), prices, cuts, 0.5)
    data = answered(np.ones((2, 2), dtype=np.bool_), ["0.5", "0.49"], n_train=0)
    assert decide(router, data).pools.tolist() == [[True, False], [False, True]]
    assert router.at_best().threshold == pytest.approx(0.55)
    shares = [router.at_share(share).threshold for share in (0.0, 0.59, 0.6, 1.0)]
    assert shares == pytest.approx([np.inf, 0.8, 0.55, -np.inf])
    thresholds = {cents: router.within(Budget(cents, "cents")) for cents in (4.9, 5.0, 7.9, 8.0, 99.0)}
    found = {cents: one and one.threshold for cents, one in thresholds.items()}
    assert found.pop(4.9) is None
    assert found == pytest.approx({5.0: np.inf, 7.9: 0.8, 8.0: 0.55, 99.0: 0.55})
    # A strong model that is also the cheaper: a budget is kept by asking it more often.
    cheap = replace(router, prices=np.array([5.0, 10.0])).within(Budget(6.0, "cents"))
    assert cheap is not None
    assert cheap.threshold == pytest.approx(0.3)


def test_no_question_battles_for_its_own_rating() -> None:
    vectors = np.eye(3)
    ratings = Ratings(Words(), vectors, np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
    first, second = ratings.rate_train()[:2]
    assert first[1] - first[0] > 2000  # only the other two battle
    assert second == pytest.approx([0.0, 0.0])


@pytest.mark.parametrize("name", ["routellm_sw", pytest.param("routellm_mf", marks=pytest.mark.slow)])
def test_more_models_are_rated_at_once(name: str) -> None:
    data = by_topic(5, prices=[9.0, 5.0, 3.0, 1.0])
    policy = policy_of(name, data.train, n_models=4)
    assert accuracy(policy, data.test) >= 0.98
    assert decide(policy.within(Budget(1.0, "cents")), data.test).pools[:, 3].mean() > 0.95
    # The strong one, the weak one (m03), and the next best.
    three = decide(policy_of(name, data.train, n_models=3), data.test).pools
    assert three[:, 2].any()
    assert not three[:, 1].any()
    assert not decide(policy_of(name, data.train), data.test).pools[:, [1, 2]].any()


def test_a_tenth_sets_the_threshold() -> None:
    learnt, held = parts_of(by_topic(0, T=60).train)
    assert held.tolist() == [9, 19, 29]
    assert sorted([*learnt.tolist(), *held.tolist()]) == list(range(30))
    few = by_topic(0, T=18).train
    assert [part.tolist() for part in parts_of(few)] == [list(range(9))] * 2

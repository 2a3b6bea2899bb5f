"""Tests of routers that read the question alone: formulas by hand, and data where they must or cannot win."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.topics import NumberEncoder, accuracy, answered, by_topic, mean_price, policy_of
from threadpoolctl import threadpool_limits

from rlfocal.base.errors import InputError
from rlfocal.data.policy import Budget, Decisions, Policy, decide
from rlfocal.data.text import TFIDF, fit_encoder
from rlfocal_rivals.clusters import Clusters, MixedRouter, RankedRouter, fit_clusters, shrunk_means

SCORED = ["knn", "guarded_knn", "avengers_pro", "hier_shrink"]
"""Routers that score all models by similar train questions, and trade accuracy against prices."""
LEARNED = ["mlp", "svm", "carrot_knn", "carrot_linear", "uniroute", "model_sat", "irt", "eagle"]
LONG = ["graph_router", "mf", "routellm_mf"]
FOR_FEW: dict[str, dict[str, Any]] = {"eagle": {"neighbours": 60}, "mf": {"rate": 1e-3}}
"""Settings of methods whose defaults suit more documents than these tests have."""
ROUTERS = ["avengers", *SCORED, "routellm_sw"]


def test_clusters_do_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    X, right = rng.normal(size=(3000, 32)), rng.random((3000, 3))
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            found.append(fit_clusters(X, right, 20))
    np.testing.assert_array_equal(found[0].centres, found[1].centres)
    np.testing.assert_array_equal(found[0].means, found[1].means)


# ---- every one of them


@pytest.mark.parametrize(
    "name", [*ROUTERS, *LEARNED, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)]
)
def test_a_router_finds_the_right_model_from_the_text_within_its_budget(name: str) -> None:
    data = by_topic(0, prices=[9.0, 1.0, 5.0, 5.0])
    policy = policy_of(name, data.train, **FOR_FEW.get(name, {}))
    assert accuracy(policy, data.test) >= 0.95
    assert accuracy(policy_of("best_single", data.train), data.test) < 0.7
    assert (decide(policy, data.test).pools.sum(axis=1) == 1).all()
    if name == "avengers":  # is not Budgeted
        return
    thrifty = policy.hold_to_budget(Budget(4.5, "cents"))
    assert mean_price(decide(thrifty, data.train), data.train) <= 4.5 * 1.1
    # m00 is dear: it is left for some of its questions.
    assert data.test.correct[:, 1].mean() - 0.02 <= accuracy(thrifty, data.test) < accuracy(policy, data.test)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ROUTERS, "mf", "routellm_mf", "eagle"])
def test_shuffled_labels_teach_a_router_nothing(name: str) -> None:
    excess = []
    for seed in range(3):
        data = by_topic(seed)
        train, rng = data.train, np.random.default_rng(seed)
        labels = rng.permutation(np.repeat(np.arange(2), len(train) // 2))
        policy = policy_of(name, replace(train, labels=labels), seed)
        excess.append(accuracy(policy, data.test) - data.test.correct.mean(axis=0).max())
    assert np.mean(excess) <= 2 * np.sqrt(0.25 / (3 * 300))


def test_a_pair_gives_a_curve() -> None:
    data = by_topic(2, prices=[9.0, 1.0, 10.0, 10.0])
    policy = policy_of("routellm_sw", data.train)
    shares, found = [], []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        decided = decide(policy.choose_share_threshold(share), data.test)
        shares.append(decided.pools[:, 0].mean())
        assert decided.pools[:, :2].any(axis=1).all()
        found.append((decided.predictions == data.test.labels).mean())
    # Within a topic only noise tells questions apart, so that shares are rough.
    assert shares == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0], abs=0.15)
    assert shares == sorted(shares)
    assert max(found) == found[2]
    assert found[0] == pytest.approx(data.test.correct[:, 1].mean())
    assert found[-1] == pytest.approx(data.test.correct[:, 0].mean())
    quarter = decide(policy_of("routellm_sw", data.train, strong_share=0.25), data.test)
    assert quarter.pools[:, 0].mean() == shares[1]
    for amount in (1.0, 3.0, 9.0):
        thrifty = policy.hold_to_budget(Budget(amount, "cents"))
        decided = decide(thrifty, data.test)
        assert (9 * decided.pools[:, 0] + decided.pools[:, 1]).mean() <= amount * 1.3
    assert accuracy(policy.hold_to_budget(Budget(9.0, "cents")), data.test) == accuracy(policy, data.test)
    assert policy.hold_to_budget(Budget(1.0)) is policy


@pytest.mark.parametrize("name", SCORED)
def test_without_texts_a_budget_buys_the_best_that_it_can(name: str) -> None:
    data = replace(by_topic(2, prices=[9.0, 5.0, 3.0, 1.0]), questions=())
    policy = policy_of(name, data.train)
    for amount, expected in [(1.0, 3), (8.0, 2), (9.0, 0)]:
        assert (
            decide(policy.hold_to_budget(Budget(amount, "cents")), data.test).pools.argmax(axis=1) == expected
        ).all()


# ---- one by one


def decided_by(router: Policy, question: str, n_models: int) -> Decisions:
    return decide(router, answered(np.ones((1, n_models), dtype=np.bool_), [question], n_train=0))


TWO = Clusters(
    centres=np.array([[2.0, 0.0], [0.0, 1.0]]),
    sizes=np.array([6.0, 4.0, 10.0]),
    means=np.array([[0.9, 0.5, 0.7], [0.2, 0.6, 0.6], [0.62, 0.54, 0.66]]),
)


def test_avengers_ranks_models_in_the_nearest_clusters() -> None:
    # Ranks 0, 2, 1 in the first cluster; 2, 0, 1 in the second, a tie going to m01; 1, 2, 0 on all of train.
    one = RankedRouter(NumberEncoder(), TWO, 1)
    expected = [[1, 1 / 3, 1 / 2], [1 / 3, 1, 1 / 2], [1 / 2, 1 / 3, 1]]
    assert one.scores(("4 3", "3 9", "0 0")) == pytest.approx(np.array(expected))
    first = 1 / (1 + np.exp(-9 * (1.6 - 0.6)))  # inner products with (0.8, 0.6)
    both = RankedRouter(NumberEncoder(), TWO, 2).scores(("4 3",))[0]
    assert both == pytest.approx([first + (1 - first) / 3, first / 3 + 1 - first, 0.5])


def test_avengers_pro_ranks_by_accuracy_and_cheapness_of_a_cluster() -> None:
    # Scaled accuracies 1, 0, 1/2 and 0, 1, 1; cheapness 0, 2/3, 0: the price of m02 is unknown.
    def asked(weight: float, question: str, nearest: int = 1) -> int:
        router = MixedRouter(NumberEncoder(), TWO, nearest, np.array([3.0, 1.0, np.nan]), (), weight)
        return int(decided_by(router, question, 3).pools.argmax())

    # (1 - w) · 1 against w · 2/3: m01 leads above w = 0.6.
    assert [asked(weight, "4 3") for weight in (0.0, 0.59, 0.61, 1.0)] == [0, 0, 1, 1]
    assert asked(0.0, "3 9") == 1
    # Ranks 0, 2, 1 and 2, 0, 1: m00 has p + (1 - p)/3, m01 p/3 + 1 - p.
    assert asked(0.0, "4 3", nearest=2) == 0
    assert asked(0.0, "3 9", nearest=2) == 1
    fitted = [policy_of("avengers_pro", by_topic(3).train, alpha=alpha) for alpha in (0.0, 1.0)]
    test = by_topic(3).test
    assert decide(fitted[0], test).pools[:, 0].all()
    assert accuracy(fitted[1], test) == 1.0
    cheap = MixedRouter(NumberEncoder(), TWO, 2, np.array([3.0, 9.0, 1.0]), (), 0.3)
    p = 1 / (1 + np.exp(-9 * (1.6 - 0.6)))
    # Mixed: 0.7 + 0.3 · 2/3, 0, 0.35 + 0.3 · 8/9 and 0.3 · 2/3, 0.7, 0.7 + 0.3 · 8/9.
    decided = decided_by(cheap, "4 3", 3)
    assert decided.pools.argmax() == np.argmax([p + (1 - p) / 3, p / 3 + (1 - p) / 2, p / 2 + 1 - p]) == 0
    assert decided.probability is not None
    assert decided.probability[0] == pytest.approx(p * 0.9 + (1 - p) * 0.2)


def test_hierarchical_shrinkage() -> None:
    fine = Clusters(
        centres=np.array([[1.0, 1.0], [1.0, -1.0]]),
        sizes=np.array([3.0, 7.0, 10.0]),
        means=np.array([[0.0, 1.0, 0.5], [0.8, 0.2, 0.9], [0.62, 0.54, 0.66]]),
    )
    found = shrunk_means([TWO, fine], 24.0, np.array([[2.0, 1.0], [0.0, 0.0]]))
    b1 = (6 * np.array([0.9, 0.5, 0.7]) + 24 * np.array([0.62, 0.54, 0.66])) / 30
    assert found[0] == pytest.approx((3 * np.array([0.0, 1.0, 0.5]) + 24 * b1) / 27)
    assert found[1] == pytest.approx([0.62, 0.54, 0.66])


def test_clusters_keep_the_record_of_their_questions() -> None:
    train = by_topic(4, T=80).train
    right = train.correct.astype(float)
    vectors = fit_encoder(TFIDF, train.questions).encode(train.questions)
    clusters = fit_clusters(vectors, right, 2)
    own = clusters.find_nearest(vectors).positions[:, 0]
    for at in range(2):
        assert clusters.sizes[at] == (own == at).sum()
        assert clusters.means[at] == pytest.approx(right[own == at].mean(axis=0))
    assert clusters.means[-1] == pytest.approx(right.mean(axis=0))
    few = fit_clusters(np.tile(np.eye(2), (20, 1)), right, 30)
    assert few.sizes.tolist() == [20.0, 20.0, 40.0]


def test_shrunk_means_weigh_prices() -> None:
    data = by_topic(3, prices=[3.0, 1.0, 1.0, 1.0])
    assert decide(policy_of("hier_shrink", data.train, price_weight=0.0), data.test).pools[:, 0].any()
    assert not decide(policy_of("hier_shrink", data.train, price_weight=0.6), data.test).pools[:, 0].any()
    unpriced = replace(data, prices=np.array([1.0, np.nan, 1.0, 1.0]))
    with pytest.raises(InputError, match="weighs prices, and that of 'm01' is unknown"):
        policy_of("hier_shrink", unpriced.train, price_weight=0.6)

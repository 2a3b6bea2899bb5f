"""Routers that read the question alone: their formulas by hand, where they must win and where they cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.topics import Words, accuracy, answered, by_topic, mean_price, policy_of

from rlfocal.base.errors import InputError
from rlfocal.data.policy import Budget, Decisions, Policy, decide
from rlfocal.methods.neighbours._clusters import Clusters, fit_clusters
from rlfocal.methods.neighbours.avengers import MixedRouter, RankedRouter
from rlfocal.methods.neighbours.guarded_knn import GuardedKNN, GuardedRouter
from rlfocal.methods.neighbours.knn import NeighbourScores
from rlfocal.methods.routers.hier_shrink import ShrunkMeans

SCORED = ["knn", "guarded_knn", "avengers_pro", "hier_shrink"]
"""Ask any of N models, and trade cents."""
PAIRED = ["routellm_sw"]
"""Ask one of two."""
ROUTERS = ["avengers", *SCORED, *PAIRED]


# ---- every one of them


@pytest.mark.parametrize("name", ROUTERS)
def test_routers_find_the_right_model_from_the_text(name: str) -> None:
    data = by_topic(0, prices=[4.0, 1.0, 2.0, 3.0])
    policy = policy_of(name, data.train)
    assert data.test.correct[:, :2].any(axis=1).mean() == 1.0
    assert accuracy(policy, data.test) >= 0.98
    assert accuracy(policy_of("best_single", data.train), data.test) < 0.7
    assert (decide(policy, data.test).pools.sum(axis=1) == 1).all()


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


@pytest.mark.parametrize("name", PAIRED)
def test_a_pair_gives_a_curve(name: str) -> None:
    data = by_topic(2, prices=[9.0, 1.0, 10.0, 10.0])
    policy = policy_of(name, data.train)
    shares, found = [], []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        decided = decide(policy.at_share(share), data.test)
        shares.append(decided.pools[:, 0].mean())
        assert decided.pools[:, :2].any(axis=1).all()
        found.append((decided.predictions == data.test.labels).mean())
    # Within a topic only noise tells questions apart, so that shares are rough.
    assert shares == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0], abs=0.15)
    assert shares == sorted(shares)
    assert max(found) == found[2]
    assert found[0] == pytest.approx(data.test.correct[:, 1].mean())
    assert found[-1] == pytest.approx(data.test.correct[:, 0].mean())
    assert decide(policy_of(name, data.train, strong_share=0.25), data.test).pools[:, 0].mean() == shares[1]
    for amount in (1.0, 3.0, 9.0):
        thrifty = policy.within(Budget(amount, "cents"))
        decided = decide(thrifty, data.test)
        assert (9 * decided.pools[:, 0] + decided.pools[:, 1]).mean() <= amount * 1.3
    assert accuracy(policy.within(Budget(9.0, "cents")), data.test) == accuracy(policy, data.test)
    assert policy.within(Budget(0.9, "cents")) is None
    assert policy.within(Budget(0.5)) is None
    assert policy.within(Budget(1.0)) is policy


@pytest.mark.parametrize("name", SCORED)
def test_budgets_in_cents_are_kept_and_worth_it(name: str) -> None:
    data = by_topic(2, prices=[9.0, 5.0, 3.0, 1.0])
    policy = policy_of(name, data.train)
    found = {}
    for amount in (1.0, 2.0, 4.0, 6.0, 9.0):
        thrifty = policy.within(Budget(amount, "cents"))
        assert thrifty is not None
        assert mean_price(decide(thrifty, data.train), data.train) <= amount * 1.1, amount
        assert mean_price(decide(thrifty, data.test), data.test) <= amount * 1.2, amount
        found[amount] = accuracy(thrifty, data.test)
    assert found[1.0] == 0.0
    assert found[1.0] < found[4.0] < found[9.0]
    assert found[9.0] >= accuracy(policy, data.test)
    assert policy.within(Budget(0.9, "cents")) is None
    assert policy.within(Budget(0.5)) is None
    assert policy.within(Budget(1.0)) is not None
    unpriced = replace(data, prices=np.array([9.0, 5.0, np.nan, 1.0]))
    assert policy_of(name, unpriced.train).within(Budget(4.0, "cents")) is None


@pytest.mark.parametrize("name", SCORED)
def test_without_texts_a_budget_buys_the_best_that_it_can(name: str) -> None:
    data = replace(by_topic(2, prices=[9.0, 5.0, 3.0, 1.0]), questions=())
    policy = policy_of(name, data.train)
    for amount, expected in [(1.0, 3), (8.0, 2), (9.0, 0)]:
        assert (
            decide(policy.within(Budget(amount, "cents")), data.test).pools.argmax(axis=1) == expected
        ).all()


def test_listing_the_methods_imports_nothing_heavy() -> None:
    import subprocess
    import sys

    code = "import sys, rlfocal.methods; print({'sklearn', 'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# ---- one by one


def test_knn_scores_by_the_nearest() -> None:
    vectors = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [-1.0, 0.0]])
    right = np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    scorer = NeighbourScores(Words(), vectors, right, k=2)
    assert scorer.scores(("1 0", "0 2", "0 0")).tolist() == [[0.5, 0.0], [0.5, 0.5], [0.5, 0.5]]
    # Of the first, the others by cosine: the second, then the third. The last is only less unlike the third.
    assert scorer.train_scores()[0].tolist() == [0.5, 0.5]


def test_willingness_to_pay() -> None:
    data = by_topic(3, prices=[3.0, 1.0, 1.0, 1.0])
    free = decide(policy_of("knn", data.train), data.test)
    # Asking m00 costs 2 cents more, and is right where m01 never is.
    willing = decide(policy_of("knn", data.train, willingness=40.0), data.test)
    assert (willing.pools == free.pools).all()
    thrifty = decide(policy_of("knn", data.train, willingness=1.5), data.test)
    assert not thrifty.pools[:, 0].any()
    unpriced = replace(data, prices=np.array([1.0, np.nan, 1.0, 1.0]))
    with pytest.raises(InputError, match="that of 'm01' is unknown"):
        policy_of("knn", unpriced.train, willingness=4.0)


def guarded(right: list[list[float]], prices: Sequence[float], **settings: Any) -> GuardedRouter:
    """On neighbours that are all alike."""
    vectors = np.ones((len(right), 1))
    return GuardedRouter(GuardedKNN(**settings), Words(), vectors, np.array(right), np.array(prices))


def decided_by(router: Policy, question: str, n_models: int) -> Decisions:
    return decide(router, answered(np.ones((1, n_models), dtype=np.bool_), [question], n_train=0))


def asked_by(router: GuardedRouter, question: str = "1") -> int:
    return int(decided_by(router, question, router.right.shape[1]).pools.argmax())


def test_the_guard_leaves_the_fallback_on_evidence_alone() -> None:
    # The documents: 4 near "1", where m01 leads m00 by (1, 1, 0, 0) or so; m00 is best on all of train.
    near = [[0.0, 1.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    far = [[1.0, 0.0]] * 5
    vectors = np.array([[1.0]] * 4 + [[-1.0]] * 5)
    # Mean difference 1/2, its standard error sqrt((1/2 - 1/4) / 4) = 1/4: z = 1.9 passes, 2 does not.
    for z, prices, expected in [
        (1.9, (1.0, 1.0), 1),
        (2.0, (1.0, 1.0), 0),
        (0.95, (1.0, 2.0), 1),  # dearer: z counts twice
        (1.0, (1.0, 2.0), 0),
        (1.0, (2.0, 1.0), 1),
        (1.0, (np.nan, 2.0), 1),
    ]:
        router = GuardedRouter(GuardedKNN(k=4, z=z), Words(), vectors, np.array(near + far), np.array(prices))
        assert asked_by(router) == expected, (z, prices)
        assert asked_by(router, "-1") == 0
        assert asked_by(router, "0") == 0


def test_the_guards_neighbours_weigh_by_similarity() -> None:
    # Cosines to "1 0": 1, 0.8 and 0.6. The second's is the 2nd: 0.75 of it is 0.6, which is not more.
    vectors = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]])
    right = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    router = GuardedRouter(GuardedKNN(k=2, closeness=0.75), Words(), vectors, right, np.ones(2))
    paired = router._paired_block(np.array([[1.0, 0.8, 0.6]]), fallback=1)
    assert paired.level[0] == pytest.approx([1 / 1.8, 0.8 / 1.8])
    gain = 0.2 / 1.8
    assert paired.gain[0] == pytest.approx([gain, 0.0])
    error = np.sqrt((1 - gain**2) * (1 + 0.64) / 1.8**2)
    assert paired.error[0] == pytest.approx([error, 0.0])
    wider = replace(router, settings=GuardedKNN(k=2, closeness=0.7))
    assert wider._paired_block(np.array([[1.0, 0.8, 0.6]]), 1).level[0] == pytest.approx([1 / 2.4, 1.4 / 2.4])


def test_a_lead_without_spread_needs_no_guard() -> None:
    assert asked_by(guarded([[0.0, 1.0], [0.0, 1.0]], (1.0, 1.0))) == 1
    assert asked_by(guarded([[1.0, 1.0], [0.0, 0.0]], (1.0, 1.0))) == 0


def test_dissimilar_questions_are_no_neighbours() -> None:
    router = replace(guarded([[1.0], [0.0], [0.0]], (1.0,)), settings=GuardedKNN(k=3))
    assert router._paired_block(np.array([[0.5, -0.1, -0.2]]), 0).level[0] == [1.0]


def test_a_guarded_budget_is_kept_on_neighbours_other_than_oneself() -> None:
    # The first and the last are nearest to the second, and the second to the first.
    angles = np.deg2rad([5.0, 0.0, -5.0])
    vectors = np.column_stack([np.cos(angles), np.sin(angles)])
    right = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    settings = GuardedKNN(k=1, closeness=0.9999)
    router = GuardedRouter(settings, Words(), vectors, right, np.array([1.0, 4.0]))
    assert router.mean_train_price(0.0) == (4 + 1 + 4) / 3


TWO = Clusters(
    Words(),
    centres=np.array([[2.0, 0.0], [0.0, 1.0]]),
    sizes=np.array([6.0, 4.0, 10.0]),
    means=np.array([[0.9, 0.5, 0.7], [0.2, 0.6, 0.6], [0.62, 0.54, 0.66]]),
)


def test_avengers_ranks_models_in_the_nearest_clusters() -> None:
    # Ranks 0, 2, 1 in the first cluster; 2, 0, 1 in the second, a tie going to m01; 1, 2, 0 on all of train.
    one = RankedRouter(TWO, 1)
    expected = [[1, 1 / 3, 1 / 2], [1 / 3, 1, 1 / 2], [1 / 2, 1 / 3, 1]]
    assert one.scores(("4 3", "3 9", "0 0")) == pytest.approx(np.array(expected))
    first = 1 / (1 + np.exp(-9 * (1.6 - 0.6)))  # inner products with (0.8, 0.6)
    both = RankedRouter(TWO, 2).scores(("4 3",))[0]
    assert both == pytest.approx([first + (1 - first) / 3, first / 3 + 1 - first, 0.5])


def test_avengers_pro_ranks_by_accuracy_and_cheapness_of_a_cluster() -> None:
    # Scaled accuracies 1, 0, 1/2 and 0, 1, 1; cheapness 0, 2/3, 0: the price of m02 is unknown.
    def asked(weight: float, question: str, nearest: int = 1) -> int:
        router = MixedRouter(TWO, nearest, np.array([3.0, 1.0, np.nan]), (), weight)
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
    cheap = MixedRouter(TWO, 2, np.array([3.0, 9.0, 1.0]), (), 0.3)
    p = 1 / (1 + np.exp(-9 * (1.6 - 0.6)))
    # Mixed: 0.7 + 0.3 · 2/3, 0, 0.35 + 0.3 · 8/9 and 0.3 · 2/3, 0.7, 0.7 + 0.3 · 8/9.
    decided = decided_by(cheap, "4 3", 3)
    assert decided.pools.argmax() == np.argmax([p + (1 - p) / 3, p / 3 + (1 - p) / 2, p / 2 + 1 - p]) == 0
    assert decided.probability is not None
    assert decided.probability[0] == pytest.approx(p * 0.9 + (1 - p) * 0.2)


def test_hierarchical_shrinkage() -> None:
    fine = Clusters(
        Words(),
        centres=np.array([[1.0, 1.0], [1.0, -1.0]]),
        sizes=np.array([3.0, 7.0, 10.0]),
        means=np.array([[0.0, 1.0, 0.5], [0.8, 0.2, 0.9], [0.62, 0.54, 0.66]]),
    )
    found = ShrunkMeans(TWO, fine, 24.0, ()).scores(("2 1", "0 0"))
    b1 = (6 * np.array([0.9, 0.5, 0.7]) + 24 * np.array([0.62, 0.54, 0.66])) / 30
    assert found[0] == pytest.approx((3 * np.array([0.0, 1.0, 0.5]) + 24 * b1) / 27)
    assert found[1] == pytest.approx([0.62, 0.54, 0.66])


def test_clusters_keep_the_record_of_their_questions() -> None:
    data = by_topic(4, T=80)
    clusters = fit_clusters(data.train, "tfidf", 2)
    own = clusters.near(data.train.questions).at[:, 0]
    for at in range(2):
        assert clusters.sizes[at] == (own == at).sum()
        assert clusters.means[at] == pytest.approx(data.train.correct[own == at].mean(axis=0))
    assert clusters.means[-1] == pytest.approx(data.train.correct.mean(axis=0))
    few = fit_clusters(replace(data, questions=("water", "sum") * 40).train, "tfidf", 30)
    assert few.sizes.tolist() == [20.0, 20.0, 40.0]


def test_shrunk_means_weigh_prices() -> None:
    data = by_topic(3, prices=[3.0, 1.0, 1.0, 1.0])
    assert decide(policy_of("hier_shrink", data.train, price_weight=0.0), data.test).pools[:, 0].any()
    assert not decide(policy_of("hier_shrink", data.train, price_weight=0.6), data.test).pools[:, 0].any()
    unpriced = replace(data, prices=np.array([1.0, np.nan, 1.0, 1.0]))
    with pytest.raises(InputError, match="weighs prices, and that of 'm01' is unknown"):
        policy_of("hier_shrink", unpriced.train, price_weight=0.6)

"""Routers by nearest questions: their formulas by hand, where they must win and where they cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.topics import NumberEncoder, answered, by_topic, policy_of

from rlfocal.base.errors import InputError
from rlfocal.data.policy import Decisions, Policy, decide
from rlfocal.methods.knn import GuardedKNN, GuardedRouter, NeighbourScores


def test_knn_scores_by_the_nearest() -> None:
    vectors = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [-1.0, 0.0]])
    right = np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    scorer = NeighbourScores(NumberEncoder(), vectors, right, k=2)
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
    return GuardedRouter(GuardedKNN(**settings), NumberEncoder(), vectors, np.array(right), np.array(prices))


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
        router = GuardedRouter(
            GuardedKNN(k=4, z=z), NumberEncoder(), vectors, np.array(near + far), np.array(prices)
        )
        assert asked_by(router) == expected, (z, prices)
        assert asked_by(router, "-1") == 0
        assert asked_by(router, "0") == 0


def test_the_guards_neighbours_weigh_by_similarity() -> None:
    # Cosines to "1 0": 1, 0.8 and 0.6. The second's is the 2nd: 0.75 of it is 0.6, which is not more.
    vectors = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]])
    right = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    router = GuardedRouter(GuardedKNN(k=2, closeness=0.75), NumberEncoder(), vectors, right, np.ones(2))
    paired = router._paired_block(np.array([[1.0, 0.8, 0.6]]), fallback=1)
    assert paired.accuracy[0] == pytest.approx([1 / 1.8, 0.8 / 1.8])
    gain = 0.2 / 1.8
    assert paired.gain[0] == pytest.approx([gain, 0.0])
    error = np.sqrt((1 - gain**2) * (1 + 0.64) / 1.8**2)
    assert paired.error[0] == pytest.approx([error, 0.0])
    wider = replace(router, settings=GuardedKNN(k=2, closeness=0.7))
    assert wider._paired_block(np.array([[1.0, 0.8, 0.6]]), 1).accuracy[0] == pytest.approx(
        [1 / 2.4, 1.4 / 2.4]
    )


def test_a_lead_without_spread_needs_no_guard() -> None:
    assert asked_by(guarded([[0.0, 1.0], [0.0, 1.0]], (1.0, 1.0))) == 1
    assert asked_by(guarded([[1.0, 1.0], [0.0, 0.0]], (1.0, 1.0))) == 0


def test_dissimilar_questions_are_no_neighbours() -> None:
    router = replace(guarded([[1.0], [0.0], [0.0]], (1.0,)), settings=GuardedKNN(k=3))
    assert router._paired_block(np.array([[0.5, -0.1, -0.2]]), 0).accuracy[0] == [1.0]


def test_a_guarded_budget_is_kept_on_neighbours_other_than_oneself() -> None:
    # The first and the last are nearest to the second, and the second to the first.
    angles = np.deg2rad([5.0, 0.0, -5.0])
    vectors = np.column_stack([np.cos(angles), np.sin(angles)])
    right = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    settings = GuardedKNN(k=1, closeness=0.9999)
    router = GuardedRouter(settings, NumberEncoder(), vectors, right, np.array([1.0, 4.0]))
    assert router.mean_train_price(0.0) == (4 + 1 + 4) / 3

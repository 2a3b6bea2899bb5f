"""The figures of an explanation, by hand, on four documents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.datasets import make_dataset

from rlfocal.evaluation.explain import MARGIN
from rlfocal.evaluation.explaining import LEAST_CHANCE, Observed, belief, of_model, summarise
from rlfocal.statistics.intervals import Interval


def by_hand(**changes: Any) -> Observed:
    """Four documents of three models and three choices; whom they asked is in `rounds`."""
    predictions = np.array([[0, 0, 1], [1, 2, 2], [2, 2, 2], [1, 1, 0]])
    probs = np.where(np.arange(3) == predictions[..., None], 0.6, 0.2)
    test = replace(make_dataset(probs, np.array([1, 1, 2, 2]), n_train=0), tasks=np.array(list("ttuu")))
    chance = np.array([0.5, 0.4, 0.9, 0.2])
    without = np.array([[0.5, 0.2, 0.9, 0.2], [0.5, 0.4, 0.9, 0.0], [0.1, 0.4, 0.9, 0.2]])
    given: dict[str, Any] = {
        "test": test,
        "train_accuracy": np.array([0.2, 0.7, 0.5]),
        "rounds": np.array([[1, 0, 2], [1, 2, 2], [1, 0, 0], [1, 2, 0]]),
        "slots": np.array([[1, 1, 2, 2], [1, 2, 2, 2], [1, 1, 2, 0], [0, 1, 2, 2]]),
        "chance": np.vstack([chance, without]),
        "pulls": np.array([[-1.0, 0, 3], [2, 0.5, 0], [1, 0, 0], [-0.5, -1, 0]]),
    }
    return Observed(**(given | changes))


def test_a_belief_by_hand() -> None:
    every = np.ones(4, dtype=np.bool_)
    first = belief(by_hand(), 0, every)
    assert first is not None
    # Disputed: the first two documents. Of 0 and 1 it says 0 (one vote of two), then 1 (one of three).
    assert (first.asked, first.disputed, first.followed) == (4, 2, 0.5)
    assert first.votes == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert first.pull == pytest.approx((-1 + 2 + 1 - 0.5) / 4)
    assert first.weight == pytest.approx(-1 + 2 + 1 - 0.5)
    assert replace(first, pull=None).weight == pytest.approx(2 * (0.5 - 5 / 12))
    second = belief(by_hand(), 1, every)
    assert second is not None
    assert (second.disputed, second.followed) == (1, 0.0)
    assert second.votes == pytest.approx(2 / 3)
    assert belief(by_hand(), 2, by_hand().test.tasks == "u") is None


def test_no_answer_disputes_nothing() -> None:
    test = replace(by_hand().test, predictions=np.array([[0, 0, -1], [-1, 2, 2], [2, 2, 2], [1, 1, 0]]))
    one = belief(by_hand(test=test), 0, np.ones(4, dtype=np.bool_))
    assert one is not None
    assert one.disputed == 0


def test_a_loss_by_hand() -> None:
    lost = of_model(by_hand(), 1)
    accuracy = lost.accuracy_without
    assert accuracy.mean == -0.25
    assert accuracy.low <= accuracy.mean <= accuracy.high == 0
    assert lost.log_score_without.mean == pytest.approx(np.log(LEAST_CHANCE / 0.2) / 4)
    assert not lost.is_free


@pytest.mark.parametrize(("accuracy", "score", "is_free"), [(0, 0, True), (-1.5, 0, False), (0, -1.5, False)])
def test_no_loss_needs_both_intervals(accuracy: float, score: float, is_free: bool) -> None:
    low, other = (Interval(0.0, MARGIN * value, 0.1) for value in (accuracy, score))
    found = replace(of_model(by_hand(), 1), accuracy_without=low, log_score_without=other)
    assert found.is_free == is_free


def test_an_interval_of_a_log_score_is_a_standard_error_wide() -> None:
    rng = np.random.default_rng(0)
    test = make_dataset(np.full((400, 1, 2), 0.5), np.zeros(400, dtype=np.int64), n_train=0)
    before, after = rng.uniform(0.3, 0.9, 400), rng.uniform(0.3, 0.9, 400)
    slots, rounds = np.zeros((2, 400), dtype=np.int64), np.ones((400, 1), dtype=np.int64)
    of = by_hand(test=test, chance=np.stack([before, after]), slots=slots, rounds=rounds, pulls=None)
    differences = np.log(after) - np.log(before)
    found = of_model(of, 0).log_score_without
    error = differences.std() / np.sqrt(400)
    assert found.mean == pytest.approx(differences.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_models_stops_and_tasks_by_hand() -> None:
    about: dict[str, Any] = {"method": "rl_focal", "per": "benchmark", "split": "given", "seed": 0}
    found = summarise(by_hand(), **about, data="d", n_train=1)
    assert [one.model for one in found.models] == ["m00", "m01", "m02"]
    assert [one.asked for one in found.models] == [1.0, 0.5, 0.5]
    assert [one.mean_round for one in found.models] == [1.0, 2.0, 2.0]
    assert [(of.name, of.documents, of.accuracy, of.mean_pool_size) for of in found.stops] == [
        ("1", 1, 1.0, 1.0),
        ("2", 2, 1.0, 2.0),
        ("3", 1, 1.0, 3.0),
    ]
    tasks = found.tasks
    assert [(of.name, of.documents, of.mean_pool_size) for of in tasks] == [("t", 2, 2.5), ("u", 2, 1.5)]
    # By the sums of pulls: 3, 1, 0.5; then 0.5, -1.
    assert [name for name, _ in tasks[0].beliefs] == ["m02", "m00", "m01"]
    assert [name for name, _ in tasks[1].beliefs] == ["m00", "m01"]
    # Without pulls by surplus: 1 - 1/2 - 1/3; 1/2 - 2/3; -2/3.
    counted = summarise(by_hand(pulls=None), **about, data="d", n_train=1).tasks[0].beliefs
    surplus = {name: one.weight for name, one in counted}
    assert surplus == pytest.approx({"m00": 1 - 1 / 2 - 1 / 3, "m02": 1 - 1 / 2 - 2 / 3, "m01": -2 / 3})
    assert [name for name, _ in counted] == ["m00", "m02", "m01"]

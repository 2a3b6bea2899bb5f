"""The figures of an explanation, by hand, on four documents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.datasets import make_dataset

from rlfocal.evaluation.explain import MARGIN, Loss
from rlfocal.evaluation.explain.examples import against, despite, examples
from rlfocal.evaluation.explain.observing import Observed
from rlfocal.evaluation.explain.summarising import (
    LEAST_CHANCE,
    alike_in_error,
    belief,
    loss,
    of_models,
    of_tasks,
    own_answers,
    pools,
    stops,
)
from rlfocal.statistics.intervals import Interval


def by_hand(**changes: Any) -> Observed:
    """Four documents of three models and three choices; whom they asked is in `rounds`."""
    predictions = np.array([[0, 0, 1], [1, 2, 2], [2, 2, 2], [1, 1, 0]])
    probs = np.where(np.arange(3) == predictions[..., None], 0.6, 0.2)
    test = replace(make_dataset(probs, np.array([1, 1, 2, 2]), n_train=0), tasks=np.array(list("ttuu")))
    chance = np.array([0.5, 0.4, 0.9, 0.2])
    given: dict[str, Any] = {
        "test": test,
        "train_accuracy": np.array([0.2, 0.7, 0.5]),
        "rounds": np.array([[1, 0, 2], [1, 2, 2], [1, 0, 0], [1, 2, 0]]),
        "slots": np.array([1, 1, 2, 2]),
        "probability": chance,
        "chance": chance,
        "pulls": np.array([[-1.0, 0, 3], [2, 0.5, 0], [1, 0, 0], [-0.5, -1, 0]]),
        "slots_without": np.array([[1, 2, 2, 2], [1, 1, 2, 0], [0, 1, 2, 2]]),
        "chance_without": np.array([[0.5, 0.2, 0.9, 0.2], [0.5, 0.4, 0.9, 0.0], [0.1, 0.4, 0.9, 0.2]]),
    }
    return Observed(**(given | changes))


def test_a_belief_by_hand() -> None:
    every = np.ones(4, dtype=np.bool_)
    first = belief(by_hand(), 0, every)
    assert first is not None
    # Disputed: the first two documents. Of 0 and 1 it says 0 (one vote of two), then 1 (one of three).
    assert (first.documents, first.followed) == (2, 0.5)
    assert first.votes == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert first.pull == pytest.approx((-1 + 2 + 1 - 0.5) / 4)
    assert first.surplus == pytest.approx(2 * (0.5 - 5 / 12))
    second = belief(by_hand(), 1, every)
    assert second is not None
    assert (second.documents, second.followed) == (1, 0.0)
    assert second.votes == pytest.approx(2 / 3)
    assert belief(by_hand(), 2, by_hand().test.tasks == "u") is None
    assert own_answers(by_hand()).tolist() == [False, False, False, True]


def test_no_answer_disputes_nothing() -> None:
    test = replace(by_hand().test, predictions=np.array([[0, 0, -1], [-1, 2, 2], [2, 2, 2], [1, 1, 0]]))
    one = belief(by_hand(test=test), 0, np.ones(4, dtype=np.bool_))
    assert one is not None
    assert one.documents == 0


def test_a_loss_by_hand() -> None:
    lost = loss(by_hand(), 1)
    assert lost.accuracy.mean == -0.25
    assert lost.log_score.mean == pytest.approx(np.log(LEAST_CHANCE / 0.2) / 4)
    assert lost.accuracy.low <= lost.accuracy.mean <= lost.accuracy.high == 0
    assert not lost.is_none


@pytest.mark.parametrize(("accuracy", "score", "is_none"), [(0, 0, True), (-1.5, 0, False), (0, -1.5, False)])
def test_no_loss_needs_both_intervals(accuracy: float, score: float, is_none: bool) -> None:
    low, other = (Interval(0.0, MARGIN * value, 0.1) for value in (accuracy, score))
    assert Loss(low, other).is_none == is_none


def test_an_interval_of_a_log_score_is_a_standard_error_wide() -> None:
    rng = np.random.default_rng(0)
    test = make_dataset(np.full((400, 1, 2), 0.5), np.zeros(400, dtype=np.int64), n_train=0)
    before, after = rng.uniform(0.3, 0.9, 400), rng.uniform(0.3, 0.9, 400)
    slots = np.zeros(400, dtype=np.int64)
    of = by_hand(test=test, chance=before, slots=slots, slots_without=slots[None], chance_without=after[None])
    differences = np.log(after) - np.log(before)
    found = loss(of, 0).log_score
    error = differences.std() / np.sqrt(400)
    assert found.mean == pytest.approx(differences.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_models_stops_pools_and_tasks_by_hand() -> None:
    found = {one.model: one for one in of_models(by_hand())}
    assert [one.model for one in of_models(by_hand())] == ["m00", "m01", "m02"]
    assert [found[name].asked for name in ("m00", "m01", "m02")] == [1.0, 0.5, 0.5]
    assert found["m02"].by_round == (0.0, 0.5)
    # m02 is right on document 0, where m00 is wrong, and wrong on 1; m00 is asked alone on document 2.
    assert found["m02"].alone_right == 0.5
    assert found["m00"].alone_right == pytest.approx(1 / 3)
    assert [(of.size, of.documents, of.accuracy) for of in stops(by_hand())] == [
        (1, 1, 1.0),
        (2, 2, 1.0),
        (3, 1, 1.0),
    ]
    every = by_hand(rounds=np.array([[1, 0, 1], [1, 0, 1], [1, 1, 0], [0, 0, 1]]))
    assert (pools(every).distinct, pools(every).commonest, pools(every).share) == (3, ("m00", "m02"), 0.5)
    tasks = of_tasks(by_hand())
    assert [(of.task, of.documents, of.mean_pool_size) for of in tasks] == [
        ("t", 2, 2.5),
        ("u", 2, 1.5),
    ]
    # By the sums of pulls: 3, 1, 0.5; then 0.5, -1.
    assert [name for name, _ in tasks[0].beliefs] == ["m02", "m00", "m01"]
    assert [name for name, _ in tasks[1].beliefs] == ["m00", "m01"]
    # By surplus: 1 - 1/2 - 2/3; 1/2 - 5/6; -2/3.
    counted = of_tasks(by_hand(pulls=None))[0].beliefs
    surplus = {name: one.surplus for name, one in counted}
    assert surplus == pytest.approx({"m00": 1 - 1 / 2 - 1 / 3, "m02": 1 - 1 / 2 - 2 / 3, "m01": -2 / 3})
    assert [name for name, _ in counted] == ["m00", "m02", "m01"]


def test_errors_alike_by_hand() -> None:
    # m00 and m01: wrong on 0 (both say 0), 1 (m01 alone), 3 (both say 1).
    shares, errors = alike_in_error(by_hand().test)
    assert (shares[0, 1], errors[0, 1]) == (pytest.approx(2 / 3), 3)
    assert (shares[1, 2], errors[1, 2]) == (pytest.approx(1 / 3), 3)
    assert (shares[0, 2], errors[0, 2]) == (0.0, 3)


def test_examples_are_those_that_most_get_wrong() -> None:
    of = by_hand()
    # Documents 0 (one of three is right), 1 (one), 3 (nobody).
    assert against(of).tolist() == [True, True, False, True]
    shown = examples(of)
    assert [(one.task, one.doc_id) for one in shown] == [("t", 0), ("t", 1), ("u", 3)]
    assert [(one.answer, one.is_right, one.asked, one.others) for one in shown[0].said] == [
        ("B", True, ("m02",), ()),
        ("A", False, ("m00",), ("m01",)),
    ]
    assert not any(one.is_right for one in shown[2].said)
    assert despite(replace(of, slots=np.array([0, 0, 1, 2]))).tolist() == [False, False, True, False]
    assert len(examples(of, most=2)) == 2


def test_half_of_the_models_are_not_most() -> None:
    two = np.where(np.arange(2) == np.array([[0], [1]]), 0.9, 0.1)[None].repeat(2, axis=0)
    of = by_hand(test=make_dataset(two, np.array([0, 0]), n_train=0), slots=np.array([0, 1]))
    assert of.right.tolist() == [True, False]
    assert not against(of).any()
    assert not despite(of).any()


def test_texts_are_shortened_and_those_of_confidential_documents_are_left_out() -> None:
    secret, known = "what is\nthe secret? " * 40, [("yes", "no \n" * 60, "C"), ("(A)", "x", "y")]
    texts: dict[str, Any] = {
        "questions": (secret, "q", "", ""),
        "choices": (*known, ("", "", ""), ("", "", "")),
    }
    of = by_hand(test=replace(by_hand().test, **texts))
    first, second = examples(of)[:2]
    assert len(first.question) <= 240
    assert first.question.startswith("what is the secret?")
    assert first.right.startswith("B: no no no")
    assert len(first.right) < 70
    assert second.said[1].answer == "C: y"
    [closed, *_] = examples(of, {("t", 0)})
    assert "secret" not in str(closed)
    assert [one.answer for one in closed.said] == ["B", "A"]

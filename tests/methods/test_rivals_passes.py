"""Rivals that ask a model several times: votes by hand, and what a model's passes are worth."""

from __future__ import annotations

from dataclasses import replace
from math import comb

import numpy as np
import pytest
from support.datasets import sampled
from support.rival_data import accuracy, best_single, fitted
from support.worded_data import TOPICS

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import decide
from rlfocal.methods import check_methods
from rlfocal.methods.cascades.model_switch import internal_weights, passes_of
from rlfocal.methods.pools.more_agents import majority_of
from rlfocal.methods.routers.best_route import SampledRouter


def passes(T: int = 400, seed: int = 0) -> Dataset:
    """Five passes: the cheap m00 knows the first topic, and wavers on the second, which m01 and m02 know."""
    rng = np.random.default_rng(seed)
    topics, golds = rng.integers(2, size=T), rng.choice(list("abcd"), T)

    def said(sure: bool, gold: str) -> str:
        wrong = rng.choice([x for x in "abcd" if x != gold], 5)
        is_right = rng.random(5) < (0.97 if sure else 0.35)
        return "".join(np.where(is_right, gold, wrong))

    rows = [
        [said(topic == 0, gold), said(topic == 1, gold), said(topic == 1, gold)]
        for topic, gold in zip(topics, golds, strict=True)
    ]
    made = sampled(*rows, gold=golds.tolist())
    questions = tuple(" ".join(rng.choice(TOPICS[topic].split(), 4)) for topic in topics)
    return replace(made, questions=questions, prices=np.array([1.0, 4.0, 9.0]))


def test_model_switch_votes_by_hand() -> None:
    """m00 is right on 3 of 4 train documents, m01 on 2, m02 on 1; on test, they split in these ways."""
    train = [("aaaa", "aaaa", "bbbc"), ("aaaa", "bbbb", "bbbb"), ("aaaa", "aaaa", "aaaa"), ("bbbb",) * 3]
    test = [
        ("aaab", "bbbb", "aaaa"),  # 3 w a, w b; then b: 4 · 1/2
        ("cccc", "bbbb", "aaaa"),  # agreed at once
        ("ab--", "bbcc", "cccc"),  # nobody agrees before the last
        ("----", "----", "----"),
    ]
    data = sampled(*train, *test, gold=["a"] * 8)
    decided = decide(fitted("model_switch", data.train), data.test)
    assert decided.pools.tolist() == [[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 1]]
    entropy = -(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25))
    w = 0.25 + 0.75 * (1 - entropy)
    a, b = 3 * w * 0.75, w * 0.75 + 4 * 0.5
    assert b > a
    # Third: m00's two passes with an answer have w = 1/2, m01's four w = 1/4, m02 is sure.
    votes = {"a": 0.75 / 2, "b": 0.75 / 2 + 2 * 0.5 / 4, "c": 2 * 0.5 / 4 + 4 * 0.25}
    answers = [
        data.test.slots[row][slot] if slot >= 0 else "-" for row, slot in enumerate(decided.predictions)
    ]
    assert answers == ["b", "c", max(votes, key=lambda x: votes[x]), "-"]
    assert decided.probability is not None
    assert decided.probability[[0, 2]] == pytest.approx([b / (a + b), votes["c"] / sum(votes.values())])


def test_internal_weights_and_passes_by_hand() -> None:
    weights = internal_weights(np.array([[4.0, 0.0], [2.0, 2.0], [0.0, 0.0], [3.0, 1.0]]))
    entropy = -(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25))
    assert weights == pytest.approx([1.0, 0.25, 1.0, 0.25 + 0.75 * (1 - entropy)])
    assert passes_of(np.array([[0.2, 0.8], [1.0, 0.0]])) == 5
    assert passes_of(np.array([[1 / 3, 0.5]])) == 6
    assert passes_of(np.array([0.0, 1.0])) == 1


def test_less_consistency_asks_fewer_models() -> None:
    data = passes()
    asked = [
        decide(fitted("model_switch", data.train, consistency=share), data.test).pools.sum(axis=1).mean()
        for share in (0.4, 0.8, 1.0)
    ]
    assert asked[0] < asked[1] < asked[2] <= 3
    assert decide(fitted("model_switch", data.train, models=1), data.test).pools.sum() == len(data.test)


@pytest.mark.parametrize("name", ["model_switch", "best_route"])
def test_it_beats_the_best_model(name: str) -> None:
    data = passes()
    decided = decide(fitted(name, data.train), data.test)
    assert accuracy(data.test, decided) > best_single(data) + 0.1


def test_majority_accuracy_is_binomial() -> None:
    said = np.tile([0.6, 0.4], (4000, 1))
    right = (majority_of(said, 5, np.random.default_rng(0)).slots == 0).mean()
    expected = sum(comb(5, k) * 0.6**k * 0.4 ** (5 - k) for k in (3, 4, 5))
    assert right == pytest.approx(expected, abs=4 * (0.25 / 4000) ** 0.5)
    sizes = majority_of(said[:3], np.array([1, 2, 9]), np.random.default_rng(0)).probability
    assert sizes is not None
    assert sizes[0] == 1.0


def test_best_route_asks_the_cheapest_that_will_do() -> None:
    data = passes()
    policy = fitted("best_route", data.train)
    assert isinstance(policy, SampledRouter)
    asked = decide(policy, data.test).pools
    is_first = np.array([set(q.split()) <= set(TOPICS[0].split()) for q in data.test.questions])
    assert asked[is_first, 0].mean() > 0.95
    assert asked[~is_first, 1].mean() > 0.9
    assert (policy.models[:3] == 0).all()  # three samples of m00 cost less than one of m01
    lax, wary = (decide(fitted("best_route", data.train, threshold=t), data.test).pools for t in (0.0, 1.0))
    assert lax[:, 0].all()
    assert wary[:, policy.best].all()


def test_data_without_passes_or_prices_are_refused() -> None:
    from rlfocal.base.errors import InputError

    data = passes(T=20)
    check_methods(["best_route", "model_switch"], data)
    with pytest.raises(InputError, match="price"):
        check_methods(["best_route"], replace(data, prices=np.array([1.0, np.nan, 1.0])))
    once = replace(data, probs=(data.probs == data.probs.max(axis=2, keepdims=True)).astype(float))
    with pytest.raises(InputError, match="passes"):
        check_methods(["model_switch"], once)

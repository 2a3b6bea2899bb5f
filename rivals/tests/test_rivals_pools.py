"""Tests of constant pools chosen by the accuracy of votes, by mutual information and by likelihood."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax
from support.datasets import datasets, make_answers, make_dataset, make_logits, sampled
from support.rival_data import accuracy, fitted

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import decide
from rlfocal_rivals.pools import TEMPERATURES, ConstantPool, Information, calibrate, grow, mutual_information


def test_mutual_information_by_hand() -> None:
    # Of 8 observations: X = 0 three times wrong, once right; X = 1 the other way round.
    pattern, right = np.array([0] * 4 + [1] * 4), np.array([0, 0, 0, 1, 1, 1, 1, 0], dtype=np.bool_)
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    bias = (4 - 2 - 2 + 1) / 16
    assert mutual_information(pattern, right) == pytest.approx(math.log(2) - entropy - bias)
    # One to one: 2 cells, 2 patterns, 2 outcomes.
    assert mutual_information(7 * right, right) == pytest.approx(math.log(2) + 1 / 16)
    assert mutual_information(pattern, np.ones(8, dtype=np.bool_)) == pytest.approx(0.0)
    assert mutual_information(pattern[:0], right[:0]) == 0.0


def test_mutual_information_pools_prefer_new_information() -> None:
    """Models m00 and m01 give the same answers, 80 % of them right; m02 is right in 70 %, and m03 guesses."""
    rng = np.random.default_rng(0)
    T, labels = 4000, rng.integers(0, 3, 4000)
    wrong = (labels + rng.integers(1, 3, (3, T))) % 3
    good, other = (np.where(rng.random(T) < p, labels, wrong[i]) for i, p in enumerate((0.8, 0.7)))
    said = np.stack([good, good, other, rng.integers(0, 3, T)], axis=1)
    probs = np.where(np.arange(3) == said[..., None], 0.8, 0.1)
    data = make_dataset(probs, labels, n_train=T // 2)
    [pool] = ConstantPool(Information).fit(data.train, [0])
    assert pool.members == (0, 2)  # the others would tell nothing
    [three] = ConstantPool(Information, 3).fit(data.train, [0])
    assert set(three.members) == {0, 2, 3} or set(three.members) == {0, 1, 2}
    assert len(three.members) == 3
    decided = decide(pool, data.test)
    assert decided.pools.tolist() == [[True, False, True, False]] * (T // 2)
    # Where both say something else, the better one is believed.
    assert (decided.predictions == data.test.predictions[:, 0]).all()
    assert decided.probability is not None
    agree = (said[:, 0] == said[:, 2])[T // 2 :]
    assert decided.probability[agree].mean() == pytest.approx(0.56 / (0.56 + 0.03), abs=0.02)
    assert decided.probability[~agree].mean() == pytest.approx(0.24 / 0.41, abs=0.03)


def test_votes_are_looked_up_as_counted() -> None:
    # m00 alone is right in 1 of 2, m01 alone in 1 of 2, both in 1 of 1, nobody's slot in 0 of 4 of 9 slots.
    data = make_answers(("ab", "a"), ("ab", "b"), ("aa", "a"), *[("ab", "a")] * 3)
    [pool] = ConstantPool(Information, 2).fit(data.train, [0])
    share = 3 / 5
    assert Information(data.train).chances(pool.members)[[0b01, 0b10, 0b11]] == pytest.approx(
        [(1 + share) / 3, (1 + share) / 3, (1 + share) / 2]
    )
    # A tie, which the first model's answer wins, whatever its slot.
    flipped = replace(
        data.test,
        probs=data.test.probs[:, :, ::-1],
        predictions=1 - data.test.predictions,
        slots=(("b", "a"),) * 3,
    )
    for test in (data.test, flipped):
        said = decide(pool, test).predictions
        assert [row[slot] for row, slot in zip(test.slots, said, strict=True)] == ["a"] * 3
    surer = sampled(("aab", "bbb"), gold=["a"])
    assert surer.slots == (("b", "a"),)
    assert decide(pool, surer).predictions.tolist() == [1]


def test_pools_grow_by_what_can_still_be_paid() -> None:
    worth = {0: 5.0, 1: 4.0, 2: 1.0, 3: 1.0}
    cost = np.array([3.0, 2.0, 1.0, math.inf])

    def total(members: tuple[int, ...]) -> float:
        return sum(worth[m] for m in members)

    assert grow(total, cost, 4.0, 6) == (0, 2)
    assert grow(total, cost, 2.0, 6) == (1,)
    assert grow(total, cost, 100.0, 2) == (0, 1)
    assert grow(total, cost, 0.5, 6) == ()
    assert grow(lambda members: -len(members), np.ones(3), 9.0, 6) == (0,)
    assert grow(lambda members: -len(members), np.ones(3), 2.0, None) == (0, 1)


def test_temperatures_are_the_likeliest_and_held_out() -> None:
    data = make_logits(7, T=600, N=2)
    sharp = replace(data, logprobs=np.stack([data.logprobs[:, 0] * 4, data.logprobs[:, 1] / 3], axis=1))
    base = calibrate(data).scales
    found = calibrate(sharp)
    scales, right_probs = found.scales, found.right_probs
    step = TEMPERATURES[1] / TEMPERATURES[0]
    assert 1 / step <= scales[0] / (4 * base[0]) <= step
    assert 1 / step <= scales[1] / (base[1] / 3) <= step
    rows = sharp.rows(sharp.labels >= 0)
    assert right_probs.shape == (len(rows), 2)
    others = rows.take(np.flatnonzero(np.arange(len(rows)) % 5 != 3))
    fold_scales = calibrate(others).scales
    logits = rows.logprobs[3, 1, : rows.n_choices[3]] / fold_scales[1]
    expected = np.exp(logits[rows.labels[3]]) / np.exp(logits).sum()
    assert right_probs[3, 1] == pytest.approx(expected)


def test_likelihood_pools_calibrate_overconfident_models() -> None:
    """Model m01 is as often right as m00, but sure of every answer; calibration must make up for this."""
    rng = np.random.default_rng(1)
    T, labels = 3000, rng.integers(0, 3, 3000)
    evidence = rng.normal(size=(T, 2, 3)) + 1.5 * (np.arange(3) == labels[:, None])[:, None]
    logits = evidence * np.array([1.5, 30.0])[:, None]
    logprobs = log_softmax(logits, axis=2)
    data = replace(make_dataset(np.exp(logprobs) + 1e-300, labels, n_train=T // 2), logprobs=logprobs)
    [pool] = ConstantPool(calibrate).fit(data.train, [0])
    assert sorted(pool.members) == [0, 1]
    calibrated = accuracy(data.test, decide(pool, data.test))
    raw = accuracy(data.test, decide(fitted("soft_vote", data.train), data.test))
    assert calibrated > raw + 0.02


def test_factors_of_answers_by_hand() -> None:
    data = sampled(("aab", "bbb"), ("ccc", "dcc"), ("e--", "fff"), gold=["a", "c", "z"])
    found = calibrate(data)
    # Two documents have a right slot: m00 gave it 2/3 and 1, m01 0 and 2/3.
    assert found.scales == pytest.approx([(5 / 3 + 1) / 4, (2 / 3 + 1) / 4])
    assert found.right_probs == pytest.approx(
        np.array([[2 / 3 * (1 + 1) / 3, 0.0], [1.0 * (2 / 3 + 1) / 3, 2 / 3 * 1 / 3]])
    )


@given(datasets(), st.integers(1, 5), st.booleans())
def test_best_pools_are_the_first_of_the_best(data: Dataset, size: int, any_size: bool) -> None:
    train, test = data.train, data.test
    N = len(data.models)
    sizes = range(1, N + 1) if any_size else [min(size, N)]
    pools = [pool for size in sizes for pool in combinations(range(N), size)]

    def vote(row: list[int], pool: tuple[int, ...]) -> int:
        votes = Counter(row[i] for i in pool)
        return min(slot for slot in votes if votes[slot] == max(votes.values()))

    def right(pool: tuple[int, ...]) -> int:
        rows = zip(train.predictions.tolist(), train.labels.tolist(), strict=True)
        return sum(vote(row, pool) == label for row, label in rows)

    best = max(pools, key=right)  # max: the first of equals
    decided = decide(fitted("best_plurality" if any_size else f"best_plurality:{size}", train), test)
    assert np.flatnonzero(decided.pools[0]).tolist() == list(best)
    assert decided.predictions.tolist() == [vote(row, best) for row in test.predictions.tolist()]

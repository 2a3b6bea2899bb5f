"""Tests of bandits and experts: updates computed by hand, which models they call, and what stays hidden."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.datasets import answers, choices, make_dataset
from support.worded_data import BANDITS, decided, knowers, topical

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Decisions, Method, OnlineLearner, decide_online
from rlfocal.data.text import TFIDF
from rlfocal_rivals.directions import fit_directions
from rlfocal_rivals.online import (
    LEARNING_RATES,
    Arms,
    Hedge,
    LinUcb,
    SlidingWindowLeader,
    Thompson,
    contexts_of,
    weights_along,
)

SLOW_BANDITS = [pytest.param(name, marks=[] if name == "linucb" else [pytest.mark.slow]) for name in BANDITS]
"""All bandits; all but linucb are marked as slow."""


def fresh(n: int, width: int, gamma: float = 1.0) -> Arms:
    return Arms.learn_all(np.zeros((0, width)), np.zeros((0, n), dtype=np.bool_), gamma)


def test_what_an_arm_learns_by_hand() -> None:
    arms = fresh(2, 1)
    score = LinUcb(alpha=2.0).score(0)
    assert score(arms, np.array([3.0])) == pytest.approx([6.0, 6.0])  # 0 + 2 · √9
    arms.learn(1, np.array([1.0]), 1.0)  # A = 2, b = 1
    arms.learn(1, np.array([2.0]), 0.0)  # A = 6, b = 1
    assert arms.means == pytest.approx(np.array([[0.0], [1 / 6]]))
    assert score(arms, np.array([3.0])) == pytest.approx([6.0, 3 / 6 + 2 * (9 / 6) ** 0.5])


def test_arms_are_ridge_regressions_however_they_learn() -> None:
    rng = np.random.default_rng(0)
    contexts, right = rng.normal(size=(30, 3)), rng.random((30, 2)) < 0.5
    one_by_one = fresh(2, 3)
    for row, arm in np.ndindex(30, 2):
        one_by_one.learn(arm, contexts[row], float(right[row, arm]))
    at_once = Arms.learn_all(contexts, right)
    expected = np.linalg.solve(np.eye(3) + contexts.T @ contexts, contexts.T @ right).T
    for arms in (one_by_one, at_once):
        assert arms.means == pytest.approx(expected)
        assert arms.inverses == pytest.approx(
            np.tile(np.linalg.inv(np.eye(3) + contexts.T @ contexts), (2, 1, 1))
        )
    copy = at_once.copy()
    copy.learn(0, contexts[0], 1.0)
    assert at_once.means == pytest.approx(expected)


def test_draws_of_thompson_have_their_mean_and_spread() -> None:
    rng = np.random.default_rng(0)
    arms = Arms.learn_all(rng.normal(size=(5, 3)), rng.random((5, 2)) < 0.5)
    context = np.array([1.0, -2.0, 0.5])
    score = Thompson(v=0.3).score(1)
    draws = np.array([score(arms, context) for _ in range(20_000)])
    spread = 0.3 * (context @ arms.inverses[0] @ context) ** 0.5
    assert draws.mean(axis=0) == pytest.approx(arms.means @ context, abs=5 * spread / 20_000**0.5)
    assert draws.std(axis=0) == pytest.approx([spread, spread], rel=0.03)
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.03


def test_what_a_forgetting_arm_learns_in_loops() -> None:
    rng = np.random.default_rng(0)
    contexts, arms_called, rewards = rng.normal(size=(20, 3)), rng.integers(0, 2, 20), rng.integers(0, 2, 20)
    fading = fresh(2, 3, 0.9)
    other = fading.copy()
    for context, arm, reward in zip(contexts, arms_called, rewards, strict=True):
        fading.learn(int(arm), context, float(reward))
    for arm in range(2):
        A, B, b = np.eye(3) * 0.0, np.eye(3) * 0.0, np.zeros(3)
        for t in np.flatnonzero(arms_called == arm):
            A += 0.9 ** (19 - t) * np.outer(contexts[t], contexts[t])
            B += 0.9 ** (2 * (19 - t)) * np.outer(contexts[t], contexts[t])
            b += 0.9 ** (19 - t) * rewards[t] * contexts[t]
        inverse, x = np.linalg.inv(A + np.eye(3)), np.array([1.0, -2.0, 0.5])
        assert fading.means[arm] == pytest.approx(inverse @ b)
        assert fading.variances(x)[arm] == pytest.approx(x @ inverse @ (B + np.eye(3)) @ inverse @ x)
    assert other.means == pytest.approx(np.zeros((2, 3)))  # a copy learns nothing


@pytest.mark.parametrize("name", SLOW_BANDITS)
@pytest.mark.parametrize("warm_start", [True, False])
def test_a_bandit_calls_the_model_shown_by_the_text(name: str, warm_start: bool) -> None:
    data = topical(T=1500)
    asked = decided(name, data, warm_start=warm_start)
    assert (asked.pools.sum(axis=1) == 1).all()
    right = asked.predictions == data.test.labels
    assert (asked.predictions == data.test.predictions[asked.pools]).all()
    late = slice(0 if warm_start else 250, None)
    slack = 0.15 if name.startswith("discounted") else 0.1  # who forgets goes on exploring
    assert right[late].mean() > knowers(data) - (0.02 if warm_start else slack)
    if not warm_start:
        assert right[:20].mean() < 0.9


@pytest.mark.parametrize("name", SLOW_BANDITS)
def test_a_bandit_learns_from_the_called_model_alone(name: str) -> None:
    data = topical(T=600)
    asked = decided(name, data, warm_start=False)
    called = np.vstack([np.ones_like(data.train.correct), asked.pools])
    lied = np.where(called, data.predictions, (data.predictions + 1) % 4)
    lies = replace(data, predictions=lied, probs=np.where(np.arange(4) == lied[:, :, None], 0.7, 0.1))
    told = decided(name, lies, warm_start=False)
    assert (told.pools == asked.pools).all()
    assert (told.predictions == asked.predictions).all()


def test_contexts_are_directions_and_a_one() -> None:
    data = topical(T=300)
    contexts = contexts_of(data.questions, fit_directions(TFIDF, data.questions, 4))
    assert contexts.shape == (300, 5)
    assert (contexts[:, 4] == 1).all()
    assert (contexts[:, :4] ** 2).sum(axis=1).mean() == pytest.approx(1.0)
    assert contexts_of(("",) * 3, fit_directions(TFIDF, ("",) * 3, 4)).tolist() == [[1.0]] * 3


# ---- learners from all models: regret bounds and brute force


def along(method: Method, data: Dataset) -> Decisions:
    [policy] = method.fit(data.train, [0])
    assert isinstance(policy, OnlineLearner)
    return decide_online(policy, data.test)


@st.composite
def losses(draw: st.DrawFn) -> np.ndarray:
    """(T, N) which models were wrong: another model is good in each stretch of documents."""
    n = draw(st.integers(2, 6))
    stretches = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(1, 60)), min_size=1, max_size=5))
    wrong = np.array([np.arange(n) != good for good, length in stretches for _ in range(length)])
    flips = np.random.default_rng(draw(st.integers(0, 99))).random(wrong.shape)
    return wrong ^ (flips < draw(st.sampled_from([0.0, 0.1, 0.4])))


def spent(wrong: np.ndarray, rate: float, share: float) -> float:
    """The expected number of errors over all documents, if Hedge's weights draw the answering model."""
    return float((np.exp(weights_along(wrong, rate, share)[:-1]) * wrong).sum())


@given(losses(), st.sampled_from([*LEARNING_RATES, 3.0]))
def test_hedge_keeps_to_its_regret_bound(wrong: np.ndarray, rate: float) -> None:
    """The bound: Σ w · l <= min_m Σ l_m + ln N / η + η T / 8 (Cesa-Bianchi and Lugosi 2006, theorem 2.2)."""
    length, n = wrong.shape
    assert spent(wrong, rate, 0) <= wrong.sum(axis=0).min() + math.log(n) / rate + rate * length / 8 + 1e-9


@given(losses(), st.sampled_from([*LEARNING_RATES, 3.0]), st.sampled_from([0.003, 0.01, 0.1]))
def test_fixed_share_keeps_its_bound_against_switching_experts(
    wrong: np.ndarray, rate: float, share: float
) -> None:
    """The bound is that of Herbster and Warmuth against the best sequence of models with paid switches."""
    length, n = wrong.shape
    stay, move = math.log(1 / (1 - share + share / n)), math.log(n / share)
    best = wrong[0].astype(float)  # by the last model: errors, and what its switches cost in errors
    for row in wrong[1:]:
        best = np.minimum(best + stay / rate, (best + move / rate).min()) + row
    assert spent(wrong, rate, share) <= best.min() + math.log(n) / rate + rate * length / 8 + 1e-9


def test_a_weight_that_fell_for_long_rises_again() -> None:
    wrong = np.repeat([[False, True], [True, False]], [2000, 2100], axis=0)
    assert np.exp(weights_along(wrong, 1.0, 0)[-1]) == pytest.approx([0, 1])


@pytest.mark.parametrize("data", [choices(), answers()], ids=["choices", "answers"])
@pytest.mark.parametrize("given", [Hedge(), Hedge(rate=0.3, share=0.0)])
def test_hedge_answers_as_written_out(data: Dataset, given: Hedge) -> None:
    def voted(said: Dataset, row: int, weights: np.ndarray) -> int:
        votes = {
            slot: weights[said.predictions[row] == slot].sum() for slot in said.predictions[row].tolist()
        }
        votes.pop(-1, None)
        if not votes:
            return -1
        top = [slot for slot in votes if votes[slot] > max(votes.values()) - 1e-9]
        # Of free answers, the one that the first model gave.
        return int(min(top) if data.kind == "choices" else top[0])

    def walk(part: Dataset, weights: np.ndarray, rate: float) -> tuple[list[int], np.ndarray]:
        said = []
        for row in range(len(part)):
            said.append(voted(part, row, weights))
            weights = weights * np.where(part.correct[row], 1, math.exp(-rate))
            weights = (1 - given.share) * weights / weights.sum() + given.share / len(weights)
        return said, weights

    even, train = np.full(len(data.models), 1 / len(data.models)), data.train
    n_right = {}
    for rate in [given.rate] if given.rate else LEARNING_RATES:
        said, _ = walk(train, even, rate)
        n_right[rate] = sum(a == b >= 0 for a, b in zip(said, train.labels.tolist(), strict=True))
    best = max(n_right, key=lambda rate: n_right[rate])
    said, _ = walk(data.test, walk(train, even, best)[1], best)
    decided = along(given, data)
    assert decided.predictions.tolist() == said
    assert decided.pools.all()


@st.composite
def small(draw: st.DrawFn) -> Dataset:
    n_docs, n = draw(st.integers(3, 30)), draw(st.integers(2, 4))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    probs = rng.dirichlet(np.ones(3), (n_docs, n))
    return make_dataset(probs, rng.integers(-1, 3, n_docs), n_train=draw(st.integers(1, n_docs - 1)))


@given(small(), st.integers(1, 12))
def test_sliding_best_by_brute_force(data: Dataset, window: int) -> None:
    decided = along(SlidingWindowLeader(window=window), data)
    n_train, right = len(data.train), (data.predictions == data.labels[:, None]).tolist()
    assert decided.rounds is not None
    for row in range(len(data.test)):
        t = n_train + row
        last = right[max(t - window, 0) : t]
        counts = [sum(each[m] for each in last) for m in range(len(data.models))]
        best = counts.index(max(counts))
        assert decided.predictions[row] == data.predictions[t, best]
        assert decided.rounds[row, best] == 1
    assert decided.pools.all()
    assert (decided.rounds == 1).all()  # nobody waits for those that are called after the answer


def test_directions_are_uncorrelated_and_of_one_length() -> None:
    data = topical(T=300)
    found = fit_directions(TFIDF, data.questions, 4)
    along = found.encode(data.questions)
    assert along.shape == (300, 4)
    assert np.cov(along.T, bias=True) == pytest.approx(np.eye(4), abs=1e-6)
    assert along.mean(axis=0) == pytest.approx(np.zeros(4), abs=1e-9)
    for nothing in (("",) * 5, ("same words",) * 5, ("one",)):
        assert fit_directions(TFIDF, nothing, 4).encode(["one", "two"]).shape == (2, 0)

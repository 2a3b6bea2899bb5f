"""Baselines that learn online from all models: regret bounds and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.datasets import answers, choices, make_dataset

from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Decisions, Method, OnlineLearner, decide_online
from rlfocal_rivals.experts import RATES, Hedge, SlidingBest, weights_along


def along(method: Method, data: Dataset) -> Decisions:
    [policy] = method.fit(data.train, [0])
    assert isinstance(policy, OnlineLearner)
    return decide_online(policy, data.test)


@st.composite
def losses(draw: st.DrawFn) -> np.ndarray:
    """(T, N) who was wrong, in stretches that each favour another model, as an adversary would have it."""
    n = draw(st.integers(2, 6))
    stretches = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(1, 60)), min_size=1, max_size=5))
    wrong = np.array([np.arange(n) != good for good, length in stretches for _ in range(length)])
    flips = np.random.default_rng(draw(st.integers(0, 99))).random(wrong.shape)
    return wrong ^ (flips < draw(st.sampled_from([0.0, 0.1, 0.4])))


def spent(wrong: np.ndarray, rate: float, share: float) -> float:
    """What a model drawn by the weights is expected to get wrong over all documents."""
    return float((np.exp(weights_along(wrong, rate, share)[:-1]) * wrong).sum())


@given(losses(), st.sampled_from([*RATES, 3.0]))
def test_hedge_keeps_to_its_regret_bound(wrong: np.ndarray, rate: float) -> None:
    """Σ w · l <= min_m Σ l_m + ln N / η + η T / 8 (Cesa-Bianchi and Lugosi 2006, theorem 2.2)."""
    length, n = wrong.shape
    assert spent(wrong, rate, 0) <= wrong.sum(axis=0).min() + math.log(n) / rate + rate * length / 8 + 1e-9


@given(losses(), st.sampled_from([*RATES, 3.0]), st.sampled_from([0.003, 0.01, 0.1]))
def test_fixed_share_keeps_its_bound_against_switching_experts(
    wrong: np.ndarray, rate: float, share: float
) -> None:
    """Against the best sequence of models, whose switches cost ln(N / α) / η each (Herbster and Warmuth)."""
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
    for rate in [given.rate] if given.rate else RATES:
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
    decided = along(SlidingBest(window=window), data)
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

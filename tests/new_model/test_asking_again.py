"""Which differences between old and new answers are more than noise."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from rlfocal.new_model.asking_again import Rechecker, plan_sizes
from rlfocal.upkeep.drift import FULL_PRECISION_LIMITS, LOW_PRECISION_LIMITS, shuffled_p_value


def by_brute_force(before: list[list[int]], now: list[list[int]]) -> float:
    """The share of all shuffles of each document's answers that differ by as much: p without + 1 / + 1."""
    from itertools import combinations

    def distance(old: list[int], new: list[int]) -> float:
        kinds = {*old, *new}
        return sum(abs(old.count(k) / len(old) - new.count(k) / len(new)) for k in kinds)

    observed = sum(distance(old, new) for old, new in zip(before, now, strict=True))
    each: list[list[float]] = []
    for old, new in zip(before, now, strict=True):
        pooled = [*old, *new]
        splits = combinations(range(len(pooled)), len(old))
        each.append(
            [
                distance([pooled[i] for i in one], [pooled[i] for i in set(range(len(pooled))) - {*one}])
                for one in splits
            ]
        )
    totals = [sum(one) for one in product(*each)]
    return float(np.mean([total >= observed - 1e-9 for total in totals]))


@pytest.mark.parametrize("seed", range(5))
def test_shuffles_are_those_of_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = [rng.integers(0, 3, 3).tolist() for _ in range(3)]
    now = [rng.integers(0, 3, 2).tolist() for _ in range(3)]
    counts = [[np.bincount(one, minlength=3).astype(np.float64) for one in side] for side in (before, now)]
    exact = by_brute_force(before, now)
    assert shuffled_p_value(zip(*counts, strict=True)) == pytest.approx(exact, abs=0.06)


def test_equal_answers_are_no_change_and_opposite_ones_are() -> None:
    one, other = np.array([8.0, 0.0]), np.array([0.0, 8.0])
    assert shuffled_p_value([(one, one)] * 10) == 1
    assert shuffled_p_value([(one, other)] * 10) == pytest.approx(0.001)
    assert shuffled_p_value([(np.zeros(2), one)]) == 1  # nothing to compare


def test_an_honest_model_is_rarely_called_changed() -> None:
    rng, called = np.random.default_rng(0), 0
    for _ in range(200):
        chances = rng.dirichlet([1, 1, 1], size=30)
        before, now = ([rng.multinomial(8, p).astype(np.float64) for p in chances] for _ in range(2))
        called += shuffled_p_value(zip(before, now, strict=True)) < 0.05
    assert called <= 20


def rows(n: int, moved: int, flipped: int) -> list[dict[str, object]]:
    return [
        {
            "n_choices": 2, "n_beyond": int(at < moved), "flipped": at < flipped, "given_before": None,
            "given_now": None, "shares_before": [0.0, -1.0], "shares_now": [0.0, -1.0],
        }
        for at in range(n)
    ]  # fmt: skip


def test_one_log_prob_beyond_the_limit_is_a_change_in_float32_but_noise_in_16_bits() -> None:
    full, low = (
        Rechecker("m-again1-00000001", "b", "m", limits, None)
        for limits in (FULL_PRECISION_LIMITS, LOW_PRECISION_LIMITS)
    )
    assert full.judge(rows(64, 1, 0), 3) == ("log-probs", "changed")
    assert full.judge(rows(64, 0, 5), 3) == (
        "log-probs",
        "unchanged",
    )  # predictions that no log-prob explains
    assert low.judge(rows(64, 1, 0), 3) == ("log-probs", "unchanged")
    assert low.judge(rows(64, 2, 0), 3) == ("log-probs", "unclear")
    assert low.judge(rows(64, 40, 0), 3) == ("log-probs", "changed")


def test_greedy_answers_may_flip_as_often_as_drift_allows() -> None:
    def greedy(n: int, flipped: int) -> list[dict[str, object]]:
        one = {"n_choices": None, "given_before": ["a"], "given_now": ["a"]}
        return [one | {"flipped": at < flipped} for at in range(n)]

    checker = Rechecker("m-again1-00000001", "b", "m", LOW_PRECISION_LIMITS, None)
    assert checker.judge(greedy(64, 3), 3) == ("answers", "unchanged")
    assert checker.judge(greedy(64, 20), 3) == ("answers", "changed")


def test_sizes_are_from_a_thousandth_to_a_hundredth() -> None:
    assert plan_sizes(14_042) == (16, 32, 64, 128, 141)
    assert plan_sizes(100_000) == (100, 200, 400, 800, 1000)
    assert plan_sizes(30) == (16, 30)
    assert plan_sizes(10) == (10,)

"""A promise about errors: thresholds against brute force, how often it holds, and its tests in SQL."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from rlfocal.base.errors import InputError
from rlfocal.statistics.selective import (
    GRID_STARTS,
    PROMISE_CONFIDENCE,
    make_promise,
    promised_threshold,
    share,
)
from warehouse import Warehouse


def drawn(n: int, seed: int, power: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Answers of probability p that are wrong with probability (1 - p) to the power of `power`."""
    rng = np.random.default_rng(seed)
    probability = rng.random(n)
    return probability, rng.random(n) > (1 - probability) ** power


@given(st.integers(1, 200), st.integers(0, 50), st.sampled_from([0.02, 0.1, 0.3]))
def test_what_is_promised_passed_its_exact_test(n: int, seed: int, target: float) -> None:
    probability, right = drawn(n, seed)
    probability[::7] = np.nan
    one = make_promise(probability, right, target)
    assert one.n == n
    if one.threshold is None:
        return
    above = probability >= one.threshold
    assert (one.answered, one.wrong) == (above.sum(), (above & ~right).sum())
    assert binom.cdf(one.wrong, one.answered, target) <= (1 - PROMISE_CONFIDENCE) / GRID_STARTS


@given(st.integers(0, 30))
def test_neither_the_order_nor_a_monotone_scale_matters(seed: int) -> None:
    probability, right = drawn(300, seed)
    order = np.random.default_rng(seed).permutation(300)
    one, other = make_promise(probability, right, 0.2), make_promise(probability[order], right[order], 0.2)
    assert one == other
    squared = make_promise(probability**2, right, 0.2)
    assert (squared.answered, squared.wrong) == (one.answered, one.wrong)


@pytest.mark.parametrize(("target", "power"), [(0.2, 1.0), (0.05, 3.0), (0.2, 3.0)])
def test_a_promise_holds_at_least_as_often_as_it_says(target: float, power: float) -> None:
    """Over 400 draws of train, the true error above the threshold t: (1 - t)^power / (power + 1)."""
    broken = made = 0
    for seed in range(400):
        one = make_promise(*drawn(1_000, seed, power), target)
        if one.threshold is not None:
            made += 1
            broken += (1 - one.threshold) ** power / (power + 1) > target
    assert made > 100
    assert broken <= 400 * (1 - PROMISE_CONFIDENCE)


def test_nothing_is_promised_by_too_few_documents() -> None:
    right = np.ones(20, dtype=np.bool_)
    assert make_promise(np.linspace(0.5, 1, 20), right, 0.02).threshold is None
    assert make_promise(np.full(20, np.nan), right, 0.5).threshold is None
    sure = make_promise(np.full(400, 0.5), np.ones(400, dtype=np.bool_), 0.02)
    assert (sure.threshold, sure.answered) == (0.5, 400)


def test_more_certainty_is_asked_of_a_lower_share() -> None:
    probability, right = drawn(2_000, 1)
    answered = [make_promise(probability, right, target).answered for target in (0.05, 0.1, 0.2, 0.4)]
    assert answered == sorted(answered)
    assert answered[0] < answered[-1]


def test_shares_are_read() -> None:
    assert share("5%") == share("0.05") == share(0.05) == 0.05
    for wrong in (5, float("nan"), "5", "0%", "x", "-1%", "100%", "nan", "1e-13%", "99.99999999999%"):
        with pytest.raises(InputError, match="share"):
            share(wrong)


def test_a_checkpoint_without_a_promise_says_how_to_make_one(tmp_path: Path) -> None:
    checkpoint = tmp_path / "seed-0.safetensors"
    with pytest.raises(InputError, match="--target-error 5%"):
        promised_threshold(checkpoint, 0.05)
    checkpoint.with_suffix(".promises.json").write_text('{"0.05": null, "0.1": 0.7}')
    with pytest.raises(InputError, match="too few"):
        promised_threshold(checkpoint, 0.05)
    assert promised_threshold(checkpoint, 0.1) == 0.7


@pytest.mark.parametrize("target", [0.01, 0.05, 0.2, 0.5])
def test_the_tail_in_sql_is_scipys(warehouse: Warehouse, target: float) -> None:
    for n in (0, 1, 7, 300, 14_000):
        for wrong in {0, min(1, n), n // 100, round(target * n), n // 3, n}:
            [(tail,)] = warehouse.rows("SELECT binomial_tail(?, ?, ?)", [wrong, n, target])
            assert tail == pytest.approx(binom.sf(wrong - 1, n, target), abs=1e-9)

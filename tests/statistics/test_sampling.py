"""Samples of documents: who is drawn, and that estimates and errors are those of all possible samples."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlfocal.statistics.sampling import Strata, StratifiedSample, stratify

INTERESTS = st.lists(st.floats(0.01, 10), min_size=1, max_size=60).map(np.array)
SMALL = Strata(stratum_of=np.array([0, 0, 0, 0, 1, 1, 1]), place=np.array([0, 1, 2, 3, 0, 1, 2]))
VALUES = np.array([1.0, 4.0, 2.0, -3.0, 10.0, 0.5, 7.0])


def every_sample(n_first: int, n_second: int) -> list[StratifiedSample]:
    """All samples of so many of each stratum of SMALL."""
    chosen = product(combinations(range(4), n_first), combinations(range(4, 7), n_second))
    return [StratifiedSample(SMALL, np.array([*one, *other])) for one, other in chosen]


@given(INTERESTS, st.integers(0, 2**32 - 1))
def test_a_larger_draw_has_all_documents_of_a_smaller_one(interest: np.ndarray, seed: int) -> None:
    strata = stratify(interest, seed)
    before: set[int] = set()
    for n in range(len(interest) + 1):
        drawn = set(strata.draw(n).tolist())
        assert len(drawn) == n
        assert before <= drawn
        before = drawn


@given(INTERESTS, st.data())
def test_strata_have_equally_many_as_far_as_there_are(interest: np.ndarray, data: st.DataObject) -> None:
    strata = stratify(interest, 0)
    counts = strata.counts(data.draw(st.integers(0, len(interest))))
    assert (counts <= strata.sizes).all()
    open_ones = counts[counts < strata.sizes]
    if len(open_ones):
        assert counts.max() - open_ones.min() <= 1


@given(INTERESTS)
def test_strata_are_of_like_interest_and_enough_documents(interest: np.ndarray) -> None:
    strata = stratify(interest, 0)
    tops = [interest[strata.stratum_of == stratum].max() for stratum in range(len(strata.sizes))]
    lows = [interest[strata.stratum_of == stratum].min() for stratum in range(len(strata.sizes))]
    assert all(top <= low for top, low in zip(tops, lows[1:], strict=False))
    assert strata.sizes.min() >= min(4, len(interest))
    drawn = strata.counts(strata.min_draw)
    assert (drawn >= np.minimum(2, strata.sizes)).all()


def test_strata_have_equal_shares_of_all_interest() -> None:
    interest = np.random.default_rng(0).random(1000) ** 3
    strata = stratify(interest, 0)
    shares = np.bincount(strata.stratum_of, interest) / interest.sum()
    assert shares == pytest.approx([1 / 12] * 12, abs=0.003)


def test_the_probability_of_a_document_is_how_often_it_is_drawn() -> None:
    interest = np.array([1.0] * 16 + [6.0] * 4)
    drawn = np.zeros(20)
    for seed in range(2000):
        drawn[stratify(interest, seed, 2).draw(8)] += 1
    expected = stratify(interest, 0, 2).probabilities(8)
    assert drawn / 2000 == pytest.approx(expected, abs=0.05)
    assert expected[-1] > 1.3 * expected[0]


@pytest.mark.parametrize("sizes", [(2, 2), (3, 2), (4, 3), (2, 3)])
def test_over_all_samples_the_mean_is_the_truth_and_the_variance_its_own(sizes: tuple[int, int]) -> None:
    found = [sample.estimate(VALUES[sample.rows]) for sample in every_sample(*sizes)]
    values = np.array([one.value for one in found])
    assert values.mean() == pytest.approx(VALUES.mean(), abs=1e-12)
    variances = np.array([one.stderr**2 for one in found])
    assert variances.mean() == pytest.approx(values.var(), abs=1e-12)


def test_a_sample_of_all_has_their_mean_and_no_error() -> None:
    sample = StratifiedSample(SMALL, np.arange(7))
    places = np.arange(7, dtype=np.float64)[:, None]
    assert sample.estimate(VALUES).value == pytest.approx(VALUES.mean())
    assert sample.estimate_by(VALUES, places).value == pytest.approx(VALUES.mean())
    assert sample.weights.tolist() == [1.0] * 7
    assert sample.estimate(VALUES).stderr == sample.estimate_by(VALUES, places).stderr == 0
    assert sample.estimate_rare(np.sign(VALUES), np.ones(7)).stderr == 0
    assert (sample.redraw(5) == 1).all()


def simulate(slope: float, seed: int) -> tuple[StratifiedSample, np.ndarray, np.ndarray]:
    """A sample of 120 of 1,000 documents, all values, and a feature that explains them with a slope."""
    rng = np.random.default_rng(seed)
    feature = rng.normal(size=1000)
    values = slope * feature + rng.normal(size=1000)
    strata = stratify(np.exp(feature), seed)
    return StratifiedSample(strata, strata.draw(120)), values, feature[:, None]


def test_features_lower_the_error_and_intervals_hold() -> None:
    hits, by_feature, plain = [], [], []
    for seed in range(300):
        sample, values, features = simulate(2.0, seed)
        one = sample.estimate_by(values[sample.rows], features)
        low, high = one.interval()
        hits.append(low <= values.mean() <= high)
        by_feature.append(one.value - values.mean())
        plain.append(sample.estimate(values[sample.rows]).value - values.mean())
    assert 0.91 <= np.mean(hits) <= 0.98
    assert np.std(by_feature) < 0.8 * np.std(plain)
    assert abs(np.mean(by_feature)) < 3 * np.std(by_feature) / np.sqrt(300)


def test_a_feature_that_says_nothing_shifts_nothing() -> None:
    errors = []
    for seed in range(300):
        sample, values, features = simulate(0.0, seed)
        errors.append(sample.estimate_by(values[sample.rows], features).value - values.mean())
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(300)


def test_many_features_and_few_documents_promise_nothing_that_is_not_there() -> None:
    hits = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        values, features = rng.normal(size=500), 3 * rng.normal(size=(500, 25))
        strata = stratify(np.ones(500), seed, n_strata=2)
        sample = StratifiedSample(strata, strata.draw(40))
        low, high = sample.estimate_by(values[sample.rows], features).interval()
        hits.append(low <= values.mean() <= high)
    assert np.mean(hits) >= 0.9


def test_bootstrap_samples_of_small_strata_vary_as_much_as_they_should() -> None:
    sample = StratifiedSample(SMALL, np.array([0, 2, 4, 6]))
    means, one = sample.redraw(20_000) @ VALUES[sample.rows] / 7, sample.estimate(VALUES[sample.rows])
    assert means.mean() == pytest.approx(one.value, abs=4 * one.stderr / np.sqrt(20_000))
    assert means.std() == pytest.approx(one.stderr, rel=0.03)


def test_rare_effects_that_were_not_seen_are_not_ruled_out() -> None:
    sample, _, _ = simulate(0.0, 1)
    nothing = np.zeros(120)
    unseen = sample.estimate_rare(nothing, np.zeros(1000))
    assert unseen.value == 0
    assert unseen.stderr > 0
    assert sample.estimate_rare(nothing, np.full(1000, 0.2)).stderr > 1.3 * unseen.stderr


def test_intervals_of_rare_effects_hold() -> None:
    hits = []
    for seed in range(300):
        sample, _, feature = simulate(0.0, seed)
        rng = np.random.default_rng(seed)
        chance = 0.2 * (np.abs(feature[:, 0]) < 0.5)
        effects = (rng.random(1000) < chance) * rng.choice([-1.0, 1.0], 1000)
        low, high = sample.estimate_rare(effects[sample.rows], chance).interval()
        hits.append(low <= effects.mean() <= high)
    assert np.mean(hits) >= 0.93


@pytest.mark.parametrize("share", [0.005, 0.01, 0.02, 0.05])
def test_intervals_of_rare_effects_that_nobody_guessed_hold(share: float) -> None:
    """1,000 samples of 100 documents, of strata that say nothing of the effects."""
    hits = []
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        strata = stratify(np.exp(rng.normal(size=2000)), seed)
        rows, effects = strata.draw(100), (rng.permutation(2000) < share * 2000).astype(np.float64)
        low, high = StratifiedSample(strata, rows).estimate_rare(effects[rows], np.zeros(2000)).interval()
        hits.append(low <= share <= high)
    assert np.mean(hits) >= 0.93

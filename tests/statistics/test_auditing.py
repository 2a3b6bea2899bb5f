"""Probabilities of wrong labels: calibrated where errors are known, and none where all labels are right."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.statistics import auditing
from rlfocal.statistics.auditing import (
    AUDIT_FOLDS,
    _draw_folds,
    cross_fit,
    find_order,
    fit_pool,
    label_noise_rates,
    true_slots,
    wrong_label_posterior,
)

ALL = np.ones(4, dtype=np.bool_)


@dataclass(frozen=True)
class World:
    """Models' log-probs of four choices, what is right, and labels of which some are wrong."""

    x: Floats
    truth: Ints
    labels: Ints
    tasks: Ints

    @property
    def exists(self) -> Bools:
        return np.ones((len(self.labels), 4), dtype=np.bool_)

    @property
    def slips(self) -> Floats:
        return label_noise_rates(self.exists, self.labels)

    @cached_property
    def pool(self) -> Floats:
        return cross_fit(self.x, self.exists, self.labels, self.slips, self.tasks, ALL)

    @cached_property
    def wrong(self) -> Floats:
        return wrong_label_posterior(self.pool, self.exists, self.labels, self.slips, self.tasks)


@cache
def world(seed: int, share: float, n: int = 3000) -> World:
    """Six models that err together: all see the same of a question, which leaves open what is right.

    `share`: of labels that are wrong, in two of five tasks more than in the others.
    """
    rng = np.random.default_rng(seed)
    tasks, seen = np.arange(n) % 5, rng.normal(size=(n, 4)) * 3.5
    truth = (seen + rng.gumbel(size=seen.shape)).argmax(axis=1)
    scores = seen[:, None] * rng.uniform(0.3, 1.5, 6)[:, None] + rng.normal(size=(n, 6, 4)) * 0.7
    x = scores - np.log(np.exp(scores).sum(axis=2, keepdims=True))
    is_wrong = rng.random(n) < share * np.where(tasks % 2, 1.5, 2 / 3)
    labels = np.where(is_wrong, (truth + rng.integers(1, 4, n)) % 4, truth)
    return World(x, truth, labels, tasks)


def naive(made: World) -> Floats:
    """As if the models were independent witnesses."""
    p = np.exp(made.x.sum(axis=1))
    p /= p.sum(axis=1, keepdims=True)
    of_label = p[np.arange(len(p)), made.labels]
    return np.asarray(0.01 * (1 - of_label) / 3 / (0.99 * of_label + 0.01 * (1 - of_label) / 3))


@pytest.mark.parametrize("share", [0.02, 0.1])
def test_probabilities_are_calibrated_though_models_err_together(share: float) -> None:
    made = [world(seed, share) for seed in range(3)]
    said = np.concatenate([one.wrong for one in made])
    is_wrong = np.concatenate([one.labels != one.truth for one in made])
    assert said.sum() == pytest.approx(is_wrong.sum(), rel=0.25)
    for low, high in ((0.05, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1.01)):
        here = (said >= low) & (said < high)
        error = np.sqrt(0.25 / here.sum())
        assert said[here].mean() == pytest.approx(is_wrong[here].mean(), abs=0.08 + 2 * error), (low, high)
    alone = np.concatenate([naive(one) for one in made])
    sure = alone > 0.9
    assert alone[sure].mean() - is_wrong[sure].mean() > 0.2  # the naive ones are not


def test_where_all_labels_are_right_next_to_none_is_named() -> None:
    said = np.concatenate([world(seed, 0.0).wrong for seed in range(3)])
    assert (said > 0.5).sum() <= 1
    assert said.sum() < 0.004 * len(said)


def test_more_is_expected_in_tasks_with_more_errors() -> None:
    made = world(0, 0.1)
    expected = np.bincount(made.tasks, made.wrong) / np.bincount(made.tasks)
    assert expected[[1, 3]].min() > expected[[0, 2, 4]].max()
    assert expected.mean() == pytest.approx((made.labels != made.truth).mean(), abs=0.02)


def test_no_document_is_judged_by_a_pool_that_saw_its_label() -> None:
    made = world(1, 0.05, 400)
    before = made.pool
    changed = made.labels.copy()
    changed[7] = (changed[7] + 1) % 4
    after = replace(made, labels=changed).pool
    np.testing.assert_allclose(after[7], before[7], rtol=1e-12)
    same_fold = _draw_folds(made.tasks) == _draw_folds(made.tasks)[7]
    np.testing.assert_allclose(after[same_fold], before[same_fold], rtol=1e-12)
    assert np.abs(after[~same_fold] - before[~same_fold]).max() > 0


@given(st.lists(st.integers(0, 4), min_size=AUDIT_FOLDS, max_size=60))
def test_folds_are_spread_over_every_task(tasks: list[int]) -> None:
    fold = _draw_folds(np.array(tasks))
    for task in set(tasks):
        sizes = np.bincount(fold[np.array(tasks) == task], minlength=AUDIT_FOLDS)
        assert sizes.max() - sizes.min() <= 1


def test_wrong_labels_do_not_blunt_the_pool() -> None:
    """Weights of a pool fitted on labels of which a tenth is wrong are those of right labels."""
    made = world(2, 0.1)
    right = fit_pool(made.x, made.exists, made.truth, made.slips, ALL)
    found = fit_pool(made.x, made.exists, made.labels, made.slips, ALL)
    assert found.weights.sum() == pytest.approx(right.weights.sum(), rel=0.15)


def test_no_other_pool_gives_the_labels_a_higher_likelihood() -> None:
    """Of labels of which some are wrong, by the definition; the share of wrong ones is taken at its best."""
    made = world(2, 0.1, 600)
    at = np.arange(600)

    def loss(weights: Floats, biases: Floats) -> float:
        of_label = auditing.LogLinearFit(weights, biases).probabilities(made.x, made.exists)[at, made.labels]
        rates = np.linspace(0.0, 0.4, 401)[:, None]
        log_likelihood = np.log((1 - rates) * of_label + rates * (1 - of_label) / 3).sum(axis=1).max()
        return float(auditing._WEIGHT_RIDGE / 2 * ((weights**2).sum() + (biases**2).sum()) - log_likelihood)

    w, b = fit_pool(made.x, made.exists, made.labels, made.slips, ALL)
    for step in (-0.05, 0.05):
        for i in range(6):
            assert loss(w + step * (np.arange(6) == i), b) > loss(w, b)
        for c in range(4):
            assert loss(w, b + step * (np.arange(4) == c)) > loss(w, b)


def test_scores_of_another_scale_in_each_task_get_pools_of_their_own() -> None:
    made = world(3, 0.02)
    scale = np.array([1.0, -0.5, 0.3, 2.0, -0.2])[made.tasks]
    scaled = replace(made, x=made.x * scale[:, None, None])
    is_wrong = made.labels != made.truth
    plain, apart = (is_wrong[np.argsort(-one.wrong)[:40]].sum() for one in (made, scaled))
    assert apart >= 0.8 * plain
    assert (made.truth == scaled.pool.argmax(axis=1)).mean() > 0.95 * (
        made.truth == made.pool.argmax(axis=1)
    ).mean()


@st.composite
def beliefs(draw: st.DrawFn) -> tuple[Floats, Bools, Ints, Ints]:
    """Distributions over two to four slots, labels and tasks."""
    n = draw(st.integers(2, 12))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    exists = np.arange(4) < rng.integers(2, 5, n)[:, None]
    p = np.where(exists, rng.dirichlet(np.full(4, 0.3), n) + 1e-9, 0.0)
    p[rng.random(n) < 0.2, 0] += 1e6  # beyond doubt
    p /= p.sum(axis=1, keepdims=True)
    labels = (rng.random(n) * exists.sum(axis=1)).astype(np.int64)
    return p, exists, labels, np.unique(rng.integers(0, 3, n), return_inverse=True)[1]


@given(beliefs())
def test_probabilities_and_posteriors_are_such(made: tuple[Floats, Bools, Ints, Ints]) -> None:
    p, exists, labels, tasks = made
    found = wrong_label_posterior(p, exists, labels, label_noise_rates(exists, labels), tasks)
    assert ((found >= 0) & (found <= 1 + 1e-9)).all()
    true = true_slots(p, labels, found)
    np.testing.assert_allclose(true.sum(axis=1), 1.0, atol=1e-6)
    assert (true[~exists] == 0).all()
    np.testing.assert_allclose(true[np.arange(len(p)), labels], 1 - found)


@given(beliefs())
def test_doubt_is_bayes_rule_over_all_that_tasks_may_have_in_common(
    made: tuple[Floats, Bools, Ints, Ints],
) -> None:
    """The posterior of every (common distributions, sharpness, rate), document by document."""
    p, exists, labels, tasks = made
    slips, n_tasks = label_noise_rates(exists, labels), int(tasks.max()) + 1
    sharpness, rates = auditing._SHARPNESS, auditing._NOISE_RATES
    right, wrong = np.zeros((2, len(labels), len(sharpness), len(rates)))
    for t, label in enumerate(labels):
        for s, log_factor in enumerate(sharpness):
            powers = np.where(exists[t], p[t], 0) ** np.exp(log_factor)
            of_label = powers[label] / powers.sum()
            right[t, s], wrong[t, s] = (1 - rates) * of_label, rates * slips[t] * (1 - of_label)
    of_task = np.array([np.log(right + wrong)[tasks == k].sum(axis=0) for k in range(n_tasks)])

    evidence, doubts = [], []
    for spread in auditing._SPREADS:
        for strength in auditing._BETA_STRENGTHS:
            for mean in auditing._BETA_MEANS:
                alike = stats.norm.pdf(sharpness, scale=spread)
                rate = stats.beta.logpdf(rates, mean * strength, (1 - mean) * strength) + np.log(
                    np.gradient(rates)
                )
                prior = np.log(alike / alike.sum())[:, None] + rate - logsumexp(rate)
                each = logsumexp(of_task + prior, axis=(1, 2))
                posterior = np.exp(of_task + prior - each[:, None, None])[tasks]
                evidence.append(each.sum())
                doubts.append((posterior * wrong / (right + wrong)).sum(axis=(1, 2)))
    shares = np.exp(np.array(evidence) - logsumexp(evidence))
    with patch.object(auditing, "_NEGLIGIBLE_POSTERIOR", 0.0):
        found = wrong_label_posterior(p, exists, labels, slips, tasks)
    np.testing.assert_allclose(found, shares @ np.array(doubts), rtol=1e-6)


@given(beliefs(), st.integers(0, 11))
def test_less_belief_in_a_label_makes_it_more_doubtful(
    made: tuple[Floats, Bools, Ints, Ints], at: int
) -> None:
    """Of two documents of a task with as many choices and the same label, the one less believed in."""
    pair = [at % len(made[0])] * 2
    p, exists, labels, tasks = made[0][pair], made[1][pair], made[2][pair], made[3][pair]
    rest = int(exists[0].sum()) - 1
    p[1] = np.where(exists[1], (1 - p[0, labels[0]] / 2) / rest, 0.0)
    p[1, labels[1]] = p[0, labels[0]] / 2
    found = wrong_label_posterior(p, exists, labels, label_noise_rates(exists, labels), np.zeros_like(tasks))
    assert found[1] >= found[0] - 1e-12


def test_wrong_answers_are_half_of_the_time_some_that_no_model_gave() -> None:
    exists = np.array([[True, True, True, True], [True, False, False, True], [False, False, False, True]])
    chances = [label_noise_rates(exists, np.full(3, slot), unnamed_slot=3)[:2].tolist() for slot in (0, 3)]
    assert chances == [[0.5 / 3, 0.5], [0.5, 1.0]]
    assert label_noise_rates(exists[:, :3] | True, np.zeros(3, dtype=np.int64)).tolist() == [0.5] * 3


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_labels_in_another_order_are_found(shift: int) -> None:
    made = world(4, 0.05, 150)
    wrong = (made.labels + shift) % 4
    order = find_order(made.x.mean(axis=1), made.exists, wrong)
    assert order is not None
    np.testing.assert_array_equal(order, made.labels)
    assert find_order(made.x.mean(axis=1), made.exists, made.labels) is None


def test_any_permutation_is_found_and_models_biases_are_none() -> None:
    made = world(5, 0.0, 300)
    mean_x, swapped = made.x.mean(axis=1), np.array([2, 0, 1, 3])[made.labels]
    order = find_order(mean_x, made.exists, swapped)
    assert order is not None
    np.testing.assert_array_equal(order, made.labels)
    biased = find_order(0.15 * mean_x + np.array([6.0, 0.0, 0.0, 0.0]), made.exists, swapped)
    assert biased is not None
    np.testing.assert_array_equal(biased, made.labels)
    noise = np.random.default_rng(0).normal(size=mean_x.shape) + np.array([3.0, 0.0, 0.0, 0.0])
    assert find_order(noise, made.exists, made.labels) is None  # they always say 0, and know nothing
    seldom = np.where(made.labels == 0, 0, 1)
    assert find_order(noise, made.exists, seldom) is None

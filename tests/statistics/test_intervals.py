"""Intervals over documents, tasks and seeds: literal oracles, coverage, p-values, Holm."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import bootstrap
from scipy.stats import t as student
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from rlfocal.base.errors import InputError
from rlfocal.statistics import intervals
from rlfocal.statistics.intervals import (
    Difference,
    holm,
    mean_over_tasks,
    paired_bootstrap,
    paired_counts,
    paired_over_tasks,
)

Floats = NDArray[np.float64]

TASKS = np.repeat(["a", "b", "c"], [12, 30, 108])


def _two_methods() -> tuple[Floats, Floats]:
    """Three seeds of one method and one of another, better and worse by task."""
    rng = np.random.default_rng(3)
    at = np.unique(TASKS, return_inverse=True)[1]
    ours = rng.random((3, 150)) < np.array([[0.1], [0.0], [-0.1]]) + np.array([0.9, 0.7, 0.5])[at]
    rival = rng.random((1, 150)) < np.array([0.5, 0.7, 0.6])[at]
    return ours.astype(float), rival.astype(float)


def _literal(statistic: Callable[[np.random.Generator], float], *of_seeds: Floats) -> tuple[float, float]:
    """The interval of draws of a statistic, with Student's t for each mean over seeds (K,)."""
    rng = np.random.default_rng(1)
    drawn = np.array([statistic(rng) for _ in range(4000)]).repeat(10)
    for x in of_seeds:
        if len(x) > 1:
            error = x.std(ddof=1) / len(x) ** 0.5
            drawn = drawn + error * student.rvs(len(x) - 1, size=len(drawn), random_state=rng)
    low, high = np.quantile(drawn.clip(-1, 1), [0.025, 0.975])
    return float(low), float(high)


def _seeds_over_tasks(hits: Floats, tasks: NDArray[np.generic]) -> Floats:
    """(K,) each seed's mean over tasks."""
    of_tasks = [hits[:, tasks == task].mean(axis=1) for task in np.unique(tasks)]
    return np.asarray(np.mean(of_tasks, axis=0))


def _documents(rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Documents of each task, drawn within it."""
    own = [np.flatnonzero(np.isin(TASKS, task)) for task in "abc"]
    return [rng.choice(documents, len(documents)) for documents in own]


def test_the_mean_over_tasks_draws_documents_within_tasks_and_seeds() -> None:
    ours, rival = _two_methods()

    def alone(rng: np.random.Generator) -> float:
        return float(np.mean([ours.mean(0)[own].mean() for own in _documents(rng)]))

    def paired(rng: np.random.Generator) -> float:
        difference = ours.mean(0) - rival[0]
        return float(np.mean([difference[own].mean() for own in _documents(rng)]))

    of_tasks = {id(x): np.mean([x[:, np.isin(TASKS, task)].mean() for task in "abc"]) for x in (ours, rival)}
    found, of_ours = mean_over_tasks(ours, TASKS), _seeds_over_tasks(ours, TASKS)
    assert found.mean == pytest.approx(of_tasks[id(ours)])
    assert (found.low, found.high) == pytest.approx(_literal(alone, of_ours), abs=0.02)
    difference = paired_over_tasks(ours, rival, TASKS)
    assert difference.mean == pytest.approx(of_tasks[id(ours)] - of_tasks[id(rival)])
    assert (difference.low, difference.high) == pytest.approx(_literal(paired, of_ours), abs=0.02)


def test_the_mean_over_drawn_tasks() -> None:
    """Tasks of 1 to 29 documents count the same, however often each is drawn."""
    rng = np.random.default_rng(6)
    tasks = np.repeat(np.arange(12), rng.integers(1, 30, 12))
    ours = (rng.random((3, len(tasks))) < rng.random(12)[tasks]).astype(float)
    rival = (rng.random((2, len(tasks))) < 0.5).astype(float)
    by_task = [
        np.stack([hits[:, tasks == task].mean(axis=1) for task in range(12)], 1) for hits in (ours, rival)
    ]

    def literal(rng: np.random.Generator) -> tuple[float, float]:
        drawn = rng.integers(0, 12, 12)
        one, other = (x.mean(axis=0)[drawn].mean() for x in by_task)
        return one, one - other

    seeds = [x.mean(axis=1) for x in by_task]
    alone = _literal(lambda rng: literal(rng)[0], seeds[0])
    paired = _literal(lambda rng: literal(rng)[1], *seeds)
    found = mean_over_tasks(ours, tasks, whole=True)
    assert found.mean == pytest.approx(by_task[0].mean())
    assert [found.low, found.high] == pytest.approx(alone, abs=0.015)
    difference = paired_over_tasks(ours, rival, tasks, whole=True)
    assert difference.mean == pytest.approx(by_task[0].mean() - by_task[1].mean())
    assert [difference.low, difference.high] == pytest.approx(paired, abs=0.015)
    # Within tasks nothing varies where all documents of a task are alike; between tasks it does.
    same = np.repeat([1.0, 0.0, 1.0, 1.0], 5)[None]
    four = np.repeat(np.arange(4), 5)
    within = mean_over_tasks(same, four)
    assert (within.low, within.mean, within.high) == (0.75, 0.75, 0.75)
    between = mean_over_tasks(same, four, whole=True)
    assert (between.low, between.high) == (0.25, 1.0)


def test_whole_tasks_are_drawn_with_all_their_documents() -> None:
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 30, 12)
    clusters = np.repeat(np.arange(12), sizes)
    one = (rng.random((2, len(clusters))) < rng.random(12)[clusters]).astype(float)
    other = (rng.random((1, len(clusters))) < 0.5).astype(float)

    def literal(rng: np.random.Generator) -> float:
        drawn = np.concatenate([np.flatnonzero(clusters == g) for g in rng.integers(0, 12, 12)])
        return float((one.mean(0) - other[0])[drawn].mean())

    found = paired_bootstrap(one, other, clusters=clusters)
    assert found.mean == pytest.approx(one.mean() - other.mean())
    assert (found.low, found.high) == pytest.approx(_literal(literal, one.mean(axis=1)), abs=0.02)


def test_one_task_and_tasks_of_one_document_are_the_plain_bootstrap() -> None:
    ours, rival = _two_methods()
    plain = paired_bootstrap(ours, rival, draws=500)
    assert paired_over_tasks(ours, rival, np.repeat(["a"], 150), draws=500) == plain
    assert paired_bootstrap(ours, rival, clusters=np.arange(150), draws=500) == plain


def test_a_seed_makes_all_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, rival = _two_methods()

    def all_of(seed: int) -> list[object]:
        return [
            paired_bootstrap(ours, rival, seed=seed, draws=300),
            paired_bootstrap(ours, rival, clusters=TASKS, seed=seed, draws=300),
            paired_over_tasks(ours, rival, TASKS, seed=seed, draws=300),
            mean_over_tasks(ours, TASKS, seed=seed, draws=300),
        ]

    first = all_of(4)
    assert all_of(4) == first
    assert all(one != other for one, other in zip(all_of(5), first, strict=True))
    monkeypatch.setattr(intervals, "BLOCK", 70)
    assert all_of(4) == first


def _answers(n_tasks: int) -> st.SearchStrategy[list[tuple[float, float, int]]]:
    right = st.sampled_from([0.0, 1.0])
    return st.lists(st.tuples(right, right, st.integers(0, n_tasks - 1)), min_size=1, max_size=30)


@given(_answers(4), st.integers(60, 200), st.integers(0, 9))
def test_a_p_value_is_small_where_the_interval_excludes_zero(
    answers: list[tuple[float, float, int]], draws: int, seed: int
) -> None:
    one, other, tasks = np.array(answers).T
    for found in (
        paired_bootstrap(one[None], other[None], seed=seed, draws=draws),
        paired_bootstrap(one[None], other[None], clusters=tasks.astype(int), seed=seed, draws=draws),
        paired_over_tasks(one[None], other[None], tasks.astype(int), seed=seed, draws=draws),
    ):
        assert (found.p_value < 0.05) == found.excludes_zero
        assert 2 / (draws + 1) <= found.p_value <= 1
    thirds = paired_over_tasks(np.vstack([one] * 3), one[None], tasks.astype(int), seed=seed, draws=draws)
    assert (thirds.p_value, thirds.low, thirds.high) == (1, 0, 0)
    swapped = paired_bootstrap(other[None], one[None], seed=seed, draws=draws)
    assert swapped.mean == pytest.approx(-paired_bootstrap(one[None], other[None], draws=draws).mean)


def test_a_p_value_is_twice_the_share_of_draws_beyond_zero() -> None:
    # 1 of 10 documents for `one`: no draw is below 0, and 0.9^10 of them are at 0.
    one, other = np.zeros((1, 10)), np.zeros((1, 10))
    one[0, 0] = 1
    assert paired_bootstrap(one, other, draws=50_000).p_value == pytest.approx(2 * 0.9**10, abs=0.01)
    one[0, :4] = 1
    assert paired_bootstrap(one, other, draws=50_000).p_value == pytest.approx(2 * 0.6**10, abs=0.002)
    assert paired_bootstrap(other, other, draws=99).p_value == 1
    one[:] = 1
    assert paired_bootstrap(one, other, draws=99) == Difference(1.0, 1.0, 1.0, 0.02)
    assert paired_bootstrap(other, one, draws=99) == Difference(-1.0, -1.0, -1.0, 0.02)


def _drawn(rng: np.random.Generator, only_one: Floats, only_other: Floats) -> tuple[Floats, Floats]:
    """(1, T) each, where both are right on 40 % of the documents beside those that one alone gets right."""
    u = rng.random(len(only_one))
    either = only_one + only_other
    both = (u >= either) & (u < either + 0.4)
    return ((u < only_one) | both)[None].astype(float), ((u >= only_one) & (u < either) | both)[None].astype(
        float
    )


@pytest.mark.slow
@pytest.mark.parametrize("tasks_are", ["none", "strata", "clusters"])
def test_intervals_cover_the_true_difference(tasks_are: str) -> None:
    """1,000 times: 400 documents, of which `one` alone gets 5 points more right than `other` alone."""
    rng = np.random.default_rng(11)
    strata = np.repeat(np.arange(4), [40, 80, 120, 160])
    clusters = np.repeat(np.arange(40), 10)
    covered, as_documents = 0, 0
    for seed in range(1000):
        if tasks_are == "none":
            found = paired_bootstrap(
                *_drawn(rng, np.full(400, 0.2), np.full(400, 0.15)), seed=seed, draws=500
            )
        elif tasks_are == "strata":
            gain = np.array([0.20, 0.10, 0.0, -0.10])[strata]
            found = paired_over_tasks(
                *_drawn(rng, 0.2 + gain / 2, 0.2 - gain / 2), strata, seed=seed, draws=500
            )
        else:
            gain = rng.normal(0.05, 0.15, 40).clip(-0.35, 0.45)[clusters]
            both = _drawn(rng, 0.25 + gain / 2, 0.25 - gain / 2)
            found = paired_bootstrap(*both, clusters=clusters, seed=seed, draws=500)
            wrongly = paired_bootstrap(*both, seed=seed, draws=500)
            as_documents += wrongly.low <= 0.05 <= wrongly.high
        covered += found.low <= 0.05 <= found.high
    assert 930 <= covered <= 970
    if tasks_are == "clusters":
        assert as_documents < 925


@pytest.mark.parametrize("n_seeds", [2, 3])
def test_intervals_of_few_seeds_cover_the_true_difference(n_seeds: int) -> None:
    """400 times: seeds whose accuracies differ by 8 points, on 300 documents."""
    rng, covered = np.random.default_rng(n_seeds), 0
    for seed in range(400):
        luck = rng.random((1, 300))  # of a document, for all seeds
        one = (luck < rng.normal(0.65, 0.08, (n_seeds, 1))).astype(float)
        other = (rng.random((1, 300)) < 0.6).astype(float)
        found = paired_bootstrap(one, other, seed=seed, draws=500)
        covered += found.low <= 0.05 <= found.high
    assert covered / 400 >= 0.93


@pytest.mark.parametrize("n", [1, 2, 7, 30])
def test_holm_is_statsmodels(n: int) -> None:
    raw = np.random.default_rng(n).beta(0.5, 5, n).round(2)  # with ties
    assert holm(raw) == pytest.approx(multipletests(raw, method="holm")[1])


def test_holm_by_hand() -> None:
    assert holm(np.array([0.04, 0.01, 0.03])) == pytest.approx([0.06, 0.03, 0.06])
    assert holm(np.array([])).tolist() == []
    for wrong in (-0.1, 1.1, np.nan):
        with pytest.raises(InputError, match="each must be from 0 to 1"):
            holm(np.array([0.5, wrong]))


def test_hits_that_do_not_fit() -> None:
    two, three, tasks = np.ones((1, 2)), np.ones((1, 3)), np.array(["a", "b"])
    figures: list[Callable[[], object]] = [
        lambda: paired_bootstrap(two, three),
        lambda: paired_over_tasks(three, three, tasks),
        lambda: mean_over_tasks(two[0], tasks),
        lambda: mean_over_tasks(two[:0], tasks),
        lambda: paired_bootstrap(two, two * np.nan),
    ]
    for figure in figures:
        with pytest.raises(InputError, match="hits"):
            figure()


def _hits(n_seeds: int) -> st.SearchStrategy[list[list[float]]]:
    column = st.lists(st.sampled_from([0.0, 1.0]), min_size=n_seeds, max_size=n_seeds)
    return st.lists(column, min_size=1, max_size=40)


@given(st.integers(2, 4).flatmap(_hits))
def test_the_bootstrap_interval_stays_in_range_and_repeats(columns: list[list[float]]) -> None:
    hits = np.array(columns).T
    one, other = hits[:-1], hits[-1:]
    found = paired_bootstrap(one, other, draws=500)
    assert found == paired_bootstrap(one, other, draws=500)
    assert found.mean == pytest.approx(one.mean() - other.mean())
    differences = one - other
    least, most = (-1, 1) if len(one) > 1 else (differences.min(), differences.max())
    assert least - 1e-9 <= found.low <= found.high <= most + 1e-9
    assert paired_bootstrap(np.vstack([other] * 3), other, draws=500).excludes_zero is False


def test_the_interval_holds_documents_and_seeds_together() -> None:
    rng = np.random.default_rng(3)
    ours = (rng.random((3, 200)) < np.array([[0.9], [0.7], [0.5]])).astype(float)
    rival = (rng.random((1, 200)) < 0.55).astype(float)
    found = paired_bootstrap(ours, rival)

    def literal(rng: np.random.Generator) -> float:
        difference = ours.mean(0) - rival[0]
        return float(difference[rng.integers(0, 200, 200)].mean())

    assert (found.low, found.high) == pytest.approx(_literal(literal, ours.mean(axis=1)), abs=0.03)
    over_documents = paired_bootstrap(ours.mean(0, keepdims=True), rival)
    assert over_documents.excludes_zero
    assert not found.excludes_zero


@pytest.mark.parametrize("shares", [(0.8, 0.7), (0.5, 0.5), (0.99, 0.9)])
def test_the_interval_of_one_seed_is_scipys(shares: tuple[float, float]) -> None:
    rng = np.random.default_rng(5)
    both = (rng.random((2, 400)) < np.array(shares)[:, None]).astype(float)
    found = paired_bootstrap(both[:1], both[1:])

    def difference(one: NDArray[np.float64], other: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        return np.asarray(one.mean(axis=axis) - other.mean(axis=axis))

    resampled = bootstrap(
        tuple(both), difference, paired=True, method="percentile", n_resamples=9_999, rng=rng
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx(tuple(resampled), abs=0.004)


@given(
    kept=st.tuples(st.integers(0, 300), st.integers(0, 300)),
    gained=st.integers(0, 60),
    lost=st.integers(0, 60),
)
def test_paired_counts_against_the_table(kept: tuple[int, int], gained: int, lost: int) -> None:
    n = sum(kept) + gained + lost
    if n == 0:
        return
    found = paired_counts(n, gained, lost)
    cells = np.array([kept[0], gained, lost, kept[1]]) + 0.5
    p = cells / cells.sum()
    sd = np.sqrt((p[1] + p[2] - (p[1] - p[2]) ** 2) / cells.sum())
    assert found.mean == pytest.approx((gained - lost) / n)
    assert found.low == pytest.approx(max(-1, p[1] - p[2] - 1.959964 * sd), abs=1e-6)
    assert found.high == pytest.approx(min(1, p[1] - p[2] + 1.959964 * sd), abs=1e-6)
    expected = mcnemar([[kept[0], gained], [lost, kept[1]]], exact=True).pvalue
    assert found.p_value == pytest.approx(expected if gained + lost else 1.0)
    mirrored = paired_counts(n, lost, gained)
    assert (-mirrored.high, -mirrored.low) == pytest.approx((found.low, found.high))

"""Intervals over documents, tasks and seeds: literal oracles, coverage, p-values, Holm."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import t as student
from scipy.stats import ttest_1samp
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from benchmarks.coverage import SYNTHETIC_CASES, cover
from rlfocal.base.errors import InputError
from rlfocal.statistics.intervals import (
    Difference,
    documents_needed,
    holm,
    mean_over_tasks,
    paired_by_seed,
    paired_counts,
    paired_difference,
    paired_over_tasks,
)

Floats = NDArray[np.float64]


TASKS = np.repeat(["a", "b", "c"], [12, 30, 108])
NUMBERS = np.repeat(np.arange(12), [6, 7, 8, 9, 10, 11, 12, 13, 14, 18, 20, 22])


def _two_methods(n: int = 150, seeds: tuple[int, int] = (3, 1)) -> tuple[Floats, Floats]:
    """Seeds of one method and of another, right on a document by luck that all share."""
    rng = np.random.default_rng(3)
    luck = rng.random(n)
    ours, rival = (
        (luck * 0.8 + 0.2 * rng.random((k, n)) < rng.normal(p, 0.05, (k, 1))).astype(float)
        for k, p in zip(seeds, (0.7, 0.6), strict=True)
    )
    return ours, rival


def _middle(draws: Floats) -> tuple[float, float]:
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(low), float(high)


def test_one_seed_over_documents_is_scipys_paired_t_interval() -> None:
    one, other = _two_methods(150, (1, 1))
    found = paired_difference(one, other)
    expected = ttest_1samp((one - other)[0], 0)
    interval = expected.confidence_interval()
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=2e-3)
    assert np.log(found.p_value) == pytest.approx(np.log(expected.pvalue), rel=0.05)
    assert found.mean == pytest.approx((found.low + found.high) / 2)


@pytest.mark.parametrize("way", ["clusters", "within", "whole"])
def test_one_seed_over_tasks_is_the_literal_bootstrap(way: str) -> None:
    """Each way against draws of what varies, made wider by Student's t and the bootstrap's (n - 1)/n."""
    rng = np.random.default_rng(5)
    ours, rival = ((rng.random((1, 150)) < rng.random(12)[NUMBERS]).astype(float) for _ in range(2))
    own = [np.flatnonzero(task == NUMBERS) for task in range(12)]
    apart = (ours - rival)[0]
    draws = []
    for _ in range(4000):
        if way == "within":
            draws.append(np.mean([apart[rng.choice(rows, len(rows))].mean() for rows in own]))
            continue
        drawn = [own[task] for task in rng.integers(0, 12, 12)]
        whole = [apart[rows].mean() for rows in drawn]
        draws.append(np.mean(whole) if way == "whole" else apart[np.concatenate(drawn)].mean())
    if way == "clusters":
        found = paired_difference(ours, rival, clusters=NUMBERS)
        assert found.mean == pytest.approx(apart.mean())
    else:
        found = paired_over_tasks(ours, rival, NUMBERS, whole=way == "whole")
        assert found.mean == pytest.approx(np.mean([apart[rows].mean() for rows in own]))
    low, high = _middle(np.array(draws))
    wider = student.ppf(0.975, 11) / 1.96 * np.sqrt(12 / 11) if way != "within" else 1.04
    assert found.high - found.low == pytest.approx((high - low) * wider, rel=0.08)


def test_the_mean_of_one_method_is_its_difference_to_nothing() -> None:
    ours, _ = _two_methods()
    found, above = mean_over_tasks(ours, TASKS), paired_over_tasks(ours, np.zeros((1, 150)), TASKS)
    assert (found.mean, found.low, found.high) == (above.mean, above.low, above.high)
    assert mean_over_tasks(np.ones((1, 6)), np.arange(6)).high == 1


def test_one_task_and_tasks_of_one_document_are_documents() -> None:
    ours, rival = _two_methods()
    plain = paired_difference(ours, rival)
    for found in (
        paired_over_tasks(ours, rival, np.repeat(["a"], 150)),
        paired_difference(ours, rival, clusters=np.arange(150)),
    ):
        assert [found.low, found.high, found.p_value] == pytest.approx(
            [plain.low, plain.high, plain.p_value], rel=1e-9
        )


def test_what_a_single_document_or_task_says_is_nothing() -> None:
    one, other = np.ones((1, 4)), np.zeros((1, 4))
    for found in (
        paired_difference(one[:, :1], other[:, :1]),
        paired_difference(one, other, clusters=np.zeros(4, dtype=int)),
        paired_over_tasks(one, other, np.arange(4)),
    ):
        assert (found.low, found.mean, found.high, found.p_value) == (0 - 1, 1, 1, 1)


def test_documents_that_all_say_the_same_do_not_make_certain() -> None:
    same = np.ones((3, 400))
    found = paired_difference(same, same[:1])
    assert (found.mean, found.p_value) == (0, 1)
    assert -found.low == found.high == pytest.approx(1.96 / 400, rel=0.01)


def _answers(n_tasks: int) -> st.SearchStrategy[list[tuple[float, float, float, int]]]:
    right = st.sampled_from([0.0, 1.0])
    return st.lists(st.tuples(right, right, right, st.integers(0, n_tasks - 1)), min_size=1, max_size=30)


@given(_answers(4))
def test_the_ways_agree_with_themselves(answers: list[tuple[float, float, float, int]]) -> None:
    """p-values and intervals, swapped methods, permuted documents; and all stays within what can be."""
    one, second, other, tasks = np.array(answers).T
    both, other, of = np.stack([one, second]), other[None], tasks.astype(int)
    order = np.random.default_rng(0).permutation(len(one))
    ways: list[Callable[..., Difference]] = [
        lambda a, b, of: paired_difference(a, b),
        lambda a, b, of: paired_difference(a, b, clusters=of),
        lambda a, b, of: paired_over_tasks(a, b, of),
        lambda a, b, of: paired_over_tasks(a, b, of, whole=True),
    ]
    for way in ways:
        found = way(both, other, of)
        assert (found.p_value < 0.05) == (found.low > 0 or found.high < 0)
        assert -1 <= found.low <= found.mean <= found.high <= 1
        swapped = way(other, both, of)
        assert (swapped.low, swapped.high) == pytest.approx((-found.high, -found.low))
        permuted = way(both[::-1, order], other[:, order], of[order])
        assert (permuted.low, permuted.high) == pytest.approx((found.low, found.high))


def test_seeds_that_do_not_differ_count_as_one() -> None:
    ours, rival = _two_methods(600, (1, 1))
    one = paired_difference(ours, rival)
    found = paired_difference(np.repeat(ours, 4, axis=0), rival)
    assert (found.low, found.high, found.p_value) == pytest.approx((one.low, one.high, one.p_value))


def test_seeds_that_differ_by_far_more_than_documents_are_students_t() -> None:
    rng = np.random.default_rng(0)
    ours = (np.linspace(0, 1, 60_000)[None] < rng.uniform(0.2, 0.8, (5, 1))).astype(float)
    found, seeds = paired_difference(ours, np.zeros((1, 60_000))), ours.mean(axis=1)
    reach = student.ppf(0.975, 4) * seeds.std(ddof=1) / np.sqrt(5)
    assert found.high - found.mean == pytest.approx(reach, rel=1e-3)
    p_value = 2 * student.sf(seeds.mean() / (seeds.std(ddof=1) / np.sqrt(5)), 4)
    assert found.p_value == pytest.approx(p_value, rel=0.02)


@pytest.mark.parametrize("n_seeds", [1, 2, 3, 5, 10])
def test_intervals_cover_the_truth(n_seeds: int) -> None:
    """The benchmark's own simulation, of fewer draws: within three standard errors of its bounds."""
    for case in SYNTHETIC_CASES:
        covered = cover(n_seeds, case, draws=300, seed=n_seeds)
        assert 0.94 - 0.041 <= covered.share <= 0.965 + 0.032


@pytest.mark.parametrize("seeds", [(1, 1), (3, 1)])
def test_as_many_documents_as_needed_make_an_interval_that_narrow(seeds: tuple[int, int]) -> None:
    ours, rival = _two_methods(400, seeds)
    now = paired_difference(ours, rival)
    least = np.sqrt(((now.high - now.low) / 2) ** 2 * 0.7)  # what seeds alone leave open is less

    def half_width(n: int) -> float:
        times = -(-n // 400)
        found = paired_difference(np.tile(ours, times)[:, :n], np.tile(rival, times)[:, :n])
        return (found.high - found.low) / 2

    needed = documents_needed(ours, rival, float(least))
    assert needed is not None
    assert needed > 400
    assert half_width(2 * needed) < least < half_width(int(0.7 * needed))
    assert documents_needed(ours, rival, now.high - now.low) < 400  # type: ignore[operator]


def test_no_number_of_documents_narrows_what_seeds_leave_open() -> None:
    ours = np.repeat([[1.0], [0.0], [1.0]], 50, axis=1)
    assert documents_needed(ours, np.ones((1, 50)), 0.015) is None


@pytest.mark.parametrize("n", [1, 2, 7, 30])
def test_holm_is_statsmodels(n: int) -> None:
    raw = np.random.default_rng(n).beta(0.5, 5, n).round(2)  # with ties
    assert holm(raw) == pytest.approx(multipletests(raw, method="holm")[1])


def test_what_a_seed_does_to_both_is_no_part_of_a_difference_paired_by_seed() -> None:
    rng = np.random.default_rng(2)
    luck, alike = rng.uniform(0.3, 0.7, (5, 1)), rng.random((5, 2_000))
    ours, rival = (alike < luck + 0.03).astype(float), (alike < luck).astype(float)
    paired, unpaired = paired_by_seed(ours, rival), paired_difference(ours, rival)
    assert paired.mean == pytest.approx(unpaired.mean)
    assert paired.low < 0.03 < paired.high
    assert (paired.high - paired.low) < 0.1 * (unpaired.high - unpaired.low)
    moved = paired_by_seed(np.roll(ours, 1, axis=0), rival)
    assert moved.high - moved.low > 5 * (paired.high - paired.low)
    alone = [paired_by_seed(ours[:1], rival[:1]), paired_difference(ours[:1], rival[:1])]
    assert alone[0].low == pytest.approx(alone[1].low)
    assert alone[0].high == pytest.approx(alone[1].high)


def test_holm_by_hand() -> None:
    assert holm(np.array([0.04, 0.01, 0.03])) == pytest.approx([0.06, 0.03, 0.06])
    assert holm(np.array([])).tolist() == []
    for wrong in (-0.1, 1.1, np.nan):
        with pytest.raises(InputError, match="each must be from 0 to 1"):
            holm(np.array([0.5, wrong]))


def test_hits_that_do_not_fit() -> None:
    two, three, tasks = np.ones((1, 2)), np.ones((1, 3)), np.array(["a", "b"])
    figures: list[Callable[[], object]] = [
        lambda: paired_difference(two, three),
        lambda: paired_by_seed(np.ones((2, 3)), three),
        lambda: paired_over_tasks(three, three, tasks),
        lambda: mean_over_tasks(two[0], tasks),
        lambda: mean_over_tasks(two[:0], tasks),
        lambda: paired_difference(two, two * np.nan),
    ]
    for figure in figures:
        with pytest.raises(InputError, match=r"hits|seeds"):
            figure()


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

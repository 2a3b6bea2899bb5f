"""A selector by neighbours: by text, by what models said, by both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.datasets import make_dataset, make_logits, sampled
from support.rival_data import CHOICES, accuracy, fitted, telling, within, worded

from rlfocal.base.errors import InputError
from rlfocal.data.calls import Calls
from rlfocal.data.policy import Budget, decide
from rlfocal.methods.knn import (
    TEXT_WEIGHT,
    Neighbours,
    closeness,
    compare_with_others,
    cosines,
    find_nearest,
    find_similar,
    fit_likeness,
    local_mean,
)
from rlfocal.methods.outputs_knn import OutputsKnn, _choose_actions


@pytest.mark.parametrize("name", ["outputs_knn", "des:ola"])
def test_a_wrong_neighbourhood_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="unknown neighbours 'txt'"):
        fitted(name, CHOICES.train, neighbours="txt")


def test_likeness_by_hand() -> None:
    data = make_dataset(np.array([[[0.36, 0.64], [0.5, 0.5]]] * 2), np.zeros(2, dtype=np.int64), n_train=1)
    data = replace(data, questions=("red red", "red"))
    outputs = fit_likeness("outputs", "tfidf", data)
    assert outputs.vectors(data, [0])[0] == pytest.approx([0.6, 0.8])
    assert outputs.vectors(data, [0, 1])[0] == pytest.approx(np.sqrt([0.18, 0.32, 0.25, 0.25]))
    text, both = fit_likeness("text", "tfidf", data), fit_likeness("both", "tfidf", data)
    assert (both.vectors(data, [0])[:, 2:] == TEXT_WEIGHT * text.vectors(data, [0])).all()
    assert both.vectors(data, [0])[:, :2] == pytest.approx(outputs.vectors(data, [0]))
    wide = replace(data, probs=np.pad(data.probs, ((0, 0), (0, 0), (0, 3))))
    assert outputs.vectors(wide, [0, 1]) == pytest.approx(outputs.vectors(data, [0, 1]))
    narrow = replace(data, probs=data.probs[..., :1])
    assert outputs.vectors(narrow, [0])[0] == pytest.approx([0.6, 0.0])


def test_local_means_are_over_the_nearest() -> None:
    values = np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    found = Neighbours(np.array([[0, 2, 1], [1, 2, 0]]), np.ones((2, 3)))
    assert local_mean(found, values, 2).tolist() == [[1.0, 0.5], [0.5, 0.5]]
    nobody = Neighbours(np.empty((2, 0), dtype=np.int64), np.empty((2, 0)))
    assert local_mean(nobody, values, 2) == pytest.approx(np.array([[2 / 3, 1 / 3]] * 2))
    line = np.arange(4, dtype=np.float64)[:, None]
    assert find_similar(line, line, 2, excludes_self=True).positions.tolist() == [
        [1, 2],
        [0, 2],
        [1, 3],
        [2, 1],
    ]


def test_a_selector_by_text_asks_whom_the_text_names() -> None:
    data = worded()
    by_text = decide(fitted("outputs_knn", data.train, neighbours="text"), data.test)
    assert accuracy(data.test, by_text) >= 0.98
    assert by_text.pools[:, 0].all()
    assert by_text.pools.sum(axis=1).mean() == pytest.approx(1.5, abs=0.06)
    # By m00's outputs it learns only that somebody else must be asked.
    by_outputs = decide(fitted("outputs_knn", data.train, neighbours="outputs"), data.test)
    assert accuracy(data.test, by_outputs) == pytest.approx(0.75, abs=0.06)
    tuned = decide(fitted("outputs_knn", data.train), data.test)
    assert accuracy(data.test, tuned) >= 0.98


def test_a_selector_by_outputs_asks_where_the_first_is_unsure() -> None:
    data = telling(share=0.6)
    policy = fitted("outputs_knn", data.train)
    decided = decide(policy, data.test)
    assert accuracy(data.test, decided) >= data.test.correct[:, :2].any(axis=1).mean() - 0.02
    assert decided.pools.sum(axis=1).mean() == pytest.approx(1.4, abs=0.06)
    assert decided.rounds is not None
    assert decided.rounds.max() == 2
    one = within(policy, Budget(1))
    assert one is not None
    assert (decide(one, data.test).pools.sum(axis=1) == 1).all()


def test_a_selectors_calls_rise_with_its_budget() -> None:
    data = make_logits(9, T=2000, N=4)
    policy = fitted("outputs_knn", data.train)
    for budget in (1.1, 1.2, 1.3):
        kept = within(policy, Budget(budget))
        assert kept is not None
        # A little less than the budget, as many documents have the same gain.
        assert budget - 0.1 < decide(kept, data.test).pools.sum(axis=1).mean() < budget + 0.03


def test_a_selector_finds_by_agreement_among_free_answers() -> None:
    """Where m00's passes are split, m01 knows; else m00 does."""
    agreed, split = ("aaa", "bbb"), ("abb", "ccc")
    data = sampled(*[agreed, split] * 60, gold=["a", "c"] * 60)
    decided = decide(fitted("outputs_knn", data.train), data.test)
    assert accuracy(data.test, decided) == 1.0
    assert decided.pools.sum(axis=1).tolist() == [1, 2] * 30


def test_dearer_models_are_asked_where_they_help_most() -> None:
    values = np.array([[0.5, 0.7, 0.75], [0.5, 0.5, 0.9], [0.5, 0.5, 0.5]])
    assert _choose_actions(values, None).tolist() == [2, 2, 0]
    assert _choose_actions(values, np.array([0.0, 0.1, 0.2])).tolist() == [1, 2, 0]
    assert _choose_actions(values, np.array([0.0, 0.3, np.inf])).tolist() == [0, 0, 0]
    data = replace(make_logits(9, T=600, N=4), prices=np.array([1.0, 1.0, 5.0, 2.0]))
    [policy] = OutputsKnn().fit(data.train, [0])
    assert policy.probes == (3,)
    partly = replace(policy, prices=np.array([1.0, 1.0, np.nan, 2.0]))
    kept = partly.hold_to_budget(Budget(100.0, "cents"))
    assert kept is not None
    assert not decide(kept, data.test).pools[:, 2].any()


def test_a_train_document_is_no_neighbour_of_its_own() -> None:
    data = make_logits(10, T=60, N=3)
    [policy] = OutputsKnn("outputs").fit(data.train, [0])
    said = Calls(data.train).call(np.arange(3) == policy.probes[0])
    vectors = policy.value.encoder.vectors(said, policy.probes)
    at = int(np.argmin(np.abs(vectors - vectors[7]).sum(axis=1) + 9 * (np.arange(30) == 7)))
    assert at != 7
    others = np.argsort(((vectors - vectors[7]) ** 2).sum(axis=1).round(9), kind="stable")
    nearest = [i for i in others if i != 7][: policy.value.k]
    assert policy.value.leave_one_out[7] == pytest.approx(policy.value.right[nearest].mean(axis=0))


# Neighbours against a literal reading: sort every train document by its similarity


def cosine(a: list[int], b: list[int]) -> float:
    lengths = np.linalg.norm(a) * np.linalg.norm(b)
    return float(np.dot(a, b) / lengths) if lengths else 0.0


def close(a: list[int], b: list[int]) -> float:
    return float(1 / (1 + np.linalg.norm(np.subtract(a, b))))


vectors = st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 2)).map(list), min_size=1, max_size=9)


@given(vectors, vectors, st.integers(1, 12), st.integers(1, 4), st.booleans())
def test_neighbours_are_the_most_similar_and_of_equals_the_first(
    train: list[list[int]], test: list[list[int]], k: int, block: int, by_cosine: bool
) -> None:
    similarities, alike = (cosines, cosine) if by_cosine else (closeness, close)
    known, asked = np.array(train, dtype=np.float64), np.array(test, dtype=np.float64)
    found = find_nearest(similarities(known, asked, block), k)
    for row, vector in enumerate(test):
        scores = [round(alike(vector, one), 9) for one in train]
        expected = sorted(range(len(train)), key=lambda i: (-scores[i], i))[:k]
        assert found.positions[row].tolist() == expected
        assert found.similarity[row] == pytest.approx([scores[i] for i in expected], abs=1e-8)
    among = find_nearest(similarities(known, known, block), k, excludes_self=True)
    for row, vector in enumerate(train):
        scores = [round(alike(vector, one), 9) for one in train]
        others = sorted(set(range(len(train))) - {row}, key=lambda i: (-scores[i], i))[:k]
        assert among.positions[row].tolist() == others


def test_a_text_without_known_words_has_no_neighbours() -> None:
    train = np.array([[1.0, 0.0], [0.0, 0.0]])
    found = find_nearest(cosines(train, np.array([[2.0, 1.0], [0.0, 0.0], [0.0, 1.0]])), 2)
    assert found.is_similar.tolist() == [True, False, False]


def test_no_document_is_like_itself() -> None:
    train = np.eye(3)
    [(_, left)] = compare_with_others(cosines(train, train))
    assert (np.isneginf(left) == np.eye(3, dtype=np.bool_)).all()
    assert len(find_nearest(cosines(train, train[:0]), 2).positions) == 0


def test_vectors_of_one_direction_tie_in_any_block() -> None:
    rng = np.random.default_rng(0)
    lengths, vectors = rng.random(40)[:, None] + 0.1, rng.normal(size=(9, 128))
    for vector in vectors:
        found = find_nearest(cosines(lengths * vector, vectors + vector, block=4), 5)
        assert (found.positions == np.arange(5)).all()

"""Neighbours against a literal reading: sort every train document by its similarity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlfocal.methods.neighbours import closeness, cosines, nearest, without_itself


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
    found = nearest(similarities(known, asked, block), k)
    for row, vector in enumerate(test):
        scores = [round(alike(vector, one), 9) for one in train]
        expected = sorted(range(len(train)), key=lambda i: (-scores[i], i))[:k]
        assert found.at[row].tolist() == expected
        assert found.similarity[row] == pytest.approx([scores[i] for i in expected], abs=1e-8)
    among = nearest(similarities(known, known, block), k, others=True)
    for row, vector in enumerate(train):
        scores = [round(alike(vector, one), 9) for one in train]
        others = sorted(set(range(len(train))) - {row}, key=lambda i: (-scores[i], i))[:k]
        assert among.at[row].tolist() == others


def test_a_text_without_known_words_has_no_neighbours() -> None:
    train = np.array([[1.0, 0.0], [0.0, 0.0]])
    found = nearest(cosines(train, np.array([[2.0, 1.0], [0.0, 0.0], [0.0, 1.0]])), 2)
    assert found.known.tolist() == [True, False, False]


def test_no_document_is_like_itself() -> None:
    train = np.eye(3)
    [(_, left)] = without_itself(cosines(train, train))
    assert (np.isneginf(left) == np.eye(3, dtype=np.bool_)).all()
    assert len(nearest(cosines(train, train[:0]), 2).at) == 0


def test_vectors_of_one_direction_tie_in_any_block() -> None:
    rng = np.random.default_rng(0)
    lengths, vectors = rng.random(40)[:, None] + 0.1, rng.normal(size=(9, 128))
    for vector in vectors:
        found = nearest(cosines(lengths * vector, vectors + vector, block=4), 5)
        assert (found.at == np.arange(5)).all()

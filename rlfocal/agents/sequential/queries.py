"""What a question looks like before any model is asked: numbers about its surface, and its words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.utils.extmath import randomized_svd

Floats = NDArray[np.float64]

N_SURFACE = 13
_BUCKETS = 1 << 12
_NEGATIONS = re.compile(r"\bnot?\b|n't\b")


class QueryFeatures(NamedTuple):
    """How questions become numbers: fitted on train questions, without their labels.

    Words are hashed, so no text of a question is kept.
    """

    surface_mean: Floats
    """(13,)"""
    surface_scale: Floats
    """(13,) 1 / standard deviation; 0 where a number never varies"""
    rarity: Floats
    """(4096,) inverse document frequency of each hashed word or pair of words"""
    centre: Floats
    """(4096,)"""
    directions: Floats
    """(4096, D) principal directions of the train questions"""

    def surface(self, questions: Sequence[str]) -> Floats:
        """(T, 13) standardised logarithms of counts; 0 without a text."""
        return (np.log1p(_surface(questions)) - self.surface_mean) * self.surface_scale * _has_text(questions)

    def words(self, questions: Sequence[str]) -> Floats:
        """(T, D) where the questions' words lie along the principal directions; 0 without a text."""
        if not self.directions.shape[1]:
            return np.zeros((len(questions), 0))
        projected = _weighed(questions, self.rarity) @ self.directions
        return np.asarray(projected - self.centre @ self.directions) * _has_text(questions)


def fit_queries(questions: Sequence[str], dimensions: int) -> QueryFeatures:
    """Learn scales and directions from train questions; of questions without text, nothing."""
    surface = np.log1p(_surface(questions))
    spread = surface.std(axis=0)
    scale = np.where(spread > 1e-9, 1 / np.maximum(spread, 1e-9), 0.0)
    counts = _hashed(questions)
    in_documents = np.asarray((counts > 0).sum(axis=0)).ravel()
    rarity = np.log((1 + len(questions)) / (1 + in_documents)) + 1
    weighed = _weighed(questions, rarity)
    centre = np.asarray(weighed.mean(axis=0)).ravel()
    kept = min(dimensions, len(questions) - 1, len(set(questions)) - 1)
    nowhere = np.zeros((_BUCKETS, 0))
    directions = randomized_svd(weighed, kept, random_state=0)[2].T if kept > 0 else nowhere
    parts = (surface.mean(axis=0), scale, rarity, centre, np.ascontiguousarray(directions))
    # Rounded as checkpoints store them, so that agents decide alike before and after they are saved.
    return QueryFeatures(*(part.astype(np.float32).astype(np.float64) for part in parts))


def _has_text(questions: Sequence[str]) -> Floats:
    """(T, 1) 1 or 0."""
    return np.array([[float(bool(text))] for text in questions]).reshape(-1, 1)


def _surface(questions: Sequence[str]) -> Floats:
    """(T, 13) counts: characters, words, distinct words, marks, digits, capitals, negations, lines."""
    rows = np.zeros((len(questions), N_SURFACE))
    for row, text in zip(rows, questions, strict=True):
        words = text.split()
        row[:3] = len(text), len(words), len({w.lower() for w in words})
        row[3:9] = [text.count(mark) for mark in ",.?'\"\n"]
        row[9] = sum(c.isdigit() for c in text)
        row[10] = sum(w[:1].isupper() for w in words)
        row[11] = len(_NEGATIONS.findall(text.lower()))
        row[12] = sum(map(len, words)) / max(len(words), 1)
    return rows


def _hashed(questions: Sequence[str]):  # type: ignore[no-untyped-def]  # scipy has no types
    vectoriser = HashingVectorizer(n_features=_BUCKETS, ngram_range=(1, 2), norm=None, alternate_sign=False)
    return vectoriser.transform(questions)


def _weighed(questions: Sequence[str], rarity: Floats):  # type: ignore[no-untyped-def]
    """Rows of unit length: 1 + log(count), times the word's rarity."""
    counts = _hashed(questions)
    counts.data = (1 + np.log(counts.data)) * rarity[counts.indices]
    lengths = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
    counts.data /= np.repeat(np.maximum(lengths, 1e-12), np.diff(counts.indptr))
    return counts

"""Features of a question's text: counts of characters, words and marks, and directions of its words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from string import digits
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.utils.extmath import randomized_svd
from torch import Tensor

from rlfocal.base.arrays import Floats
from rlfocal.methods.learning.store import select_tensors

N_SURFACE = 13
N_BUCKETS = 1 << 12
_KERNEL_FACTOR = 0.1
"""The factor of the Gaussian kernel on squared distances of standardised surface features."""
_MIN_EIGENVALUE = 1e-3
_HASHER = HashingVectorizer(n_features=N_BUCKETS, ngram_range=(1, 2), alternate_sign=False, norm=None)
_NEGATIONS = re.compile(r"\bnot?\b|n't\b")


class QueryFeatures(NamedTuple):
    """Turns questions into features; fitted on train questions, without their labels.

    Words are hashed, so no text is stored.
    """

    surface_mean: Floats
    """(13,) the mean of each surface feature on train"""
    surface_scale: Floats
    """(13,) 1 / standard deviation of each surface feature on train; 0 where it never varies"""
    rarity: Floats
    """(4096,) inverse document frequency of each hashed word or pair of words"""
    directions: Floats
    """(4096, D) principal directions of the train questions"""
    middle: Floats
    """(D,) the mean train question along the D directions"""
    gate_scale: Floats
    """(K,) 1 / standard deviation of train questions along the first K directions"""
    landmarks: Floats
    """(L, 13) surface features of L train questions, the landmarks"""
    bends: Floats
    """(L, B) a matrix from kernel values at the landmarks to B Nyström features"""

    def surface(self, questions: Sequence[str]) -> Floats:
        """(T, 13) the surface features: logarithms of counts in the text, standardised; 0 without a text."""
        return (np.log1p(_surface(questions)) - self.surface_mean) * self.surface_scale * _has_text(questions)

    def curves(self, surface: Floats) -> Floats:
        """(T, B) Nyström features of a Gaussian kernel on surface features (T, 13); 0 without a text."""
        return np.asarray(_kernel(surface, self.landmarks) @ self.bends) * surface.any(axis=1, keepdims=True)

    def words(self, questions: Sequence[str]) -> Floats:
        """(T, D) the questions' coordinates along the principal directions of words; 0 without a text."""
        if not self.directions.shape[1]:
            return np.zeros((len(questions), 0))
        rows = np.zeros((len(questions), self.directions.shape[1]))
        weighed = _weigh_words(_HASHER.transform(questions), self.rarity)
        for number, (row, text) in enumerate(zip(rows, questions, strict=True)):
            if text:
                own = slice(*weighed.indptr[number : number + 2])
                row[:] = weighed.data[own] @ self.directions[weighed.indices[own]] - self.middle
        return rows

    def gates(self, words: Floats) -> Floats:
        """(..., K) word coordinates (..., D) along the first K directions, scaled to deviation 1 on train."""
        return words[..., : len(self.gate_scale)] * self.gate_scale


def _fit_surface(questions: Sequence[str], landmarks: int) -> tuple[Floats, Floats, Floats, Floats]:
    """The fields surface_mean, surface_scale, landmarks and bends of QueryFeatures.

    Landmarks are spread evenly over the sorted distinct questions.
    """
    surface = np.log1p(_surface(questions))
    spread = surface.std(axis=0)
    mean, scale = surface.mean(axis=0), np.where(spread > 1e-9, 1 / np.maximum(spread, 1e-9), 0.0)
    standard = (surface - mean) * scale * _has_text(questions)
    distinct = np.unique(standard.astype(np.float32), axis=0).astype(np.float64)
    places = np.linspace(0, len(distinct) - 1, min(landmarks, len(distinct))).round().astype(int)
    marks = distinct[places] if any(questions) else distinct[:0]
    return mean, scale, marks, _make_whitening_matrix(marks)


def fit_queries(questions: Sequence[str], dimensions: int, gates: int, landmarks: int) -> QueryFeatures:
    """Fits question features to train questions: D = `dimensions`, K = `gates`, L = `landmarks` at most."""
    mean, scale, marks, bends = _fit_surface(questions, landmarks)
    counted = _HASHER.transform(questions)
    rarity = np.log((1 + len(questions)) / (1 + counted.getnnz(axis=0))) + 1
    weighed = _weigh_words(counted, rarity)
    kept = min(dimensions, len(questions) - 1, len(set(questions)) - 1)
    nowhere = np.zeros((N_BUCKETS, 0))
    directions = randomized_svd(weighed, kept, random_state=0)[2].T if kept > 0 else nowhere
    along = np.asarray(weighed @ directions)
    widths = along[:, :gates].std(axis=0)
    gate_scale = np.where(widths > 1e-6, 1 / np.maximum(widths, 1e-6), 0.0)
    parts = (
        mean,
        scale,
        rarity,
        np.ascontiguousarray(directions),
        along.mean(axis=0),
        gate_scale,
        marks,
        bends,
    )
    # Rounded as checkpoints store them, so that agents decide alike before and after they are saved.
    return QueryFeatures(*(part.astype(np.float32).astype(np.float64) for part in parts))


def query_tensors(queries: QueryFeatures) -> dict[str, Tensor]:
    """The tensors of the features, by their names in a checkpoint."""
    return {f"queries.{n}": torch.from_numpy(v).to(torch.float32) for n, v in queries._asdict().items()}


def read_queries(tensors: Mapping[str, Tensor]) -> QueryFeatures:
    """The features, from the tensors that `query_tensors` returned."""
    parts = select_tensors("queries.", tensors)
    return QueryFeatures(**{name: value.numpy().astype(np.float64) for name, value in parts.items()})


def _kernel(x: Floats, y: Floats) -> Floats:
    """(T, L) the Gaussian kernel exp(-|x_t - y_l|² / 10) of the rows of x (T, 13) and y (L, 13)."""
    squares = np.square(x).sum(axis=1)[:, None] + np.square(y).sum(axis=1)
    return np.asarray(np.exp(-_KERNEL_FACTOR * np.maximum(squares - 2 * x @ y.T, 0.0)))


def _make_whitening_matrix(landmarks: Floats) -> Floats:
    """(L, B) the inverse square root of the landmarks' kernel matrix, without tiny eigenvalues."""
    values, vectors = np.linalg.eigh(_kernel(landmarks, landmarks))
    long = values > _MIN_EIGENVALUE
    return np.asarray(vectors[:, long] / np.sqrt(values[long]))


def _has_text(questions: Sequence[str]) -> Floats:
    """(T, 1) 1 where the question has text, else 0."""
    return np.array([[float(bool(text))] for text in questions]).reshape(-1, 1)


def _surface(questions: Sequence[str]) -> Floats:
    """(T, 13) twelve counts in each text, and characters per word.

    The counts are of characters, words, distinct words, five marks, line breaks, digits, capitalised words
    and negations.
    """
    rows = np.zeros((len(questions), N_SURFACE))
    for row, text in zip(rows, questions, strict=True):
        lowered, words = text.lower(), text.split()
        row[:] = (
            len(text), len(words), len(set(lowered.split())), *map(text.count, ",.?'\"\n"),
            _count_digits(text), sum(map(str.isupper, [word[0] for word in words])),
            len(_NEGATIONS.findall(lowered)), sum(map(len, words)) / max(len(words), 1),
        )  # fmt: skip
    return rows


def _count_digits(text: str) -> int:
    # Ten times as fast as looking at each character.
    return sum(map(text.count, digits)) if text.isascii() else sum(map(str.isdigit, text))


def _weigh_words(counts: csr_matrix, rarity: Floats) -> csr_matrix:
    """(T, 4096) 1 + log(count), times the word's rarity, each row scaled to unit length (TF-IDF)."""
    weights = (1 + np.log(counts.data)) * rarity[counts.indices]
    for own in map(slice, counts.indptr[:-1], counts.indptr[1:]):
        weights[own] /= max(float(np.linalg.norm(weights[own])), 1e-12)
    return csr_matrix((weights, counts.indices, counts.indptr), shape=counts.shape)

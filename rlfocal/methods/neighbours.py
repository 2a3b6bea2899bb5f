"""The train documents most like a new one: by questions, by the models' outputs so far, or by both."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np

from rlfocal.base.arrays import Bools, Floats, Ints
from rlfocal.base.errors import unknown
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import Encoder, fit_encoder
from rlfocal.methods.text import questions_of

_BLOCK = 1024


class Neighbours(NamedTuple):
    """The train documents most similar to each of T documents."""

    at: Ints
    """(T, k) their positions, the most similar first; ties: the earlier one."""
    similarity: Floats
    """(T, k)"""

    @property
    def known(self) -> Bools:
        """(T,) whether any train document is similar at all: by cosine, none is if no word is known."""
        return np.asarray((self.similarity > 0).any(axis=1))


def vectors_of(encoder: Encoder, questions: tuple[str, ...]) -> Floats:
    """(T, D) read-only; cached, as many methods encode the same questions."""
    return _encode(cast(Hashable, encoder), questions)


@lru_cache(maxsize=6)
def _encode(encoder: Hashable, questions: tuple[str, ...]) -> Floats:
    vectors = cast(Encoder, encoder).encode(questions)
    vectors.flags.writeable = False
    return vectors


def cosines(train: Floats, vectors: Floats, block: int = _BLOCK) -> Iterator[tuple[slice, Floats]]:
    """Cosines of (T, D) vectors to those of n train documents (n, D): (which rows, (rows, n)), by blocks.

    0 where either vector is 0. Rounded, so that equal vectors tie whatever the block size.
    """
    units = unit(train).T
    for start in range(0, len(vectors), block):
        rows = slice(start, min(start + block, len(vectors)))
        yield rows, (unit(vectors[rows]) @ units).round(9)


def closeness(train: Floats, vectors: Floats, block: int = _BLOCK) -> Iterator[tuple[slice, Floats]]:
    """As `cosines`, but 1 / (1 + Euclidean distance): for vectors whose lengths carry meaning."""
    squares = (train**2).sum(axis=1)
    for start in range(0, len(vectors), block):
        rows = slice(start, min(start + block, len(vectors)))
        part = vectors[rows]
        squared = (part**2).sum(axis=1)[:, None] + squares - 2 * part @ train.T
        # For equal vectors, float error leaves a squared distance that is not quite 0.
        yield rows, (1 / (1 + np.sqrt(np.maximum(squared, 0.0).round(9)))).round(9)


def nearest(similarities: Iterator[tuple[slice, Floats]], k: int, *, others: bool = False) -> Neighbours:
    """The k most similar train documents (all if there are fewer), from `cosines` or `closeness`.

    `others`: the documents are the train documents themselves, in their order, and none is its own neighbour.
    """
    blocks = [_top(_without_itself(rows, part) if others else part, k, others) for rows, part in similarities]
    if not blocks:
        return Neighbours(np.empty((0, 0), dtype=np.int64), np.empty((0, 0)))
    return Neighbours(
        np.concatenate([part.at for part in blocks]), np.concatenate([part.similarity for part in blocks])
    )


def without_itself(similarities: Iterator[tuple[slice, Floats]]) -> Iterator[tuple[slice, Floats]]:
    """The similarities of train documents to one another, with -inf for each to itself."""
    return ((rows, _without_itself(rows, part)) for rows, part in similarities)


def _without_itself(rows: slice, similarity: Floats) -> Floats:
    others = similarity.copy()
    others[np.arange(len(others)), np.arange(rows.start, rows.stop)] = -np.inf
    return others


def _top(similarity: Floats, k: int, others: bool) -> Neighbours:
    """The k highest of each row; ties: the first."""
    n = similarity.shape[1]
    k = min(k, n - others)
    if k == 0:
        none = np.empty((len(similarity), 0))
        return Neighbours(none.astype(np.int64), none)
    least = np.partition(similarity, n - k, axis=1)[:, n - k, None]
    above, level = similarity > least, similarity == least
    taken = above | (level & (level.cumsum(axis=1) <= k - above.sum(axis=1, keepdims=True)))
    places = np.nonzero(taken)[1].reshape(-1, k)
    values = np.take_along_axis(similarity, places, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return Neighbours(np.take_along_axis(places, order, axis=1), np.take_along_axis(values, order, axis=1))


def unit(vectors: Floats) -> Floats:
    """(T, D) the vectors (T, D) at length 1; 0 stays 0."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Floats = vectors / np.maximum(lengths, 1e-12)
    return scaled


NEIGHBOURS = ("text", "outputs", "both")
TEXT_WEIGHT = 0.3
"""Weight of the question's unit vector beside the outputs' vector, which has length 1 too."""


@dataclass(frozen=True)
class Likeness:
    """Maps documents to vectors that are close for similar documents."""

    by: str
    encoder: Encoder | None
    """None if questions are not read."""
    width: int
    """Slots used per model."""

    def vectors(self, outputs: Dataset, models: Sequence[int]) -> Floats:
        """(T, D) vectors of documents for which these models were called.

        A model's output enters as the square roots of its probabilities, so that Euclidean distance is √2
        times Hellinger's; all models count equally.
        """
        parts = []
        if self.by != "text":
            spread = np.sqrt(outputs.probs[:, list(models)] / max(len(models), 1))
            parts.append(_slots(spread, self.width))
        if self.encoder is not None:
            weight = 1.0 if self.by == "text" else TEXT_WEIGHT
            parts.append(weight * self.encoder.encode(questions_of(outputs)))
        return np.hstack(parts)


def fit_likeness(by: str, encoder: str, train: Dataset) -> Likeness:
    """Raises InputError if `by` is not one of NEIGHBOURS."""
    if by not in NEIGHBOURS:
        raise unknown("neighbours", by, NEIGHBOURS, "a selector by neighbours")
    reads = fit_encoder(encoder, questions_of(train)) if by != "outputs" else None
    return Likeness(by, reads, train.probs.shape[2])


def alike(train: Floats, vectors: Floats, k: int, *, others: bool = False) -> Neighbours:
    """The k nearest train documents; ties: the first. `others`: of train itself, each without itself."""
    return nearest(closeness(train, vectors), k, others=others)


def local_mean(neighbours: Neighbours, values: Floats, k: int) -> Floats:
    """(T, A) mean over the k nearest documents of the value on train (n, A) of each of A actions; where none
    is similar, over all of train."""
    means = np.tile(values.mean(axis=0), (len(neighbours.at), 1))
    if neighbours.at.shape[1]:
        means[neighbours.known] = mean_over(values, neighbours.at[neighbours.known, :k])
    return means


def mean_over(values: Floats, places: Ints) -> Floats:
    """(T, A) means of values (n, A) at the positions (T, k)."""
    return np.stack([each[places].mean(axis=1) for each in values.T], axis=1)


def _slots(shares: Floats, width: int) -> Floats:
    """(T, M · width) of (T, M, C)"""
    padded = np.zeros((*shares.shape[:2], max(width, shares.shape[2])))
    padded[..., : shares.shape[2]] = shares
    return padded[..., :width].reshape(len(shares), -1)

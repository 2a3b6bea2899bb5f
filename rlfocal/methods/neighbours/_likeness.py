"""How a selector measures similarity: by questions, by the models' outputs so far, or by both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.base.errors import unknown
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import Encoder, fit_encoder
from rlfocal.methods._text import questions_of
from rlfocal.methods.neighbours import Neighbours, closeness, nearest

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

    def vectors(self, said: Dataset, models: Sequence[int]) -> Floats:
        """(T, D) vectors of documents for which these models were called.

        A model's output enters as the square roots of its probabilities, so that Euclidean distance is √2
        times Hellinger's; all models count equally.
        """
        parts = []
        if self.by != "text":
            spread = np.sqrt(said.probs[:, list(models)] / max(len(models), 1))
            parts.append(_slots(spread, self.width))
        if self.encoder is not None:
            weight = 1.0 if self.by == "text" else TEXT_WEIGHT
            parts.append(weight * self.encoder.encode(questions_of(said)))
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
    """(T, A) mean over the k nearest documents of the value on train (n, A) of each of A actions.

    If no document has a neighbour, the mean over all of train.
    """
    if not neighbours.at.shape[1]:
        return np.tile(values.mean(axis=0), (len(neighbours.at), 1))
    found = np.empty((len(neighbours.at), values.shape[1]))
    for start in range(0, len(found), 1024):
        rows = slice(start, start + 1024)
        found[rows] = values[neighbours.at[rows, :k]].mean(axis=1)
    return found


def _slots(said: Floats, width: int) -> Floats:
    """(T, M · width) of (T, M, C)"""
    padded = np.zeros((*said.shape[:2], max(width, said.shape[2])))
    padded[..., : said.shape[2]] = said
    return padded[..., :width].reshape(len(said), -1)

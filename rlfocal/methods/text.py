"""What methods learn from questions by: their texts, principal directions, and ridges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.calls import Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import Encoder, fit_encoder

RIDGES = (np.inf, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
"""Penalties on the weights of unit-length text features, beside a cross-entropy summed over documents; the
first leaves the text out."""
FOLDS = 5
_FEWEST = 20
"""Labelled documents needed for cross-validation."""


def questions_of(documents: Dataset | Calls) -> tuple[str, ...]:
    """(T,) the questions; empty ones where the data hold no text."""
    return documents.questions or ("",) * len(documents)


def ridge_by_folds(n: int, held_out_losses: Callable[[Ints, Ints], Iterator[float]]) -> float:
    """The one of RIDGES with the least cross-validated loss on n documents; ties: the strongest.

    `held_out_losses(fitted, held)` takes positions and yields, for each of RIDGES in turn, the cross-entropy
    summed over `held` after fitting on `fitted`. Weaker ridges are tried as long as they help. With too few
    documents, the text is left out.
    """
    if n < _FEWEST:
        return RIDGES[0]
    parts = np.array_split(np.random.default_rng(0).permutation(n), FOLDS)
    paths = [
        held_out_losses(np.concatenate([*parts[:number], *parts[number + 1 :]]), part)
        for number, part in enumerate(parts)
    ]
    best, least = RIDGES[0], np.inf
    for ridge, losses in zip(RIDGES, zip(*paths, strict=True), strict=True):
        if not sum(losses) < least:
            break
        best, least = ridge, sum(losses)
    return best


@dataclass(frozen=True)
class Directions:
    """The leading principal directions of train questions, each scaled to unit variance."""

    encoder: Encoder
    middle: Floats
    """(D,) the mean train question"""
    axes: Floats
    """(D, K)"""

    def encode(self, texts: Sequence[str]) -> Floats:
        """(T, K)"""
        along: Floats = (self.encoder.encode(texts) - self.middle) @ self.axes
        return along


def fit_directions(encoder: str, train: Sequence[str], most: int) -> Directions:
    """At most `most` directions, without those along which train questions do not vary."""
    fitted = fit_encoder(encoder, train)
    vectors = fitted.encode(train)
    middle = vectors.mean(axis=0)
    spreads, axes = np.linalg.eigh(np.cov(vectors.T, bias=True).reshape(len(middle), len(middle)))
    kept = np.argsort(-spreads, kind="stable")[:most]
    kept = kept[spreads[kept] > 1e-9]
    return Directions(fitted, middle, axes[:, kept] / np.sqrt(spreads[kept]))

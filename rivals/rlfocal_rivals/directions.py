"""The principal directions of questions, as inputs for several rivals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.data.text import Encoder, fit_encoder


@dataclass(frozen=True)
class Directions:
    """The leading principal directions of train questions, each scaled to unit variance."""

    encoder: Encoder
    middle: Floats
    """(D,) the mean vector of the train questions"""
    axes: Floats
    """(D, K) the K directions, one per column"""

    def encode(self, texts: Sequence[str]) -> Floats:
        """(T, K) the texts' coordinates along the directions"""
        along: Floats = (self.encoder.encode(texts) - self.middle) @ self.axes
        return along


def fit_directions(encoder: str, train: Sequence[str], most: int) -> Directions:
    """The principal directions of `train` questions, at most `most`; those without variance are left out."""
    fitted = fit_encoder(encoder, train)
    vectors = fitted.encode(train)
    middle = vectors.mean(axis=0)
    spreads, axes = np.linalg.eigh(np.cov(vectors.T, bias=True).reshape(len(middle), len(middle)))
    leading = np.argsort(-spreads, kind="stable")[:most]
    leading = leading[spreads[leading] > 1e-9]
    return Directions(fitted, middle, axes[:, leading] / np.sqrt(spreads[leading]))

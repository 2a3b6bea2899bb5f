"""Clusters of train questions, and how often each model was right in them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.dataset import Dataset
from rlfocal.data.text import Encoder, fit_encoder
from rlfocal.methods._text import questions_of
from rlfocal.methods.neighbours import cosines, nearest, products, vectors_of


class Near(NamedTuple):
    """The clusters nearest to each of T questions."""

    at: Ints
    """(T, k) their positions, the nearest first; -1 where the encoder knows no word of the question."""
    similarity: Floats
    """(T, k) cosine or inner product of the question's vector, of length 1, and their centres"""


@dataclass(frozen=True)
class Clusters:
    """K-means clusters of train questions, and each model's accuracy in each."""

    encoder: Encoder
    centres: Floats
    """(K, D)"""
    sizes: Floats
    """(K + 1,) questions in each; last, in all of train"""
    means: Floats
    """(K + 1, N) each model's accuracy on them; last, on all of train, for position -1"""

    def near(self, questions: tuple[str, ...], k: int = 1, *, by_product: bool = False) -> Near:
        """`by_product`: by the inner product with the centres as they are, so that tight clusters lead."""
        similarity = products if by_product else cosines
        found = nearest(similarity(self.centres, vectors_of(self.encoder, questions)), k)
        return Near(np.where(found.known[:, None], found.at, -1), found.similarity)


def fit_clusters(train: Dataset, encoder: str, k: int) -> Clusters:
    """At most k clusters, by K-means with a fixed seed and ten starts; at most one per distinct question.

    Raises InputError for an encoder that cannot be loaded.
    """
    questions = questions_of(train)
    fitted = fit_encoder(encoder, questions)
    found = _k_means(cast(Hashable, fitted), questions, k)
    belongs = (found.label == np.arange(len(found.centres))[:, None]).astype(float)
    belongs = np.vstack([belongs, np.ones(len(train))])
    sizes = belongs.sum(axis=1)
    means = belongs @ train.correct.astype(float) / sizes[:, None]
    return Clusters(fitted, found.centres, sizes, means)


class _Found(NamedTuple):
    centres: Floats
    """(K, D)"""
    label: Ints
    """(n,) the cluster of each train question"""


@lru_cache(maxsize=8)
def _k_means(encoder: Hashable, questions: tuple[str, ...], k: int) -> _Found:
    # scikit-learn takes a second to import, and listing the methods must not.
    from sklearn.cluster import KMeans

    vectors = vectors_of(cast(Encoder, encoder), questions)
    different = len(np.unique(vectors.round(9), axis=0))
    found = KMeans(min(k, different), n_init=10, random_state=0).fit(vectors)
    return _Found(found.cluster_centers_, found.labels_.astype(np.int64))

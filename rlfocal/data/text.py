"""Questions as vectors, for every method that reads them, by built-in TF-IDF or by a named sentence encoder.

It also chooses the ridge penalty of methods that learn from vectors.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from filelock import FileLock
from threadpoolctl import threadpool_limits

from rlfocal.base.arrays import Floats, Ints
from rlfocal.base.atomic import replace_path
from rlfocal.base.errors import InputError
from rlfocal.data.calls import Calls
from rlfocal.data.dataset import Dataset

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfVectorizer

TFIDF = "tfidf"
"""The encoder that needs no download: TF-IDF of words and word pairs, along its principal directions."""
ENCODING_DIMENSIONS = 128
_MAX_TERMS = 50_000
MIN_CACHED_TEXTS = 64
"""The fewest texts whose vectors are cached on disk, because methods in other processes need the same."""


class Encoder(Protocol):
    """Turns texts into vectors."""

    def encode(self, texts: Sequence[str]) -> Floats:
        """(T, D) vectors of length 1; zeros for a text without known words."""
        ...


def fit_encoder(name: str, train: Sequence[str]) -> Encoder:
    """The encoder of this name, fitted on train questions if it learns from them.

    `name`: "tfidf", or a sentence-transformers model by its directory or its name on the hub. Equal texts are
    encoded once. Raises InputError for a model that cannot be loaded.
    """
    return _fit_tfidf(tuple(train)) if name == TFIDF else _load(name)


@dataclass(frozen=True, eq=False)  # compared by identity, as its encoded texts are cached by it
class Tfidf:
    """Latent semantic analysis (Deerwester et al., 1990) by scikit-learn."""

    vectorizer: TfidfVectorizer | None
    """The fitted vectorizer; None if train has no word."""
    directions: Floats | None
    """(terms, D) the principal directions, stored contiguously for speed; None if train is too small."""

    def encode(self, texts: Sequence[str]) -> Floats:
        if self.vectorizer is None:
            return np.zeros((len(texts), 1))
        weighed = self.vectorizer.transform(texts)
        dense = weighed.toarray() if self.directions is None else weighed @ self.directions
        return scale_to_unit(np.asarray(dense, dtype=np.float64))


@lru_cache(maxsize=8)
def _fit_tfidf(train: tuple[str, ...]) -> Tfidf:
    # scikit-learn takes a second to import, and listing the methods must not.
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), max_features=_MAX_TERMS)
    try:
        weighed = vectorizer.fit_transform(train)
    except ValueError:  # no words at all
        return Tfidf(None, None)
    kept = min(ENCODING_DIMENSIONS, weighed.shape[1] - 1, len(set(train)) - 1)
    if kept < 1:
        return Tfidf(vectorizer, None)
    with threadpool_limits(1):  # their number would change sums
        components = TruncatedSVD(kept, random_state=0).fit(weighed).components_
    return Tfidf(vectorizer, np.ascontiguousarray(components.T))


@dataclass(frozen=True)
class SentenceEncoder:
    """A model of sentence-transformers."""

    model: Any
    """The loaded sentence_transformers.SentenceTransformer."""

    def encode(self, texts: Sequence[str]) -> Floats:
        vectors = self._encode_once(texts) if len(texts) >= MIN_CACHED_TEXTS else self._encode(texts)
        return scale_to_unit(np.asarray(vectors, dtype=np.float64).reshape(len(texts), -1))

    def _encode(self, texts: Sequence[str]) -> Any:
        return self.model.encode(list(texts), convert_to_numpy=True, show_progress_bar=False)

    def _encode_once(self, texts: Sequence[str]) -> Any:
        """The texts' vectors from the cache on disk. The first process computes them, while others wait."""
        name = sha256((self._identity + json.dumps(list(texts))).encode()).hexdigest()
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        file = cache / "rlfocal" / "vectors" / f"{name}.npy"  # may be deleted at any time
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(file.with_suffix(".lock")):
                with suppress(OSError, ValueError, EOFError):
                    return np.load(file)
                vectors = self._encode(texts)
                with replace_path(file, suffix=".npy") as staged:
                    np.save(staged, vectors)
                return vectors
        except OSError:  # nothing can be kept here
            return self._encode(texts)

    @cached_property
    def _identity(self) -> str:
        """A digest of all that the vectors depend on, wherever the model was loaded from."""
        digest = sha256(f"{version('sentence-transformers')} {self.model}".encode())
        for name, weights in sorted(self.model.state_dict().items()):
            digest.update(name.encode() + weights.detach().cpu().float().numpy().tobytes())
        return digest.hexdigest()


@lru_cache(maxsize=2)
def _load(name: str) -> SentenceEncoder:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise InputError(
            f"encoder {name!r} needs sentence-transformers; install it (pip install 'rlfocal[text]'), or use "
            f"the encoder {TFIDF!r}"
        ) from None
    try:
        return SentenceEncoder(SentenceTransformer(name))
    except Exception as error:
        raise InputError(
            f"encoder {name!r} cannot be loaded ({error}); give a directory of a sentence-transformers "
            f"model, its name on the hub, or {TFIDF!r}"
        ) from error


def scale_to_unit(vectors: Floats) -> Floats:
    """(T, D) the vectors (T, D) scaled to length 1; a zero vector stays as it is."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Floats = vectors / np.maximum(lengths, 1e-12)
    return scaled


TEXT_RIDGES = (np.inf, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
"""Ridge penalties to choose from, on weights of unit-length text features.

The loss beside them is a cross-entropy summed over documents. The infinite penalty leaves the text out.
"""
RIDGE_FOLDS = 5
_MIN_LABELLED_DOCUMENTS = 20
"""Labelled documents needed for cross-validation."""


def questions_of(documents: Dataset | Calls) -> tuple[str, ...]:
    """(T,) the texts of the questions; each is empty where the data hold no questions."""
    return documents.questions or ("",) * len(documents)


def ridge_by_folds(n: int, held_out_losses: Callable[[Ints, Ints], Iterator[float]]) -> float:
    """The penalty of TEXT_RIDGES with the least cross-validated loss on n documents; ties: the strongest.

    `held_out_losses(fit_rows, held_out_rows)` yields, for each penalty in turn, the cross-entropy summed over
    `held_out_rows` after a fit to `fit_rows`. Weaker penalties are tried as long as they help. With too few
    documents, the text is left out.
    """
    if n < _MIN_LABELLED_DOCUMENTS:
        return TEXT_RIDGES[0]
    parts = np.array_split(np.random.default_rng(0).permutation(n), RIDGE_FOLDS)
    paths = [
        held_out_losses(np.concatenate([*parts[:number], *parts[number + 1 :]]), part)
        for number, part in enumerate(parts)
    ]
    best, least = TEXT_RIDGES[0], np.inf
    for ridge, losses in zip(TEXT_RIDGES, zip(*paths, strict=True), strict=True):
        if not sum(losses) < least:
            break
        best, least = ridge, sum(losses)
    return best

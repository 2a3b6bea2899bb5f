"""The one protocol every method follows: `fit` on train rows, then decide per document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rlfocal.dataset import Dataset


@dataclass(frozen=True)
class Decisions:
    """What a method did on T documents."""

    pools: NDArray[np.bool_]
    """(T, N) the models it asked."""
    predictions: NDArray[np.int64]
    """(T,) the slot it answered; -1 for no answer."""


class Policy(Protocol):
    """A fitted method. Labels of the documents it decides on must not enter (the oracle alone reads them)."""

    def decide(self, documents: Dataset) -> Decisions: ...


@runtime_checkable
class OnlineLearner(Protocol):
    """A policy that can go on learning along test: each label is revealed after its document's answer."""

    def decide_online(self, documents: Dataset) -> Decisions: ...


class Episode(NamedTuple):
    """One episode of training, averaged over its parallel environments."""

    phase: str
    """What was learning: "decider" or "fusion"."""
    episode: int
    reward: float
    accuracy: float
    mean_pool_size: float


@runtime_checkable
class Learned(Protocol):
    """A policy that was trained in episodes, and remembers how."""

    @property
    def history(self) -> Sequence[Episode]: ...


class Method(Protocol):
    """A way to choose and fuse."""

    @property
    def seeded(self) -> bool:
        """Whether a seed changes the result; if not, `fit` is called with one seed and may ignore it."""
        ...

    def recipe(self, n_train: int) -> str:
        """Changes whenever the method would fit `n_train` documents otherwise than before."""
        ...

    def fit(self, train: Dataset, seeds: Sequence[int]) -> Sequence[Policy]:
        """One policy a seed, fitted on train rows alone."""
        ...

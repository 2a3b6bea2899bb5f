"""The one protocol every method follows: `fit` on train rows, then decide per document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

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


class Method(Protocol):
    """A way to choose and fuse. `seeded` says whether a seed changes the result."""

    name: str
    seeded: bool

    def fit(self, train: Dataset, seed: int) -> Policy: ...

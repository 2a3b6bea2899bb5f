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
    """A fitted method."""

    def decide(self, documents: Dataset) -> Decisions:
        """Evaluations hand over documents `unlabelled`: what is decided cannot depend on their labels."""
        ...


@runtime_checkable
class OnlineLearner(Protocol):
    """A policy that can go on learning along test: each label is revealed after its document's answer."""

    def decide_online(self, documents: Dataset) -> Decisions: ...


class Episode(NamedTuple):
    """One step of training: a pass over train, averaged over its parallel environments, or a stage."""

    phase: str
    """What was learning: "decider" or "fusion" on a pass; "stage": Fusion once so many models answered."""
    episode: int
    """Pass or stage, from 0 in each phase."""
    reward: float | None
    """None at a stage, which is fitted and earns nothing."""
    accuracy: float
    """On the pass; at a stage, on train documents that Fusion was not fitted on."""
    mean_pool_size: float
    policy_loss: float | None = None
    """This and what follows: means over the episode's updates, None where training has no such thing."""
    value_loss: float | None = None
    entropy: float | None = None
    approx_kl: float | None = None
    clip_fraction: float | None = None
    explained_variance: float | None = None
    actor_grad_norm: float | None = None
    critic_grad_norm: float | None = None


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

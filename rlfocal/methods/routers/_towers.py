"""Two towers: a vector per question and one per model, whose product predicts which models are right."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.data.text import Encoder
from rlfocal.methods._routing import Scorer
from rlfocal.methods.neighbours import vectors_of

if TYPE_CHECKING:
    from torch import Generator, Tensor


FEWEST_STEPS = 600
"""Minimum number of steps, so that learning on few documents does not stop too early."""


@dataclass(frozen=True)
class Learning:
    """How long and how fast a tower learns, by Adam."""

    epochs: int
    batch: int
    """documents per step"""
    rate: float
    decay: float = 0.0
    """weight decay"""
    anneals: bool = True
    """Whether the learning rate falls linearly to 0."""


@dataclass(frozen=True)
class Towers:
    """Log-odds (e P + p) · q_m + (e · r + s) of every model m, for a question's vector e."""

    encoder: Encoder
    project: Floats
    """(D, d) P"""
    offset: Floats
    """(d,) p"""
    models: Floats
    """(N, d) q"""
    level: Floats
    """(D,) r"""
    base: float
    """s"""

    def log_odds(self, questions: tuple[str, ...]) -> Floats:
        """(T, N)"""
        e = vectors_of(self.encoder, questions)
        found: Floats = (e @ self.project + self.offset) @ self.models.T + (e @ self.level + self.base)[
            :, None
        ]
        return found


@dataclass(frozen=True)
class ChancesOfRight(Scorer):
    """P(m is right | x), the logistic function of a tower's log-odds."""

    towers: Towers
    questions: tuple[str, ...]

    def scores(self, questions: tuple[str, ...]) -> Floats:
        return logistic(self.towers.log_odds(questions))


def logistic(x: Floats) -> Floats:
    found: Floats = 1 / (1 + np.exp(-np.clip(x, -500, 500)))
    return found


def learn(
    parameters: Sequence[Tensor],
    loss: Callable[[Tensor], Tensor],
    n: int,
    learning: Learning,
    generator: Generator,
) -> None:
    """Minimises, in place, the mean loss over n documents, given by position.

    On one thread, so that results are the same everywhere.
    """
    import torch

    from rlfocal.methods.learning.stacked import one_thread

    optimiser = torch.optim.Adam(list(parameters), lr=learning.rate, weight_decay=learning.decay)
    steps = max(learning.epochs * math.ceil(n / learning.batch), FEWEST_STEPS) if n else 0
    order = torch.empty(0, dtype=torch.int64)
    with one_thread():
        for step in range(steps):
            if not len(order):
                order = torch.randperm(n, generator=generator)
            batch, order = order[: learning.batch], order[learning.batch :]
            if learning.anneals:
                optimiser.param_groups[0]["lr"] = learning.rate * (1 - step / steps)
            optimiser.zero_grad()
            loss(batch).backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def uniform(*shape: int, generator: Generator) -> Tensor:
    """Initial weights, uniform within 1 / √(first dimension)."""
    import torch

    drawn = torch.empty(shape).uniform_(-1, 1, generator=generator)
    return drawn.div_(max(shape[0], 1) ** 0.5).requires_grad_()


def to_numpy(*parts: Tensor) -> list[Floats]:
    return [part.detach().double().numpy() for part in parts]

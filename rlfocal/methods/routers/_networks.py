"""Networks with one hidden layer, from a question's vector to several chances, learnt from soft targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.methods.routers._towers import Learning, learn, logistic

if TYPE_CHECKING:
    from torch import Generator, Tensor


@dataclass(frozen=True)
class Network:
    """Chances σ(relu(e H + h) V + o) for a question's vector e."""

    hidden: Floats
    """(D, d) H"""
    offset: Floats
    """(d,) h"""
    out: Floats
    """(d, M) V"""
    base: Floats
    """(M,) o"""

    def chances(self, vectors: Floats) -> Floats:
        """(T, M)"""
        return logistic(np.maximum(vectors @ self.hidden + self.offset, 0.0) @ self.out + self.base)


def fit_network(vectors: Floats, targets: Floats, hidden: int, learning: Learning, seed: int) -> Network:
    """Minimises the binary cross-entropy to targets (n, M) between 0 and 1, from vectors (n, D)."""
    # torch takes seconds to import, and listing the methods must not.
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    e, y = (torch.tensor(part, dtype=torch.float32) for part in (vectors, targets))
    generator = torch.Generator().manual_seed(seed)
    H, h = uniform(e.shape[1], hidden, generator=generator), uniform(hidden, generator=generator)
    V, o = uniform(hidden, y.shape[1], generator=generator), torch.zeros(y.shape[1], requires_grad=True)

    def loss(batch: torch.Tensor) -> torch.Tensor:
        return binary_cross_entropy_with_logits((e[batch] @ H + h).relu() @ V + o, y[batch])

    learn([H, h, V, o], loss, len(y), learning, generator)
    return Network(*to_numpy(H, h, V, o))


def uniform(*shape: int, generator: Generator) -> Tensor:
    """Initial weights, uniform within 1 / √(first dimension)."""
    import torch

    drawn = torch.empty(shape).uniform_(-1, 1, generator=generator)
    return drawn.div_(max(shape[0], 1) ** 0.5).requires_grad_()


def to_numpy(*parts: Tensor) -> list[Floats]:
    return [part.detach().double().numpy() for part in parts]

"""The Lagrange multiplier that holds mean pools to their budgets."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LEAST, POWER = 1e-2, 0.3
"""Multipliers start at the first, their minimum. Every update multiplies them by (mean pool / target) to the
power of the second: a factor, not a sum, because gains differ by data."""


class Multiplier:
    """The cost of a pool's size m/N beyond Eq (6), within each of K - 1 budgets and without one."""

    def __init__(self, n_seeds: int, budgets: Sequence[int], mean_pool: float) -> None:
        """`mean_pool`: the target without a budget; 0: none."""
        self.targets = torch.tensor([*budgets, mean_pool or torch.inf])
        self._least = torch.where(self.targets.isfinite(), LEAST, 0.0)
        self.values = self._least.repeat(n_seeds, 1)
        """(S, K)"""

    @property
    def is_binding(self) -> list[bool]:
        """(S,) whether pools without a budget would be larger than `mean_pool`."""
        return (self.values[:, -1] > 2 * LEAST).tolist()

    def adapt(self, sizes: Tensor, within: Tensor) -> None:
        """From the sizes (S, M) of pools, and `within` (K, M): 1 for the budget of each, else 0."""
        n = within.sum(1)
        factor = torch.where(n > 0, sizes @ within.T / n.clamp(min=1) / self.targets, 1) ** POWER
        self.values = torch.maximum(self.values * factor, self._least)

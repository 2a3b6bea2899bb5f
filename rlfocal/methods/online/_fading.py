"""Arms that forget: every statistic of every arm loses weight with each document."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlfocal.base.arrays import Floats
from rlfocal.base.errors import InputError
from rlfocal.methods.online._bandits import Arms


@dataclass(frozen=True)
class FadingArms(Arms):
    """With each document, A becomes γ A + x xᵀ + (1 - γ) I, B γ² B + x xᵀ + (1 - γ²) I, and b γ b + r x.

    x and r are 0 for arms that were not called, so that these become uncertain again. The variance of θ · x
    is xᵀ A⁻¹ B A⁻¹ x (Russac et al., 2019). At γ = 1, they learn as `Arms` do.
    """

    matrices: Floats
    """(N, K, K) A"""
    squares: Floats
    """(N, K, K) B"""
    gamma: float
    """γ"""

    @classmethod
    def after(cls, arms: Arms, gamma: float, method: str) -> FadingArms:
        """The same arms, which forget from now on. Raises InputError for a γ outside (0, 1]."""
        if not 0 < gamma <= 1:
            raise InputError(f"{method}: gamma={gamma:g}; give a discount above 0, up to 1")
        matrices = np.linalg.inv(arms.inverses).astype(np.float64)
        return cls(arms.inverses, arms.sums, matrices, matrices.copy(), gamma)

    def copy(self) -> FadingArms:
        mine = self.inverses.copy(), self.sums.copy()
        return FadingArms(*mine, self.matrices.copy(), self.squares.copy(), self.gamma)

    def variances(self, context: Floats) -> Floats:
        along = self.inverses @ context
        found: Floats = np.einsum("ni,nij,nj->n", along, self.squares, along)
        return np.asarray(np.maximum(found, 0.0))

    def learn(self, arm: int, context: Floats, reward: float) -> None:
        for parts, gamma in ((self.matrices, self.gamma), (self.squares, self.gamma**2)):
            parts *= gamma
            parts += (1 - gamma) * np.eye(len(context))
            parts[arm] += np.outer(context, context)
        self.inverses[:] = np.linalg.inv(self.matrices)
        self.sums[:] *= self.gamma
        self.sums[arm] += reward * context

"""Adam for seeds side by side, and the multiplier that holds mean pools to their budgets."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class StackedAdam:
    """Minimises over the parameters of some networks, (S, ...) each.

    They are moved into one matrix (S, P), so that a step is a handful of operations whatever the number of
    layers. A seed's gradient is scaled down to `max_norm` network by network. Each network may have its own
    rate.
    """

    def __init__(
        self, networks: Sequence[nn.Module], rate: float | Sequence[float], max_norm: float = torch.inf
    ) -> None:
        self.parameters = [p for network in networks for p in network.parameters()]
        self.max_norm = torch.tensor(max_norm)
        self.values = torch.cat([p.detach().flatten(1) for p in self.parameters], 1)
        self.mean, self.square = torch.zeros_like(self.values), torch.zeros_like(self.values)
        self.steps = 0
        self._widths = [sum(p[0].numel() for p in network.parameters()) for network in networks]
        rates = [rate] * len(networks) if isinstance(rate, float) else rate
        self.rate = torch.tensor(rates).repeat_interleave(torch.tensor(self._widths))
        parts = torch.split(self.values, [p[0].numel() for p in self.parameters], 1)
        for p, part in zip(self.parameters, parts, strict=True):
            p.data = part.view(p.shape)

    def descend(self, loss: Tensor, share: float = 1.0) -> list[Tensor]:
        """One step down the gradient of the loss, a sum over seeds, at this share of the rates. Returns the
        gradient's norm (S,) for each network, before it is scaled down."""
        gradients = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
        return self.step(gradients, share)

    @torch.no_grad()
    def step(self, by_parameter: Sequence[Tensor], share: float = 1.0) -> list[Tensor]:
        """The same down these gradients, shaped like the parameters."""
        gradients, norms = self._clip(by_parameter)
        self.steps += 1
        first, second = (1 - beta**self.steps for beta in BETAS)
        self.mean.lerp_(gradients, 1 - BETAS[0])
        self.square.lerp_(gradients.square_(), 1 - BETAS[1])
        deviation = (self.square / second).sqrt_().add_(EPSILON)
        self.values.sub_((self.mean / deviation).mul_(self.rate * (share / first)))
        return norms

    def _clip(self, by_parameter: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """(S, P) gradients, scaled down seed by seed and network by network, and their norms before, (S,)."""
        gradients = torch.cat([g.flatten(1) for g in by_parameter], 1)
        norms = []
        for own in torch.split(gradients, self._widths, 1):
            norm = own.square().sum(1, keepdim=True).sqrt_()
            own.mul_((self.max_norm / (norm + 1e-6)).clamp_(max=1.0))
            norms.append(norm[:, 0])
        return gradients, norms

    def state(self) -> dict[str, Tensor]:
        """What later steps depend on besides the values themselves."""
        return {"mean": self.mean, "square": self.square, "steps": torch.tensor(self.steps)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """The inverse of `state`."""
        self.mean.copy_(state["mean"])
        self.square.copy_(state["square"])
        self.steps = int(state["steps"])


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
        """Adapts to the sizes (S, M) of pools, and `within` (K, M): 1 for the budget of each, else 0."""
        n = within.sum(1)
        factor = torch.where(n > 0, sizes @ within.T / n.clamp(min=1) / self.targets, 1) ** POWER
        self.values = torch.maximum(self.values * factor, self._least)

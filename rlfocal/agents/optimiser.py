"""Adam for networks of several seeds side by side, each seed at its own rate and its own gradient norm."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class StackedAdam:
    """Minimises over the parameters of some networks, (S, ...) each.

    They are moved into one matrix (S, P), so that a step is a handful of operations whatever the number of
    layers. `rates` and `max_norms` are (S,); a seed's gradient is scaled down to its norm network by network.
    """

    def __init__(self, networks: Sequence[nn.Module], rates: Tensor, max_norms: Tensor) -> None:
        self.parameters = [p for network in networks for p in network.parameters()]
        self.rates, self.max_norms = rates[:, None], max_norms[:, None]
        self.values = torch.cat([p.detach().flatten(1) for p in self.parameters], 1)
        self.mean, self.square = torch.zeros_like(self.values), torch.zeros_like(self.values)
        self.steps = 0
        self._widths = [sum(p[0].numel() for p in network.parameters()) for network in networks]
        parts = torch.split(self.values, [p[0].numel() for p in self.parameters], 1)
        for p, part in zip(self.parameters, parts, strict=True):
            p.data = part.view(p.shape)

    def descend(self, loss: Tensor) -> None:
        """One step down the gradient of the loss, a sum over seeds."""
        self.step(torch.autograd.grad(loss, self.parameters))

    @torch.no_grad()
    def step(self, by_parameter: Sequence[Tensor]) -> None:
        """One step down these gradients, shaped like the parameters."""
        gradients = self.clipped(by_parameter)
        self.steps += 1
        first, second = (1 - beta**self.steps for beta in BETAS)
        self.mean.lerp_(gradients, 1 - BETAS[0])
        self.square.lerp_(gradients.square_(), 1 - BETAS[1])
        deviation = (self.square / second).sqrt_().add_(EPSILON)
        self.values.sub_((self.mean / deviation).mul_(self.rates / first))

    def clipped(self, by_parameter: Sequence[Tensor]) -> Tensor:
        """(S, P) each seed's gradient of each network scaled down to its norm, whatever other seeds have."""
        gradients = torch.cat([g.flatten(1) for g in by_parameter], 1)
        for own in torch.split(gradients, self._widths, 1):
            norm = own.square().sum(1, keepdim=True).sqrt_()
            own.mul_((self.max_norms / (norm + 1e-6)).clamp_(max=1.0))
        return gradients

    def state(self) -> dict[str, Tensor]:
        """What a later step depends on, beside the values themselves."""
        return {"mean": self.mean, "square": self.square, "steps": torch.tensor(self.steps)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """The inverse of `state`."""
        self.mean.copy_(state["mean"])
        self.square.copy_(state["square"])
        self.steps = int(state["steps"])

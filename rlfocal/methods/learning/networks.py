"""Networks as MAPPO starts them, and Adam on all parameters at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class Linear(nn.Module):
    """A linear layer: Xavier-uniform weights (n_in, n_out), `gain` times as large, and one row of biases."""

    def __init__(self, n_in: int, n_out: int, generator: torch.Generator, gain: float = 1.0) -> None:
        super().__init__()
        bound = gain * (6 / (n_in + n_out)) ** 0.5
        self.weight = nn.Parameter((torch.rand(n_in, n_out, generator=generator) * 2 - 1) * bound)
        self.bias = nn.Parameter(torch.full((1, n_out), 0.01))

    def forward(self, x: Tensor) -> Tensor:
        """(B, n_in) -> (B, n_out)."""
        return torch.addmm(self.bias, x, self.weight)


def mlp(sizes: Sequence[int], generator: torch.Generator, last_gain: float = 1.0) -> nn.Sequential:
    """Linear layers of these sizes with sigmoids between them: (B, sizes[0]) -> (B, sizes[-1])."""
    pairs = list(pairwise(sizes))
    layers: list[nn.Module] = []
    for n_in, n_out in pairs[:-1]:
        layers += [Linear(n_in, n_out, generator), nn.Sigmoid()]
    return nn.Sequential(*layers, Linear(*pairs[-1], generator, last_gain))


class Adam:
    """Minimises over the parameters of some networks.

    They are moved into one vector (P,), so that a step is a handful of operations whatever the number of
    layers. The gradient is scaled down to `max_norm` network by network. Each network may have its own rate.
    """

    def __init__(
        self, networks: Sequence[nn.Module], rate: float | Sequence[float], max_norm: float = torch.inf
    ) -> None:
        self.parameters = [p for network in networks for p in network.parameters()]
        self.max_norm = torch.tensor(max_norm)
        self.values = torch.cat([p.detach().flatten() for p in self.parameters])
        self.mean, self.square = torch.zeros_like(self.values), torch.zeros_like(self.values)
        self.steps = 0
        self._widths = [sum(p.numel() for p in network.parameters()) for network in networks]
        rates = [rate] * len(networks) if isinstance(rate, float) else rate
        self.rate = torch.tensor(rates).repeat_interleave(torch.tensor(self._widths))
        parts = torch.split(self.values, [p.numel() for p in self.parameters])
        for p, part in zip(self.parameters, parts, strict=True):
            p.data = part.view(p.shape)

    def descend(self, loss: Tensor, share: float = 1.0) -> list[Tensor]:
        """One step down the gradient of the loss, at this share of the rates. Returns the gradient's norm for
        each network, before it is scaled down."""
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
        """(P,) gradients, scaled down network by network, and their norms before."""
        gradients = torch.cat([g.flatten() for g in by_parameter])
        norms = []
        for own in torch.split(gradients, self._widths):
            norm = own.square().sum().sqrt_()
            own.mul_((self.max_norm / (norm + 1e-6)).clamp_(max=1.0))
            norms.append(norm)
        return gradients, norms

    def state(self) -> dict[str, Tensor]:
        """What later steps depend on besides the values themselves."""
        return {"mean": self.mean, "square": self.square, "steps": torch.tensor(self.steps)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """The inverse of `state`."""
        self.mean.copy_(state["mean"])
        self.square.copy_(state["square"])
        self.steps = int(state["steps"])


@contextmanager
def one_thread() -> Iterator[None]:
    """For products this small, threads cost more than they gain, and their number would change sums.

    Applies to torch and to numpy's and scipy's linear algebra.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)

"""The three networks, each a stack of one MLP per seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rlfocal.agents.config import RLFocalConfig


class StackedMLP(nn.Module):
    """S independent MLPs of one shape, sigmoid between layers; weights carry the seed as leading dimension.

    Xavier-uniform weights and biases of 0.01, each seed's drawn from its own generator.
    """

    def __init__(self, sizes: Sequence[int], generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        pairs = list(pairwise(sizes))
        draws = [[_xavier(n_in, n_out, generator) for n_in, n_out in pairs] for generator in generators]
        self.weights: Iterable[nn.Parameter] = nn.ParameterList(
            [nn.Parameter(torch.stack(layer)) for layer in zip(*draws, strict=True)]
        )
        self.biases: Iterable[nn.Parameter] = nn.ParameterList(
            [nn.Parameter(torch.full((len(generators), 1, n_out), 0.01)) for _, n_out in pairs]
        )

    def forward(self, x: Tensor) -> Tensor:
        """(S, B, sizes[0]) -> (S, B, sizes[-1])."""
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = x if layer == 0 else torch.sigmoid(x)
            x = torch.baddbmm(bias, hidden, weight)
        return x


def _xavier(n_in: int, n_out: int, generator: torch.Generator) -> Tensor:
    bound = (6 / (n_in + n_out)) ** 0.5
    return (torch.rand(n_in, n_out, generator=generator) * 2 - 1) * bound


class Sizes(NamedTuple):
    """What the shapes of the networks follow from."""

    models: int
    slots: int
    metrics: int
    past_rewards: int

    @property
    def decider(self) -> int:
        """Length of o^Dec = [pool; metrics; size]."""
        return self.models + self.metrics + 1

    @property
    def fusion(self) -> int:
        """Length of o^Fus = [distributions of the selected; past rewards]."""
        return self.models * self.slots + self.past_rewards


class Agents(nn.Module):
    """Decider (a trunk shared by one Bernoulli branch per model), Fusion and the central critic."""

    def __init__(self, sizes: Sizes, config: RLFocalConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.decider = StackedMLP([sizes.decider, *config.decider_hidden, sizes.models], generators)
        self.fusion = StackedMLP([sizes.fusion, *config.fusion_hidden, sizes.slots], generators)
        self.critic = StackedMLP([sizes.decider + sizes.fusion, *config.critic_hidden, 1], generators)

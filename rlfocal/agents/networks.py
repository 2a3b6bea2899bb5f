"""The three networks, each a stack of one MLP per seed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rlfocal.agents.config import RLFocalConfig


class StackedLinear(nn.Module):
    """S independent linear layers, the seed as leading dimension, each drawn from its seed's generator."""

    def __init__(self, n_in: int, n_out: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        bound = (6 / (n_in + n_out)) ** 0.5  # Xavier-uniform
        draws = [torch.rand(n_in, n_out, generator=generator) for generator in generators]
        self.weight = nn.Parameter((torch.stack(draws) * 2 - 1) * bound)
        self.bias = nn.Parameter(torch.full((len(generators), 1, n_out), 0.01))

    def forward(self, x: Tensor) -> Tensor:
        """(S, B, n_in) -> (S, B, n_out)."""
        return torch.baddbmm(self.bias, x, self.weight)


def stacked_mlp(sizes: Sequence[int], generators: Sequence[torch.Generator]) -> nn.Sequential:
    """Linear layers of these sizes with sigmoids between them: (S, B, sizes[0]) -> (S, B, sizes[-1])."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [StackedLinear(n_in, n_out, generators), nn.Sigmoid()]
    return nn.Sequential(*layers[:-1])


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
        self.decider = stacked_mlp([sizes.decider, *config.decider_hidden, sizes.models], generators)
        self.fusion = stacked_mlp([sizes.fusion, *config.fusion_hidden, sizes.slots], generators)
        self.critic = stacked_mlp([sizes.decider + sizes.fusion, *config.critic_hidden, 1], generators)

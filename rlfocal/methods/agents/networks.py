"""Stacked networks: one MLP per seed, the seed as leading dimension."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn


class StackedLinear(nn.Module):
    """S independent linear layers, the seed as leading dimension, each drawn from its seed's generator."""

    def __init__(
        self, n_in: int, n_out: int, generators: Sequence[torch.Generator], gain: float = 1.0
    ) -> None:
        super().__init__()
        bound = gain * (6 / (n_in + n_out)) ** 0.5  # Xavier-uniform
        draws = [torch.rand(n_in, n_out, generator=generator) for generator in generators]
        self.weight = nn.Parameter((torch.stack(draws) * 2 - 1) * bound)
        self.bias = nn.Parameter(torch.full((len(generators), 1, n_out), 0.01))

    def forward(self, x: Tensor) -> Tensor:
        """(S, B, n_in) -> (S, B, n_out)."""
        return torch.baddbmm(self.bias, x, self.weight)


def stacked_mlp(
    sizes: Sequence[int], generators: Sequence[torch.Generator], last_gain: float = 1.0
) -> nn.Sequential:
    """Linear layers of these sizes with sigmoids between them: (S, B, sizes[0]) -> (S, B, sizes[-1])."""
    pairs = list(pairwise(sizes))
    layers: list[nn.Module] = []
    for n_in, n_out in pairs[:-1]:
        layers += [StackedLinear(n_in, n_out, generators), nn.Sigmoid()]
    return nn.Sequential(*layers, StackedLinear(*pairs[-1], generators, last_gain))


class Sizes(NamedTuple):
    """The sizes that determine the networks' shapes."""

    models: int
    slots: int
    metrics: int
    past_rewards: int
    question: int = 0
    """Features of a question, known before any model is asked."""

    @property
    def decider(self) -> int:
        """Length of o^Dec = [pool; metrics; size; question]."""
        return self.models + self.metrics + 1 + self.question

    @property
    def fusion(self) -> int:
        """Length of o^Fus = [distributions of the selected; past rewards; question]."""
        return self.models * self.slots + self.past_rewards + self.question


def weights_of_seed(stacked: nn.Module, at: int) -> dict[str, Tensor]:
    """The `at`-th seed's state, with a leading dimension of 1."""
    return {name: value[at : at + 1].clone() for name, value in stacked.state_dict().items()}

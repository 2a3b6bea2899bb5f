"""The released networks, each a stack of one MLP per seed; 17,276 weights for eight models, four choices."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rlfocal.agents.rl_focal_released.config import ReleasedConfig
from rlfocal.agents.shared.networks import Sizes, StackedLinear, stacked_mlp


class ReleasedNetworks(nn.Module):
    """Decider (ReLU layers and a two-way softmax per model) and Fusion; a critic for each if switched on."""

    def __init__(self, sizes: Sizes, config: ReleasedConfig, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.sizes = sizes
        layers: list[nn.Module] = []
        width = sizes.decider
        for hidden in config.decider_hidden:
            layers += [_torch_linear(width, hidden, generators), nn.ReLU()]
            width = hidden
        self.decider = nn.Sequential(*layers, _torch_linear(width, 2 * sizes.models, generators))
        self.fusion = stacked_mlp([sizes.fusion, *config.fusion_hidden, sizes.slots], generators)
        self.critics = nn.ModuleDict()
        if not config.artefacts.no_critic:
            for phase, width in (("decider", sizes.decider), ("fusion", sizes.fusion)):
                self.critics[phase] = stacked_mlp([width, 64, 1], generators)

    def pool_log_probs(self, decider: Tensor) -> Tensor:
        """(S, B, N, 2) log-probabilities of leaving a model out and of asking it."""
        logits: Tensor = self.decider(decider)
        return torch.log_softmax(logits.view(*logits.shape[:2], self.sizes.models, 2), -1)

    def slot_logits(self, fusion: Tensor) -> Tensor:
        """(S, B, C)"""
        logits: Tensor = self.fusion(fusion)
        return logits


def _torch_linear(n_in: int, n_out: int, generators: Sequence[torch.Generator]) -> StackedLinear:
    """A layer initialised as torch's own: weights and biases uniform within ±1/sqrt(n_in)."""
    layer = StackedLinear(n_in, n_out, generators, gain=((n_in + n_out) / (6 * n_in)) ** 0.5)
    biases = [torch.rand(1, n_out, generator=generator) for generator in generators]
    layer.bias = nn.Parameter((torch.stack(biases) * 2 - 1) * n_in**-0.5)
    return layer

"""Agents of `rl_focal_released` as named tensors and a header, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import model_validator
from torch import Tensor

from rlfocal.agents.rl_focal_released.agents import ReleasedAgents
from rlfocal.agents.rl_focal_released.config import ReleasedConfig
from rlfocal.agents.rl_focal_released.networks import ReleasedNetworks
from rlfocal.agents.storage.stored_networks import (
    NetworksHeader,
    network_tensors,
    read_memory,
    read_networks,
)


class ReleasedHeader(NetworksHeader):
    """Of `rl_focal_released`."""

    method: Literal["rl_focal_released"] = "rl_focal_released"
    config: ReleasedConfig

    @model_validator(mode="after")
    def _fits(self) -> ReleasedHeader:
        config = self.config
        self.refuse_other_sizes(config.n_observed, config.past_rewards, config.answer_slots)
        return self


def to_parts(agents: ReleasedAgents) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, and what JSON can hold."""
    return network_tensors(agents.networks, agents.memory), ReleasedHeader.about(agents)


def from_parts(header: ReleasedHeader, tensors: Mapping[str, Tensor]) -> ReleasedAgents:
    """The inverse of `to_parts`. Raises UnusableError for tensors that are not such agents'."""
    networks = read_networks(
        lambda: ReleasedNetworks(header.sizes, header.config, [torch.Generator()]), tensors
    )
    return ReleasedAgents(networks=networks, memory=read_memory(header, tensors), **header.fields())

"""Agents of `rl_focal` as named tensors and a header, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import model_validator
from torch import Tensor

from rlfocal.agents.rl_focal.agents import RLFocalAgents
from rlfocal.agents.rl_focal.config import RLFocalConfig
from rlfocal.agents.rl_focal.networks import Networks
from rlfocal.agents.storage.stored_networks import (
    NetworksHeader,
    network_tensors,
    read_memory,
    read_networks,
)


class RLFocalHeader(NetworksHeader):
    """Of `rl_focal`."""

    method: Literal["rl_focal"] = "rl_focal"
    config: RLFocalConfig

    @model_validator(mode="after")
    def _fits(self) -> RLFocalHeader:
        config = self.config
        self.refuse_other_sizes(config.n_observed, config.past_rewards, config.answer_slots)
        return self


def to_parts(agents: RLFocalAgents) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, and what JSON can hold."""
    return network_tensors(agents.networks, agents.memory), RLFocalHeader.about(agents)


def from_parts(header: RLFocalHeader, tensors: Mapping[str, Tensor]) -> RLFocalAgents:
    """The inverse of `to_parts`. Raises UnusableError for tensors that are not such agents'."""
    networks = read_networks(lambda: Networks(header.sizes, header.config, [torch.Generator()]), tensors)
    return RLFocalAgents(networks=networks, memory=read_memory(header, tensors), **header.fields())

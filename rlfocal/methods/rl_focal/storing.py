"""Agents that choose one pool per document as named tensors and a header, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from rlfocal.methods.learning.queries import query_tensors, read_queries
from rlfocal.methods.learning.store import Header, under
from rlfocal.methods.rl_focal.agents import PoolAgents
from rlfocal.methods.rl_focal.config import GatedConfig, RLFocalConfig
from rlfocal.methods.rl_focal.environment import Memory
from rlfocal.methods.rl_focal.networks import Networks, Sizes
from rlfocal.methods.rl_focal.questions import Questions, limits

Config = TypeVar("Config", RLFocalConfig, GatedConfig)


class PoolHeader(Header, Generic[Config]):
    """The header of agents that choose one pool per document."""

    config: Config
    sizes: Sizes
    tasks: tuple[str, ...]
    """Train tasks that the agents tell apart."""


def to_parts(agents: PoolAgents) -> dict[str, Tensor]:
    """Tensors by name."""
    tensors = {f"agents.{name}": value for name, value in agents.networks.state_dict().items()}
    tensors |= {f"memory.{name}": value for name, value in agents.memory._asdict().items()}
    if agents.questions is not None:
        tensors |= query_tensors(agents.questions.queries)
    return tensors


def from_parts(agents: type[PoolAgents], header: PoolHeader[Any], tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `to_parts`."""
    with torch.device("meta"):
        networks = Networks(header.sizes, header.config, [torch.Generator()], header.kind)
    networks.load_state_dict(under("agents.", tensors), assign=True)
    fields, questions = header.fields(), None
    tasks = fields.pop("tasks")
    if header.config.shape.sees_questions:
        budgets = limits(header.config, len(header.models))
        questions = Questions(read_queries(tensors), tasks, budgets)
    memory = Memory(**under("memory.", tensors))
    return agents(networks=networks, memory=memory, questions=questions, **fields)

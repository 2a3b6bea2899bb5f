"""The variants of agents that choose one pool per document: their headers, checkpoints and training."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from pydantic import Field
from torch import Tensor

from rlfocal.methods.fallback import PolicyName
from rlfocal.methods.learning.agents import Variant
from rlfocal.methods.learning.queries import query_tensors, read_queries
from rlfocal.methods.learning.store import Header, UnusableError, select_tensors
from rlfocal.methods.rl_focal.agents import GatedAgents, PoolAgents, PoolDriver, RLFocalAgents
from rlfocal.methods.rl_focal.candidates import SimplePolicies
from rlfocal.methods.rl_focal.config import GatedConfig, RLFocalConfig
from rlfocal.methods.rl_focal.environment import Memory
from rlfocal.methods.rl_focal.gated import train as train_gated
from rlfocal.methods.rl_focal.networks import Networks, Sizes
from rlfocal.methods.rl_focal.questions import Questions, limits
from rlfocal.methods.rl_focal.training import train

Config = TypeVar("Config", RLFocalConfig, GatedConfig)


class PoolHeader(Header, Generic[Config]):
    """The header in a checkpoint of agents that choose one pool per document."""

    config: Config
    sizes: Sizes
    tasks: tuple[str, ...]
    """The train tasks that have a question feature."""
    deciding_policies: tuple[PolicyName, ...] = Field((), alias="kept")
    """The policy that decides within each budget, and last without one; empty without simple policies."""
    order: tuple[int, ...] = ()
    """(N,) the position among `models` of each model in the networks' order; empty if both are equal."""


def _to_parts(agents: PoolAgents) -> dict[str, Tensor]:
    """The tensors of the agents, by their names in a checkpoint; networks' have a leading dimension of 1."""
    tensors = {f"agents.{name}": value[None] for name, value in agents.networks.state_dict().items()}
    tensors |= {f"memory.{name}": value for name, value in agents.memory._asdict().items()}
    if agents.questions is not None:
        tensors |= query_tensors(agents.questions.queries)
    if agents.simple_policies is not None:
        parts = agents.simple_policies._asdict().items()
        tensors |= {f"floor.{name}": value for name, value in parts if isinstance(value, Tensor)}
    return tensors


def _from_parts(agents: type[PoolAgents], header: PoolHeader[Any], tensors: Mapping[str, Tensor]) -> Any:
    """The agents of this class, from a checkpoint's header and the tensors that `_to_parts` returned."""
    with torch.device("meta"):
        networks = Networks(header.sizes, header.config, torch.Generator(), header.kind)
    stored = {name: value.squeeze(0) for name, value in select_tensors("agents.", tensors).items()}
    networks.load_state_dict(stored, assign=True)
    fields, questions = header.fields(), None
    tasks, deciding = fields.pop("tasks"), fields.pop("deciding_policies")
    if header.config.shape.sees_questions:
        budgets = limits(header.config, len(header.models))
        questions = Questions(read_queries(tensors), tasks, budgets)
    memory = Memory(**select_tensors("memory.", tensors))
    simple = (
        SimplePolicies(**select_tensors("floor.", tensors), deciding_policies=deciding) if deciding else None
    )
    if simple is not None and len({part is None for part in simple[3:]}) > 1:
        raise UnusableError("the file has only a part of the simple policies")
    return agents(networks=networks, memory=memory, questions=questions, simple_policies=simple, **fields)


RL_FOCAL_VARIANT = Variant(
    PoolHeader[RLFocalConfig], train, _to_parts, partial(_from_parts, RLFocalAgents), PoolDriver
)
GATED_VARIANT = Variant(
    PoolHeader[GatedConfig], train_gated, _to_parts, partial(_from_parts, GatedAgents), PoolDriver
)

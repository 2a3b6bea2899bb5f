"""RL-Focal's variants by method name: how each is trained, stored, and driven by a Router."""

from __future__ import annotations

from functools import partial
from typing import Any

from rlfocal.methods.agents.variant import Variant
from rlfocal.methods.gated_log_linear.training import train as train_gated
from rlfocal.methods.rl_focal import storing
from rlfocal.methods.rl_focal.agents import LiteralAgents, RLFocalAgents
from rlfocal.methods.rl_focal.config import GatedConfig, RLFocalConfig
from rlfocal.methods.rl_focal.training import train_agents
from rlfocal.methods.rl_focal_sequential import storing as sequential
from rlfocal.methods.rl_focal_sequential.training import train as train_sequential
from rlfocal.methods.trained.drivers import PoolDriver, StageDriver


def _of_pools(config: Any, train: Any) -> Variant:
    return Variant(storing.PoolHeader[config], train, storing.to_parts, storing.from_parts, PoolDriver)


VARIANTS = {
    "rl_focal": _of_pools(RLFocalConfig, partial(train_agents, RLFocalAgents)),
    "rl_focal_sequential": Variant(
        sequential.SequentialHeader, train_sequential, sequential.to_parts, sequential.from_parts, StageDriver
    ),
    "gated_log_linear": _of_pools(GatedConfig, train_gated),
    "rl_focal_literal": _of_pools(RLFocalConfig, partial(train_agents, LiteralAgents)),
}

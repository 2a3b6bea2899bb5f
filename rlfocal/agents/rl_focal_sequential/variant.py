"""The method `rl_focal_sequential`."""

from __future__ import annotations

from rlfocal.agents.rl_focal_sequential.agents import SequentialAgents
from rlfocal.agents.rl_focal_sequential.driver import StageDriver
from rlfocal.agents.rl_focal_sequential.storing import SequentialHeader, from_parts, to_parts
from rlfocal.agents.rl_focal_sequential.training import train
from rlfocal.agents.shared.variant import Variant

RL_FOCAL_SEQUENTIAL = Variant(
    method=SequentialAgents.method,
    header=SequentialHeader,
    train=train,
    to_parts=to_parts,
    from_parts=from_parts,
    driver=StageDriver,
)

"""The method `rl_focal`."""

from __future__ import annotations

from rlfocal.agents.rl_focal.agents import RLFocalAgents
from rlfocal.agents.rl_focal.driver import PoolDriver
from rlfocal.agents.rl_focal.storing import RLFocalHeader, from_parts, to_parts
from rlfocal.agents.rl_focal.training import train
from rlfocal.agents.shared.variant import Variant

RL_FOCAL = Variant(
    method=RLFocalAgents.method,
    header=RLFocalHeader,
    train=train,
    to_parts=to_parts,
    from_parts=from_parts,
    driver=PoolDriver,
)

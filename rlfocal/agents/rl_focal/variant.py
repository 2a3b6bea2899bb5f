"""The methods `rl_focal` and `rl_focal_literal`."""

from __future__ import annotations

from functools import partial

from rlfocal.agents.rl_focal.agents import LiteralAgents, RLFocalAgents
from rlfocal.agents.rl_focal.driver import PoolDriver
from rlfocal.agents.rl_focal.storing import LiteralHeader, RLFocalHeader, from_parts, to_parts
from rlfocal.agents.rl_focal.training import train
from rlfocal.agents.shared.variant import Variant

RL_FOCAL, RL_FOCAL_LITERAL = (
    Variant(
        method=agents.method,
        header=header,
        train=partial(train, agents=agents),
        to_parts=to_parts,
        from_parts=from_parts,
        driver=PoolDriver,
    )
    for agents, header in ((RLFocalAgents, RLFocalHeader), (LiteralAgents, LiteralHeader))
)

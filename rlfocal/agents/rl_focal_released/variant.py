"""The method `rl_focal_released`."""

from __future__ import annotations

from rlfocal.agents.rl_focal_released.agents import ReleasedAgents
from rlfocal.agents.rl_focal_released.storing import ReleasedHeader, from_parts, to_parts
from rlfocal.agents.rl_focal_released.training import train
from rlfocal.agents.shared.variant import Driver, Variant
from rlfocal.errors import InputError


def _no_driver(agents: ReleasedAgents) -> Driver:
    raise InputError(
        "a Router takes agents of rl_focal or rl_focal_sequential; these are of rl_focal_released"
    )


RL_FOCAL_RELEASED = Variant(
    method=ReleasedAgents.method,
    header=ReleasedHeader,
    train=train,
    to_parts=to_parts,
    from_parts=from_parts,
    driver=_no_driver,
)

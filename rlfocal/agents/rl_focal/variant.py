"""The methods `rl_focal`, `rl_focal_literal` and `rl_focal_released`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rlfocal.agents.rl_focal.agents import LiteralAgents, RLFocalAgents
from rlfocal.agents.rl_focal.driver import PoolDriver
from rlfocal.agents.rl_focal.released_agents import ReleasedAgents
from rlfocal.agents.rl_focal.storing import (
    LiteralHeader,
    PoolHeader,
    ReleasedHeader,
    RLFocalHeader,
    from_parts,
    to_parts,
)
from rlfocal.agents.rl_focal.training import train_agents
from rlfocal.agents.shared.variant import Driver, Variant
from rlfocal.errors import InputError


def _no_driver(agents: ReleasedAgents) -> Driver:
    raise InputError(
        "a Router takes agents of rl_focal or rl_focal_sequential; these are of rl_focal_released"
    )


_ALL: tuple[tuple[Any, type[PoolHeader], Callable[[Any], Driver]], ...] = (
    (RLFocalAgents, RLFocalHeader, PoolDriver),
    (LiteralAgents, LiteralHeader, PoolDriver),
    (ReleasedAgents, ReleasedHeader, _no_driver),
)
RL_FOCAL, RL_FOCAL_LITERAL, RL_FOCAL_RELEASED = (
    Variant(
        method=agents.method,
        header=header,
        train=partial(train_agents, agents),
        to_parts=to_parts,
        from_parts=from_parts,
        driver=driver,
    )
    for agents, header, driver in _ALL
)

"""RL-Focal's variants by name."""

from __future__ import annotations

from rlfocal.agents.rl_focal.variant import PAPER
from rlfocal.agents.rl_focal_released.variant import RELEASED
from rlfocal.agents.rl_focal_sequential.variant import SEQUENTIAL
from rlfocal.agents.shared.variant import Variant
from rlfocal.errors import unknown

BY_NAME = {one.name: one for one in (SEQUENTIAL, PAPER, RELEASED)}


def variant(name: str) -> Variant:
    """The variant of that name. Raises InputError for an unknown one."""
    if name not in BY_NAME:
        raise unknown("variant", name, BY_NAME)
    return BY_NAME[name]

"""The trained agents that choose one pool per document, as `variants` trains, keeps and runs them."""

from __future__ import annotations

from functools import partial

from rlfocal.methods.learning.variant import Variant
from rlfocal.methods.rl_focal.agents import (
    GatedAgents,
    PoolDriver,
    PoolHeader,
    RLFocalAgents,
    from_parts,
    to_parts,
)
from rlfocal.methods.rl_focal.config import GatedConfig, RLFocalConfig
from rlfocal.methods.rl_focal.gated import train as train_gated
from rlfocal.methods.rl_focal.training import train

RL_FOCAL_VARIANT = Variant(
    PoolHeader[RLFocalConfig], train, to_parts, partial(from_parts, RLFocalAgents), PoolDriver
)
GATED_VARIANT = Variant(
    PoolHeader[GatedConfig], train_gated, to_parts, partial(from_parts, GatedAgents), PoolDriver
)

"""The method `gated_log_linear`."""

from __future__ import annotations

from rlfocal.agents.gated_log_linear.training import train
from rlfocal.agents.rl_focal.driver import PoolDriver
from rlfocal.agents.rl_focal.storing import GatedHeader, from_parts, to_parts
from rlfocal.agents.shared.variant import Variant

GATED_LOG_LINEAR = Variant(
    method="gated_log_linear",
    header=GatedHeader,
    train=train,
    to_parts=to_parts,
    from_parts=from_parts,
    driver=PoolDriver,
)

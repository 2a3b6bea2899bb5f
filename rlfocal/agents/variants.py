"""RL-Focal's variants by method name."""

from __future__ import annotations

from rlfocal.agents.gated_log_linear.variant import GATED_LOG_LINEAR
from rlfocal.agents.rl_focal.variant import RL_FOCAL, RL_FOCAL_LITERAL, RL_FOCAL_RELEASED
from rlfocal.agents.rl_focal_sequential.variant import RL_FOCAL_SEQUENTIAL
from rlfocal.agents.shared.variant import Variant

VARIANTS: dict[str, Variant] = {
    one.method: one
    for one in (RL_FOCAL, RL_FOCAL_SEQUENTIAL, GATED_LOG_LINEAR, RL_FOCAL_LITERAL, RL_FOCAL_RELEASED)
}

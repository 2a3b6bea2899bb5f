"""The variant of agents that ask model after model: their header, checkpoints and training."""

from __future__ import annotations

from rlfocal.methods.learning.variant import Variant
from rlfocal.methods.rl_focal_sequential.agents import SequentialHeader, StageDriver, from_parts, to_parts
from rlfocal.methods.rl_focal_sequential.training import train

SEQUENTIAL_VARIANT = Variant(SequentialHeader, train, to_parts, from_parts, StageDriver)

"""Names that the command line must know without importing what they stand for."""

from __future__ import annotations

from typing import Literal

Backend = Literal["vllm", "hf", "openai", "chat"]
Per = Literal["benchmark", "task"]
Protocol = Literal["frozen", "online"]

RL_FOCAL = ("rl_focal", "rl_focal_sequential", "rl_focal_literal", "rl_focal_released")
"""RL-Focal's methods; the first two run by default."""
TRAINED = (*RL_FOCAL, "gated_log_linear")
"""All that are trained to a checkpoint, as in `rlfocal.methods.trained.variants`."""
WITHOUT_TEXTS = {f"{name}-text": name for name in (*RL_FOCAL[:2], "gated_log_linear")}
"""Controls: the same method trained without the questions' texts, which shows what reading them is worth."""

"""RL-Focal's agents: a folder for each variant, and one for what they share.

Only names are here, because listing them must not import torch.
"""

RL_FOCAL = ("rl_focal", "rl_focal_sequential", "gated_log_linear", "rl_focal_literal", "rl_focal_released")
"""The trained agents, as in `rlfocal.agents.variants`; the first three run by default."""
WITHOUT_TEXTS = {f"{name}-text": name for name in RL_FOCAL[:3]}
"""Controls: the same method trained without the questions' texts, which shows what reading them is worth."""

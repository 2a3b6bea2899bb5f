"""The trained agents: a folder for each variant, and one for what they share.

Only names are here, because listing them must not import torch.
"""

RL_FOCAL = ("rl_focal", "rl_focal_sequential", "rl_focal_literal", "rl_focal_released")
"""RL-Focal's methods; the first two run by default."""
TRAINED = (*RL_FOCAL, "gated_log_linear")
"""All that are trained to a checkpoint, as in `rlfocal.methods.trained.variants`."""
WITHOUT_TEXTS = {f"{name}-text": name for name in (*RL_FOCAL[:2], "gated_log_linear")}
"""Controls: the same method trained without the questions' texts, which shows what reading them is worth."""

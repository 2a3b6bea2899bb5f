"""RL-Focal's agents: a folder for each variant, and one for what they share.

Names alone stand here, because listing them must not import torch.
"""

RL_FOCAL = ("rl_focal", "rl_focal_sequential", "rl_focal_released")
"""The methods that are RL-Focal, as `rlfocal.agents.variants` has them; the first two run by default."""
WITHOUT_TEXTS = {f"{name}-text": name for name in RL_FOCAL[:2]}
"""Controls: the same method trained without the questions' texts, which shows what reading them is worth."""

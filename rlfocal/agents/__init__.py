"""RL-Focal's agents: a folder for each variant, and one for what they share.

Names alone stand here, because listing them must not import torch.
"""

VARIANTS = ("sequential", "paper", "released")
"""Of `rlfocal.agents.variants`, the default first."""

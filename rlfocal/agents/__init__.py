"""RL-Focal's agents: a folder for each variant, and one for what they share.

Names alone stand here, because listing them must not import torch.
"""

VARIANTS = ("sequential", "paper", "released")
"""Of `rlfocal.agents.variants`, the default first."""
METRICS = (
    "focal_diversity",
    "generalized_diversity",
    "plurality_accuracy",
    "fleiss_kappa",
    "q_statistic",
    "correlation",
    "disagreement",
    "kappa",
    "double_fault",
    "binary_entropy",
)
"""Of `rlfocal.agents.shared.metrics`."""

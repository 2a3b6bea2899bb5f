"""The trained agents: a folder for each variant, and one for what they share.

Only names are here, because listing them must not import torch.
"""

from rlfocal.base.names import RL_FOCAL as RL_FOCAL
from rlfocal.base.names import TRAINED as TRAINED

WITHOUT_TEXTS = {f"{name}-text": name for name in (*RL_FOCAL[:2], "gated_log_linear")}
"""Controls: the same method trained without the questions' texts, which shows what reading them is worth."""

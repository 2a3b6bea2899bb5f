"""Accuracy as the released code counts it."""

from __future__ import annotations

import numpy as np

from rlfocal.agents.rl_focal_released.config import ReleasedConfig
from rlfocal.agents.rl_focal_released.environment import is_answerable
from rlfocal.dataset import Dataset
from rlfocal.policy import Decisions

FIRST_SCORED = 2
"""The first test document that the released code scores."""


def released_accuracy(decisions: Decisions, test: Dataset, config: ReleasedConfig) -> float:
    """As the released code counts: unanswerable questions dropped, the first two of the rest not scored, and
    the right ones divided by the last index, one less than their number. NaN for fewer than two."""
    scored = np.flatnonzero(is_answerable(test, config).numpy())[FIRST_SCORED:]
    right = (decisions.predictions[scored] == test.labels[scored]).sum()
    return float(right / (len(scored) - 1)) if len(scored) > 1 else float("nan")

"""Open-ended questions: no right choice, but a score for every model's answer (paper, appendix D)."""

from __future__ import annotations

from rlfocal.openended.decider import PAPER, OpenEndedConfig, OpenEndedDecider, train_decider
from rlfocal.openended.evaluation import OpenEndedReport, evaluate_scores
from rlfocal.openended.scores import ScoreTable, read_scores

__all__ = [
    "PAPER",
    "OpenEndedConfig",
    "OpenEndedDecider",
    "OpenEndedReport",
    "ScoreTable",
    "evaluate_scores",
    "read_scores",
    "train_decider",
]

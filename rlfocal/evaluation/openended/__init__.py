"""Open-ended questions: no right choice, but a score for every model's answer (paper, appendix D)."""

from __future__ import annotations

from rlfocal.evaluation.openended.decider import PAPER, OpenEndedConfig, OpenEndedDecider, train_decider
from rlfocal.evaluation.openended.evaluation import OpenEndedReport, evaluate_scores, print_open_ended
from rlfocal.evaluation.openended.scores import ScoreTable, read_scores

__all__ = [
    "PAPER",
    "OpenEndedConfig",
    "OpenEndedDecider",
    "OpenEndedReport",
    "ScoreTable",
    "evaluate_scores",
    "print_open_ended",
    "read_scores",
    "train_decider",
]

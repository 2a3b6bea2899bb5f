"""Fits methods on train rows, decides on test rows, and stores and compares the results."""

from __future__ import annotations

from rlfocal.evaluation.planning import Candidate, Per, Progress, Setup
from rlfocal.evaluation.running import EvaluationReport, evaluate
from rlfocal.evaluation.storing import Evaluation
from rlfocal.evaluation.training import TrainingReport, train

__all__ = [
    "Candidate",
    "Evaluation",
    "EvaluationReport",
    "Per",
    "Progress",
    "Setup",
    "TrainingReport",
    "evaluate",
    "train",
]

"""Fits methods on train rows, decides on test rows, and stores and compares the results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlfocal.base.names import import_when_used
from rlfocal.evaluation.request import EvaluationRequest as EvaluationRequest

if TYPE_CHECKING:
    from rlfocal.evaluation.planning import Candidate as Candidate
    from rlfocal.evaluation.planning import Setup as Setup
    from rlfocal.evaluation.running import EvaluationReport as EvaluationReport
    from rlfocal.evaluation.running import evaluate as evaluate
    from rlfocal.evaluation.storing import Evaluation as Evaluation
    from rlfocal.evaluation.training import TrainingReport as TrainingReport
    from rlfocal.evaluation.training import train as train

__getattr__ = import_when_used(
    __name__,
    {
        "Candidate": "rlfocal.evaluation.planning",
        "Evaluation": "rlfocal.evaluation.storing",
        "EvaluationReport": "rlfocal.evaluation.running",
        "Setup": "rlfocal.evaluation.planning",
        "TrainingReport": "rlfocal.evaluation.training",
        "evaluate": "rlfocal.evaluation.running",
        "train": "rlfocal.evaluation.training",
    },
)

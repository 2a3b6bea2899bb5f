"""Fits methods on train rows, decides on test rows, and stores and compares the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from rlfocal.base import options
from rlfocal.base.names import RL_FOCAL, import_when_used
from rlfocal.base.request import Progress, check

if TYPE_CHECKING:
    from rlfocal.evaluation.fitting import TrainingReport as TrainingReport
    from rlfocal.evaluation.fitting import train as train
    from rlfocal.evaluation.planning import Candidate as Candidate
    from rlfocal.evaluation.planning import Setup as Setup
    from rlfocal.evaluation.running import EvaluationReport as EvaluationReport
    from rlfocal.evaluation.running import evaluate as evaluate
    from rlfocal.evaluation.storing import Evaluation as Evaluation

__getattr__ = import_when_used(
    __name__,
    {
        "Candidate": "rlfocal.evaluation.planning",
        "Evaluation": "rlfocal.evaluation.storing",
        "EvaluationReport": "rlfocal.evaluation.running",
        "Setup": "rlfocal.evaluation.planning",
        "TrainingReport": "rlfocal.evaluation.fitting",
        "evaluate": "rlfocal.evaluation.running",
        "train": "rlfocal.evaluation.fitting",
    },
)


@dataclass(frozen=True)
class EvaluationRequest:
    """A request to fit methods on a benchmark's train rows and to compare them on its test rows."""

    benchmark: options.Benchmark
    _: KW_ONLY
    methods: options.Methods = None
    models: options.Models = None
    seeds: options.Seeds = 3
    per: options.Per = "benchmark"
    protocol: options.ProtocolOrBoth = "frozen"
    split: options.Split = "given"
    budgets: options.Budgets = None
    settings: options.Settings = None
    tune: options.Tune = 0
    snapshot: options.Snapshot = None
    force: options.Again = False
    at_once: options.AtOnce = 1
    target_errors: options.TargetErrors = None
    beside: Sequence[str] | None = None
    """Methods of other packages to run beside rlfocal's usual ones; None: all that those packages call usual.
    """
    on_progress: Progress | None = None

    def __post_init__(self) -> None:
        check(type(self), vars(self))


@dataclass(frozen=True)
class TrainingRequest:
    """A request to train the agents of one of RL-Focal's methods; the fields are parameters of `train`."""

    benchmark: options.Benchmark
    method: options.Trained = RL_FOCAL[0]
    models: options.Models = None
    seeds: options.Seeds = 3
    per: options.Per = "benchmark"
    snapshot: options.Snapshot = None
    force: bool = False
    tensorboard: options.Tensorboard = False

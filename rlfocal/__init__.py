"""A warehouse of what a pool of LLMs answers, and RL-Focal: learn which few to ask and how to fuse them.

What the command line does, from Python (docs/python.md has a whole script):

    rlfocal.extract("lab", "lake", benchmarks=["lab-gpqa"])      # models' answers, into the warehouse lake/
    with rlfocal.open_warehouse("lake") as warehouse:
        accuracy = warehouse.query("FROM accuracy").to_pandas()  # Arrow: polars.from_arrow(...) works, too
        dataset = rlfocal.load_dataset(warehouse, "lab-gpqa")    # log-probs and labels as numpy arrays
        report = rlfocal.evaluate(warehouse, "lab-gpqa", methods=["best_single", "soft_vote"])
        trained = rlfocal.train(warehouse, "lab-gpqa", seeds=1)
    router = rlfocal.Router.load(trained.checkpoints[0])         # between your questions and your models
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlfocal.base.names import import_when_used

if TYPE_CHECKING:
    from rlfocal.data.loading import load_dataset
    from rlfocal.evaluation import evaluate, train
    from rlfocal.evaluation.auditing import audit_labels
    from rlfocal.exchange.imports.predictions import import_predictions
    from rlfocal.extraction import extract
    from rlfocal.frames import from_frame
    from rlfocal.scenarios.replaying import replay
    from rlfocal.serving import Router
    from rlfocal.statistics import agreement, calibration, ceiling, diversity, normalised
    from warehouse import open_warehouse

__version__ = "0.1.0"

__all__ = [
    "Router",
    "agreement",
    "audit_labels",
    "calibration",
    "ceiling",
    "diversity",
    "evaluate",
    "extract",
    "from_frame",
    "import_predictions",
    "load_dataset",
    "normalised",
    "open_warehouse",
    "replay",
    "train",
]

__getattr__ = import_when_used(
    __name__,
    {
        "Router": "rlfocal.serving",
        "agreement": "rlfocal.statistics.agreement",
        "audit_labels": "rlfocal.evaluation.auditing",
        "calibration": "rlfocal.statistics.calibration",
        "ceiling": "rlfocal.statistics.ceiling",
        "diversity": "rlfocal.statistics.diversity",
        "evaluate": "rlfocal.evaluation.running",
        "extract": "rlfocal.extraction.running.runner",
        "from_frame": "rlfocal.frames",
        "import_predictions": "rlfocal.exchange.imports.predictions",
        "load_dataset": "rlfocal.data.loading",
        "normalised": "rlfocal.statistics.normalised",
        "open_warehouse": "warehouse",
        "replay": "rlfocal.scenarios.replaying",
        "train": "rlfocal.evaluation.fitting",
    },
)
"""Modules load when one of their names is first used: `rlfocal --help` must not wait for DuckDB or torch."""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

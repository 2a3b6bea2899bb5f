"""Trains RL-Focal's agents on one benchmark's train rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from rlfocal.base.errors import InputError
from rlfocal.base.request import with_fields_after
from rlfocal.evaluation import EvaluationRequest, TrainingRequest
from rlfocal.evaluation.fitting import fit_groups, fitting_lock
from rlfocal.evaluation.planning import Setup, read_dataset, visible
from rlfocal.methods import RLFocal
from rlfocal.methods.registry import PLUS_TASK, entry_of
from warehouse import Warehouse


@dataclass(frozen=True)
class TrainingReport:
    """What `train` left behind."""

    checkpoints: tuple[Path, ...]
    trained: int
    """How many of them were trained now."""

    def __str__(self) -> str:
        return f"trained {self.trained}, reused {len(self.checkpoints) - self.trained}"


@with_fields_after(TrainingRequest)
def train(warehouse: Warehouse, request: TrainingRequest) -> TrainingReport:
    """Train the agents of one of RL-Focal's methods: one checkpoint per group of rows and seed.

    `rl_focal+task`: the agents of `rl_focal` that read the tasks' names, which are hidden from all others.
    With `tensorboard`, each gets a folder of its name beside it that TensorBoard reads.
    Raises InputError for another method, and as `evaluate` does.
    """
    return run_training(warehouse, request)


def run_training(warehouse: Warehouse, request: TrainingRequest) -> TrainingReport:
    """As `train` does, for a request."""
    method, seeds, force = request.method, request.seeds, request.force
    dataset = read_dataset(warehouse, request.benchmark, request.models, request.snapshot)
    own = method.removesuffix(PLUS_TASK)
    reads_task = own != method
    if reads_task and entry_of(own).with_task == "fitted per task":
        raise InputError(f"{method} has agents of their own for each task: train {own} with --per task")
    setup = Setup(
        warehouse,
        dataset,
        EvaluationRequest(request.benchmark, per=request.per, force=force, on_progress=request.on_progress),
    )
    store = replace(setup.store, event_files=request.tensorboard)
    agents = RLFocal(own, store=store, on_progress=setup.progress(f"{request.benchmark} {method}"))
    dataset = visible(dataset, setup.groups, tasks=reads_task)
    train_rows = [dataset.rows(mask & dataset.is_train) for mask in setup.groups]
    asked = [(rows, seed) for rows in train_rows for seed in range(seeds)]

    trained = 0
    # What is trained may have a history to write, or models to rename: `fit` loads it.
    if force or request.tensorboard or not all(agents.is_current(*one) for one in asked):
        with fitting_lock(setup, method):
            trained = sum(force or not agents.is_trained(*one) for one in asked)
            fit_groups(agents, dataset, setup.groups, range(seeds), tasks=reads_task)
    return TrainingReport(tuple(agents.checkpoint(*one) for one in asked), trained)

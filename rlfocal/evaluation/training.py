"""Trains RL-Focal's agents on one benchmark's train rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from rlfocal.base import options
from rlfocal.base.errors import InputError
from rlfocal.base.names import RL_FOCAL
from rlfocal.base.request import Progress, checked
from rlfocal.evaluation import EvaluationRequest
from rlfocal.evaluation.fitting import fit_groups, fitting_lock
from rlfocal.evaluation.planning import Setup, read_dataset, visible
from rlfocal.methods import RLFocal
from rlfocal.methods.learning.store import CHECKPOINT, read_about
from rlfocal.methods.registry import PLUS_TASK, entry_of
from warehouse import Warehouse


@dataclass(frozen=True)
class TrainingReport:
    """What `train` left behind."""

    checkpoints: tuple[Path, ...]
    trained: int
    """How many of them were trained now."""

    deciding: tuple[str, ...]
    """What decides in each, where no budget is given: what was learned, or a constant policy that it was not
    ahead of on held-out train documents."""

    def __str__(self) -> str:
        deciding = ", ".join(f"{name} {n}" for name, n in Counter(self.deciding).most_common())
        reused = len(self.checkpoints) - self.trained
        return f"trained {self.trained}, reused {reused}; what decides: {deciding}"


@checked
def train(
    warehouse: Warehouse,
    benchmark: options.Benchmark,
    *,
    method: options.Trained = RL_FOCAL[0],
    models: options.Models = None,
    seeds: options.Seeds = 3,
    per: options.Per = "benchmark",
    snapshot: options.Snapshot = None,
    force: bool = False,
    tensorboard: options.Tensorboard = False,
    on_progress: Progress | None = None,
) -> TrainingReport:
    """Train the agents of one of RL-Focal's methods: one checkpoint per group of rows and seed.

    `rlfocal train --help` describes the parameters; `force` trains again what is trained already.
    `rl_focal+task`: the agents of `rl_focal` that read the tasks' names, which are hidden from all others.
    With `tensorboard`, each gets a folder of its name beside it that TensorBoard reads.
    Raises InputError for another method, and as `evaluate` does.
    """
    dataset = read_dataset(warehouse, benchmark, models, snapshot)
    own = method.removesuffix(PLUS_TASK)
    reads_task = own != method
    if reads_task and entry_of(own).with_task == "fitted per task":
        raise InputError(f"{method} has agents of their own for each task: train {own} with --per task")
    request = EvaluationRequest(benchmark, per=per, force=force, on_progress=on_progress)
    setup = Setup(warehouse, dataset, request)
    store = replace(setup.store, event_files=tensorboard)
    agents = RLFocal(own, store=store, on_progress=setup.progress(f"{benchmark} {method}"))
    dataset = visible(dataset, setup.groups, tasks=reads_task)
    train_rows = [dataset.rows(mask & dataset.is_train) for mask in setup.groups]
    asked = [(rows, seed) for rows in train_rows for seed in range(seeds)]

    trained = 0
    # What is trained may have a history to write, or models to rename: `fit` loads it.
    if force or tensorboard or not all(agents.is_current(*rows_and_seed) for rows_and_seed in asked):
        with fitting_lock(setup, method):
            trained = sum(force or not agents.is_trained(*rows_and_seed) for rows_and_seed in asked)
            fit_groups(agents, dataset, setup.groups, range(seeds), tasks=reads_task)
    checkpoints = tuple(agents.checkpoint(*rows_and_seed) for rows_and_seed in asked)
    kept = [read_about(path, CHECKPOINT).get("kept") for path in checkpoints]
    return TrainingReport(checkpoints, trained, tuple(rungs[-1] if rungs else "learned" for rungs in kept))

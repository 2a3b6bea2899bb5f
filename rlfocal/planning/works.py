"""A model's work on GPUs, as the scheduler takes it: seconds on the clock, by the plan's assumptions."""

from __future__ import annotations

from collections.abc import Mapping

from rlfocal.placement.schedule import Work
from rlfocal.planning.estimate import cost
from rlfocal.planning.gpus import GPU
from rlfocal.planning.workload import Workload
from rlfocal.pool.specs import ModelSpec


def work(model: ModelSpec, workloads: Mapping[str, Workload], gpu: GPU) -> Work:
    """The work of one model, `workloads` being its tasks': its GPUs share a task, and start side by side."""
    costs = {task: cost(model, [workload], gpu) for task, workload in workloads.items()}
    seconds = {
        task: 3600 * (c.prefill_hours + c.decode_hours) / model.tensor_parallel for task, c in costs.items()
    }
    start = 3600 * max((c.start_hours for c in costs.values()), default=0.0) / model.tensor_parallel
    return Work(model.model, model.tensor_parallel, start, seconds)

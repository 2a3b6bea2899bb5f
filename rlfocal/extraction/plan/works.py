"""A model's work on GPUs, as the scheduler takes it: seconds on the clock, by the plan's assumptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlfocal.extraction.gpus.schedule import Work
from rlfocal.extraction.plan.estimate import cost
from rlfocal.extraction.plan.gpus import GPU
from rlfocal.extraction.plan.workload import Workload
from rlfocal.pool.specs import ModelSpec


def work(model: ModelSpec, loads: Iterable[tuple[Sequence[str], Workload]], gpu: GPU) -> Work:
    """The work of one model; `loads` are tasks and the workload that they have in equal parts.

    A model's GPUs share each task, and start side by side.
    """
    seconds: dict[str, float] = {}
    start = 0.0
    for tasks, workload in loads:
        spent = cost(model, [workload], gpu)
        start = 3600 * spent.start_hours / model.tensor_parallel
        whole = 3600 * (spent.prefill_hours + spent.decode_hours) / model.tensor_parallel
        seconds |= dict.fromkeys(tasks, whole / len(tasks))
    return Work(model.model, model.tensor_parallel, start, seconds)

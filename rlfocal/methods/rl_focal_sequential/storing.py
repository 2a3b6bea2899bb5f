"""Agents of `rl_focal_sequential` as named tensors and a header, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlfocal.base.arrays import Floats
from rlfocal.methods.agents.header import Header, query_tensors, read_queries
from rlfocal.methods.agents.queries import TaskSurfaces
from rlfocal.methods.agents.tensorfiles import under
from rlfocal.methods.rl_focal_sequential.agents import SequentialAgents
from rlfocal.methods.rl_focal_sequential.config import SequentialConfig
from rlfocal.methods.rl_focal_sequential.fusion import Fusion, TaskFusion
from rlfocal.methods.rl_focal_sequential.observations import Scales, knows_tasks
from rlfocal.methods.rl_focal_sequential.softmax_regression import Weights


class SequentialHeader(Header):
    """The header of `rl_focal_sequential`."""

    config: SequentialConfig
    n_slots: int
    tasks: tuple[str, ...]
    order: tuple[int, ...]
    sizes: tuple[int, ...]
    penalty: float
    task_penalty: float
    temperature: float
    train_accuracy: tuple[float, ...]
    held_out_accuracy: float


def to_parts(agents: SequentialAgents) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, and what JSON can hold."""
    tensors = {f"scales.{name}": torch.from_numpy(value) for name, value in agents.scales._asdict().items()}
    tensors |= query_tensors(agents.queries)
    surfaces = agents.surfaces._asdict().items()
    tensors |= {f"surfaces.{name}": torch.from_numpy(value).to(torch.float32) for name, value in surfaces}
    tensors["decider"] = torch.from_numpy(agents.decider)
    tensors["task_decider"] = torch.from_numpy(agents.task_decider)
    for kind, fusions in (("fusion", agents.fusions), ("tasks", agents.task_fusions)):
        for at, fusion in enumerate(fusions):
            tensors |= name_mixture(f"{kind}.{at}.", fusion.weights, fusion.shares)
    return tensors, SequentialHeader.about(agents)


def from_parts(header: SequentialHeader, tensors: Mapping[str, Tensor]) -> SequentialAgents:
    """The inverse of `to_parts`."""
    stages = range(len(header.sizes))
    surfaces = {name: value.numpy().astype(np.float64) for name, value in under("surfaces.", tensors).items()}
    fusions = tuple(Fusion(*read_mixture(f"fusion.{at}.", tensors)) for at in stages)
    of_tasks = stages if knows_tasks(header.kind, header.tasks) else ()
    return SequentialAgents(
        scales=Scales(**{name: value.numpy() for name, value in under("scales.", tensors).items()}),
        queries=read_queries(tensors),
        surfaces=TaskSurfaces(**surfaces),
        fusions=fusions,
        task_fusions=tuple(TaskFusion(*read_mixture(f"tasks.{at}.", tensors)) for at in of_tasks),
        decider=tensors["decider"].numpy(),
        task_decider=tensors["task_decider"].numpy(),
        **header.fields(),
    )


def name_mixture(prefix: str, weights: Weights, shares: Floats) -> dict[str, Tensor]:
    """A mixture of regressions as tensors."""
    tensors = {"shared": weights.shared, "bias": weights.bias, "own": weights.own}
    return {
        f"{prefix}{name}": value for name, value in (tensors | {"shares": torch.from_numpy(shares)}).items()
    }


def read_mixture(prefix: str, tensors: Mapping[str, Tensor]) -> tuple[Weights, Floats]:
    """The inverse of `name_mixture`."""
    own = under(prefix, tensors)
    return Weights(own["shared"], own["bias"], own["own"]), own["shares"].numpy()

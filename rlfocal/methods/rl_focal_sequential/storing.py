"""Agents of `rl_focal_sequential` in files: trained ones, and the finished stages of a killed training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from rlfocal.base.arrays import Floats
from rlfocal.methods.learning.queries import TaskSurfaces, query_tensors, read_queries
from rlfocal.methods.learning.store import Header, Unfinished, under
from rlfocal.methods.rl_focal_sequential.agents import SequentialAgents
from rlfocal.methods.rl_focal_sequential.asking import Order
from rlfocal.methods.rl_focal_sequential.config import Recipe, SequentialConfig
from rlfocal.methods.rl_focal_sequential.fitting import Fitted, Stage
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


def to_parts(agents: SequentialAgents) -> dict[str, Tensor]:
    """Tensors by name."""
    tensors = {f"scales.{name}": torch.from_numpy(value) for name, value in agents.scales._asdict().items()}
    tensors |= query_tensors(agents.queries)
    surfaces = agents.surfaces._asdict().items()
    tensors |= {f"surfaces.{name}": torch.from_numpy(value).to(torch.float32) for name, value in surfaces}
    tensors["decider"] = torch.from_numpy(agents.decider)
    tensors["task_decider"] = torch.from_numpy(agents.task_decider)
    for at, fusion in enumerate(agents.fusions):
        tensors |= name_mixture(f"fusion.{at}.", fusion.weights, fusion.shares)
    for at, of_tasks in enumerate(agents.task_fusions):
        tensors |= name_mixture(f"tasks.{at}.", of_tasks.weights, of_tasks.shares)
    return tensors


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


def write_stages(
    unfinished: Unfinished, order: Order, recipes: Sequence[Recipe], stages: Sequence[Fitted]
) -> None:
    """Writes the finished stages, the asking order, and the recipes mixed in all stages."""
    tensors: dict[str, Tensor] = {}
    for at, fitted in enumerate(stages):
        for prefix, stage in ((f"{at}.", fitted.general), (f"{at}.tasks.", fitted.of_tasks)):
            if stage is not None:
                tensors |= name_mixture(prefix, stage.weights, stage.shares)
                tensors[f"{prefix}out_of_fold"] = torch.from_numpy(stage.out_of_fold)
    unfinished.write(tensors, {"order": order, "recipes": recipes, "stages": len(stages)})


def read_stages(
    unfinished: Unfinished, order: Order, recipes: tuple[Recipe, ...]
) -> tuple[tuple[Recipe, ...], list[Fitted]]:
    """The inverse of `write_stages`; the given recipes and no stages if nothing was written, or for another
    order, because prices have changed."""
    found = unfinished.read()
    if found is None or found[0]["order"] != list(order):
        return recipes, []
    about, tensors = found

    def read(prefix: str) -> Stage:
        return Stage(*read_mixture(prefix, tensors), tensors[f"{prefix}out_of_fold"].numpy())

    stages = [
        Fitted(read(f"{at}."), read(f"{at}.tasks.") if f"{at}.tasks.shares" in tensors else None)
        for at in range(about["stages"])
    ]
    return tuple(Recipe(*recipe) for recipe in about["recipes"]), stages

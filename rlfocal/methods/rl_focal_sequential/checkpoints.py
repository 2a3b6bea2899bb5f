"""What a killed training of `rl_focal_sequential` resumes from: its finished stages."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlfocal.methods.agents.resuming import Unfinished
from rlfocal.methods.rl_focal_sequential.asking import Order
from rlfocal.methods.rl_focal_sequential.config import Recipe
from rlfocal.methods.rl_focal_sequential.fitting import Fitted, Stage, TaskStage
from rlfocal.methods.rl_focal_sequential.storing import name_mixture, read_mixture


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
    stages = []
    for prefix in (f"{at}." for at in range(about["stages"])):
        general = Stage(*read_mixture(prefix, tensors), tensors[f"{prefix}out_of_fold"].numpy())
        of_tasks = None
        if f"{prefix}tasks.shares" in tensors:
            prefix += "tasks."
            of_tasks = TaskStage(*read_mixture(prefix, tensors), tensors[f"{prefix}out_of_fold"].numpy())
        stages.append(Fitted(general, of_tasks))
    return tuple(Recipe(*recipe) for recipe in about["recipes"]), stages

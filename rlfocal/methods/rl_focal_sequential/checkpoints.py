"""What a killed training of `rl_focal_sequential` resumes from: its finished stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rlfocal.base.arrays import Floats
from rlfocal.methods.agents.resuming import Unfinished
from rlfocal.methods.agents.tensorfiles import under
from rlfocal.methods.rl_focal_sequential.asking import Order
from rlfocal.methods.rl_focal_sequential.config import Recipe
from rlfocal.methods.rl_focal_sequential.fitting import WEIGHTS, Fitted, Stage, TaskStage
from rlfocal.methods.rl_focal_sequential.softmax_regression import Weights


def write_stages(
    unfinished: Unfinished, order: Order, recipes: Sequence[Recipe], stages: Sequence[Fitted]
) -> None:
    """Writes the finished stages, the asking order, and the recipes mixed in all stages."""
    tensors: dict[str, Tensor] = {}
    for at, fitted in enumerate(stages):
        for kind, stage in (("", fitted.general), ("tasks.", fitted.of_tasks)):
            if stage is not None:
                tensors |= {f"{at}.{kind}{name}": getattr(stage.weights, name) for name in WEIGHTS}
                tensors[f"{at}.{kind}shares"] = torch.from_numpy(stage.shares)
                tensors[f"{at}.{kind}out_of_fold"] = torch.from_numpy(stage.out_of_fold)
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
    for at in range(about["stages"]):
        general = Stage(*_parts(under(f"{at}.", tensors)))
        of_tasks = under(f"{at}.tasks.", tensors)
        stages.append(Fitted(general, TaskStage(*_parts(of_tasks)) if of_tasks else None))
    return tuple(Recipe(*recipe) for recipe in about["recipes"]), stages


def _parts(of: Mapping[str, Tensor]) -> tuple[Weights, Floats, Floats]:
    weights = Weights(*(of[name] for name in WEIGHTS))
    return weights, of["shares"].numpy(), of["out_of_fold"].numpy()

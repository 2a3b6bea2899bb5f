"""Agents of `rl_focal_sequential` in files: trained ones, and the finished stages of a killed training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rlfocal.base.arrays import Floats
from rlfocal.methods.learning.earning import Rung
from rlfocal.methods.learning.queries import query_tensors, read_queries
from rlfocal.methods.learning.store import Header, Unfinished, under
from rlfocal.methods.rl_focal_sequential.agents import SequentialAgents
from rlfocal.methods.rl_focal_sequential.asking import Order
from rlfocal.methods.rl_focal_sequential.config import Recipe, SequentialConfig
from rlfocal.methods.rl_focal_sequential.fitting import Stage
from rlfocal.methods.rl_focal_sequential.observations import Scales
from rlfocal.methods.rl_focal_sequential.softmax_regression import Mixture, Weights


class SequentialHeader(Header):
    """The header of `rl_focal_sequential`."""

    config: SequentialConfig
    n_slots: int
    order: tuple[int, ...]
    sizes: tuple[int, ...]
    penalty: float
    temperature: float
    train_accuracy: tuple[float, ...]
    held_out_accuracy: float
    kept: tuple[Rung, ...] = ()


def to_parts(agents: SequentialAgents) -> dict[str, Tensor]:
    """Tensors by name."""
    tensors = {f"scales.{name}": torch.from_numpy(value) for name, value in agents.scales._asdict().items()}
    tensors |= query_tensors(agents.queries)
    tensors["decider"] = torch.from_numpy(agents.decider)
    for at, fusion in enumerate(agents.fusions):
        tensors |= name_mixture(f"fusion.{at}.", fusion.weights, fusion.shares)
    return tensors


def from_parts(header: SequentialHeader, tensors: Mapping[str, Tensor]) -> SequentialAgents:
    """The inverse of `to_parts`."""
    stages = range(len(header.sizes))
    return SequentialAgents(
        scales=Scales(**{name: value.numpy() for name, value in under("scales.", tensors).items()}),
        queries=read_queries(tensors),
        fusions=tuple(Mixture(*read_mixture(f"fusion.{at}.", tensors)) for at in stages),
        decider=tensors["decider"].numpy(),
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
    unfinished: Unfinished, order: Order, recipes: Sequence[Recipe], stages: Sequence[Stage]
) -> None:
    """Writes the finished stages, the asking order, and the recipes mixed in all stages."""
    tensors: dict[str, Tensor] = {}
    for at, stage in enumerate(stages):
        tensors |= name_mixture(f"{at}.", stage.weights, stage.shares)
        tensors[f"{at}.out_of_fold"] = torch.from_numpy(stage.out_of_fold)
    unfinished.write(tensors, {"order": order, "recipes": recipes, "stages": len(stages)})


def read_stages(
    unfinished: Unfinished, order: Order, recipes: tuple[Recipe, ...]
) -> tuple[tuple[Recipe, ...], list[Stage]]:
    """The inverse of `write_stages`; the given recipes and no stages if nothing was written, or for another
    order, because prices have changed."""
    found = unfinished.read()
    if found is None or found[0]["order"] != list(order):
        return recipes, []
    about, tensors = found

    stages = [
        Stage(*read_mixture(f"{at}.", tensors), tensors[f"{at}.out_of_fold"].numpy())
        for at in range(about["stages"])
    ]
    return tuple(Recipe(*recipe) for recipe in about["recipes"]), stages

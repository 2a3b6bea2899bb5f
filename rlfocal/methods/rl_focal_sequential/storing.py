"""Agents of `rl_focal_sequential` as named tensors and a header, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator
from torch import Tensor

from rlfocal.base.arrays import Floats
from rlfocal.methods.agents.header import Count, Header, Share, Some
from rlfocal.methods.agents.layout import (
    Layout,
    query_layouts,
    query_tensors,
    read_queries,
    refuse_misfits,
)
from rlfocal.methods.agents.queries import N_SURFACE, TaskSurfaces
from rlfocal.methods.agents.tensorfiles import UnusableError, under
from rlfocal.methods.rl_focal_sequential.agents import SequentialAgents
from rlfocal.methods.rl_focal_sequential.config import SequentialConfig
from rlfocal.methods.rl_focal_sequential.decider import N_FEATURES
from rlfocal.methods.rl_focal_sequential.fusion import Fusion, TaskFusion
from rlfocal.methods.rl_focal_sequential.observations import Scales, knows_tasks, n_task_gates
from rlfocal.methods.rl_focal_sequential.softmax_regression import Weights


class SequentialHeader(Header):
    """Of `rl_focal_sequential`."""

    method: Literal["rl_focal_sequential"] = "rl_focal_sequential"
    config: SequentialConfig
    n_slots: Some
    tasks: tuple[str, ...]
    order: tuple[Count, ...]
    sizes: Annotated[tuple[Some, ...], Field(min_length=1)]
    penalty: NonNegativeFloat
    task_penalty: NonNegativeFloat
    temperature: PositiveFloat
    train_accuracy: tuple[Share, ...]
    held_out_accuracy: Share

    @model_validator(mode="after")
    def _fits(self) -> SequentialHeader:
        n = len(self.models)
        if sorted(self.order) != list(range(n)) or len(self.train_accuracy) != n:
            raise ValueError("its order or its accuracies are not those of its models")
        if list(self.sizes) != sorted(set(self.sizes)) or self.sizes[-1] > n:
            raise ValueError("its stages do not ask more and more of its models")
        if len(set(self.tasks)) < len(self.tasks) or not self.history:
            raise ValueError("a task is named twice, or no stage was trained")
        return self


def to_parts(agents: SequentialAgents) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors, and what JSON can hold."""
    tensors = {f"scales.{name}": torch.from_numpy(value) for name, value in agents.scales._asdict().items()}
    tensors |= query_tensors(agents.queries)
    tensors |= {
        f"surfaces.{name}": torch.from_numpy(value).to(torch.float32)
        for name, value in agents.surfaces._asdict().items()
    }
    tensors["decider"] = torch.from_numpy(agents.decider)
    tensors["task_decider"] = torch.from_numpy(agents.task_decider)
    for at, fusion in enumerate(agents.fusions):
        tensors |= _named(f"fusion.{at}", fusion.weights, fusion.shares)
    for at, of_tasks in enumerate(agents.task_fusions):
        tensors |= _named(f"tasks.{at}", of_tasks.weights, of_tasks.shares)
    return tensors, SequentialHeader.about(agents)


def from_parts(header: SequentialHeader, tensors: Mapping[str, Tensor]) -> SequentialAgents:
    """The inverse of `to_parts`. Raises UnusableError for tensors that are not such agents'."""
    refuse_misfits(tensors, _layouts(header, tensors))
    stages = [under(f"fusion.{at}.", tensors) for at in range(len(header.sizes))]
    of_tasks = [under(f"tasks.{at}.", tensors) for at in range(_task_stages(header))]
    for stage in stages + of_tasks:
        if stage["shares"].min() < 0 or (stage["shares"].sum(-1) - 1).abs().max() > 1e-6:
            raise UnusableError("is not a valid checkpoint (its shares are no mixture)")
    if tensors["scales.shared"].min() <= 0:
        raise UnusableError("is not a valid checkpoint (scales.shared: not positive)")
    return SequentialAgents(
        scales=Scales(**{name: value.numpy() for name, value in under("scales.", tensors).items()}),
        queries=read_queries(tensors),
        surfaces=TaskSurfaces(
            **{n: v.numpy().astype(np.float64) for n, v in under("surfaces.", tensors).items()}
        ),
        fusions=tuple(Fusion(_weights(stage), stage["shares"].numpy()) for stage in stages),
        task_fusions=tuple(TaskFusion(_weights(stage), stage["shares"].numpy()) for stage in of_tasks),
        decider=tensors["decider"].numpy(),
        task_decider=tensors["task_decider"].numpy(),
        **header.fields(),
    )


def _layouts(header: SequentialHeader, tensors: Mapping[str, Tensor]) -> dict[str, Layout]:
    """Every tensor of such agents; how many directions words have, and recipes are mixed, the file tells."""
    n, c, of_choices = len(header.models), header.n_slots, header.kind == "choices"
    words = min(_length(tensors, "queries.middle"), header.config.word_directions)
    gates = min(words, header.config.gate_directions)
    marks, bends = _shape(tensors, "queries.landmarks")[0], _shape(tensors, "queries.bends")[1]
    marks = min(marks, header.config.landmarks)
    bends = min(bends, marks)
    slots, known = c if of_choices else 0, _task_stages(header)
    double, single = torch.float64, torch.float32
    layouts: dict[str, Layout] = {
        "scales.shared": (double, (n,)),
        "scales.mean": (double, (n, slots)),
        "scales.own": (double, (n, slots)),
        **query_layouts(words, gates, marks, bends),
        "decider": (double, (len(header.sizes) - 1, N_FEATURES)),
        "task_decider": (double, (max(known - 1, 0), N_FEATURES)),
    }
    per_model = 2 + gates + n_task_gates(len(header.tasks))
    j, about = len(header.tasks), N_SURFACE + bends + words
    apart, most = j if known else 0, header.config.landmarks
    layouts["surfaces.mean"] = layouts["surfaces.scale"] = single, (apart, N_SURFACE)
    layouts["surfaces.landmarks"] = single, (apart, most, N_SURFACE)
    layouts["surfaces.bends"] = single, (apart, most, most)
    for at, size in enumerate(header.sizes):
        r = max(_length(tensors, f"fusion.{at}.shares"), 1)
        layouts[f"fusion.{at}.shares"] = double, (r,)
        layouts[f"fusion.{at}.shared"] = double, (r, size * per_model if of_choices else size + 1)
        layouts[f"fusion.{at}.bias"] = double, (r, c if of_choices else 1)
        layouts[f"fusion.{at}.own"] = double, (r, size * c + j + about, c) if of_choices else (r, 0, 1)
        if known:
            r = len(header.config.task_recipes)
            layouts[f"tasks.{at}.shares"] = double, (j, 1 + r)
            layouts[f"tasks.{at}.shared"] = double, (j, r, 2 * size + 1)
            layouts[f"tasks.{at}.bias"] = double, (j, r, c)
            layouts[f"tasks.{at}.own"] = double, (j, r, size * c + N_SURFACE + most + words, c)
    return layouts


def _task_stages(header: SequentialHeader) -> int:
    """Stages at which tasks have regressions of their own: all or none."""
    return len(header.sizes) if knows_tasks(header.kind, header.tasks) else 0


def _named(stage: str, weights: Weights, shares: Floats) -> dict[str, Tensor]:
    """A mixture's tensors."""
    return {
        f"{stage}.shares": torch.from_numpy(shares),
        f"{stage}.shared": weights.shared,
        f"{stage}.bias": weights.bias,
        f"{stage}.own": weights.own,
    }


def _weights(stage: Mapping[str, Tensor]) -> Weights:
    return Weights(stage["shared"], stage["bias"], stage["own"])


def _shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, int]:
    """Of a matrix; of what is none, nothing."""
    shape = tensors[name].shape if name in tensors else ()
    return (shape[0], shape[1]) if len(shape) == 2 else (0, 0)


def _length(tensors: Mapping[str, Tensor], name: str) -> int:
    return tensors[name].numel() if name in tensors else 0

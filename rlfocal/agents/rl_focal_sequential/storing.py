"""Agents of `rl_focal_sequential` as named tensors and a header, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, model_validator
from torch import Tensor

from rlfocal.agents.rl_focal_sequential.agents import Fusion, SequentialAgents
from rlfocal.agents.rl_focal_sequential.config import SequentialConfig
from rlfocal.agents.rl_focal_sequential.decider import N_FEATURES
from rlfocal.agents.rl_focal_sequential.observations import Scales, n_task_gates
from rlfocal.agents.rl_focal_sequential.softmax_regression import Weights
from rlfocal.agents.shared.queries import N_BUCKETS, N_SURFACE, QueryFeatures
from rlfocal.agents.storage.header import Count, Header, Share, Some
from rlfocal.agents.storage.layout import Layout, refuse_misfits
from rlfocal.agents.storage.tensorfiles import UnusableError, under


class SequentialHeader(Header):
    """Of `rl_focal_sequential`."""

    method: Literal["rl_focal_sequential"] = "rl_focal_sequential"
    config: SequentialConfig
    n_slots: Some
    tasks: tuple[str, ...]
    order: tuple[Count, ...]
    sizes: Annotated[tuple[Some, ...], Field(min_length=1)]
    penalty: NonNegativeFloat
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
    tensors |= {
        f"queries.{name}": torch.from_numpy(value).to(torch.float32)
        for name, value in agents.queries._asdict().items()
    }
    tensors["decider"] = torch.from_numpy(agents.decider)
    for at, fusion in enumerate(agents.fusions):
        tensors |= {
            f"fusion.{at}.shares": torch.from_numpy(fusion.shares),
            f"fusion.{at}.shared": fusion.weights.shared,
            f"fusion.{at}.bias": fusion.weights.bias,
            f"fusion.{at}.own": fusion.weights.own,
        }
    return tensors, SequentialHeader.about(agents)


def from_parts(header: SequentialHeader, tensors: Mapping[str, Tensor]) -> SequentialAgents:
    """The inverse of `to_parts`. Raises UnusableError for tensors that are not such agents'."""
    refuse_misfits(tensors, _layouts(header, tensors))
    stages = [under(f"fusion.{at}.", tensors) for at in range(len(header.sizes))]
    for stage in stages:
        if stage["shares"].min() < 0 or abs(float(stage["shares"].sum()) - 1) > 1e-6:
            raise UnusableError("is not a valid checkpoint (its shares are no mixture)")
    if tensors["scales.shared"].min() <= 0:
        raise UnusableError("is not a valid checkpoint (scales.shared: not positive)")
    return SequentialAgents(
        scales=Scales(**{name: value.numpy() for name, value in under("scales.", tensors).items()}),
        queries=QueryFeatures(
            **{n: v.numpy().astype(np.float64) for n, v in under("queries.", tensors).items()}
        ),
        fusions=tuple(
            Fusion(Weights(stage["shared"], stage["bias"], stage["own"]), stage["shares"].numpy())
            for stage in stages
        ),
        decider=tensors["decider"].numpy(),
        **header.fields(),
    )


def _layouts(header: SequentialHeader, tensors: Mapping[str, Tensor]) -> dict[str, Layout]:
    """Every tensor of such agents; how many directions words have, and recipes are mixed, the file tells."""
    n, c, of_choices = len(header.models), header.n_slots, header.kind == "choices"
    words = min(_length(tensors, "queries.middle"), header.config.word_directions)
    gates = min(words, header.config.gate_directions)
    slots = c if of_choices else 0
    double, single = torch.float64, torch.float32
    layouts: dict[str, Layout] = {
        "scales.shared": (double, (n,)),
        "scales.mean": (double, (n, slots)),
        "scales.own": (double, (n, slots)),
        "queries.surface_mean": (single, (N_SURFACE,)),
        "queries.surface_scale": (single, (N_SURFACE,)),
        "queries.rarity": (single, (N_BUCKETS,)),
        "queries.directions": (single, (N_BUCKETS, words)),
        "queries.middle": (single, (words,)),
        "queries.gate_scale": (single, (gates,)),
        "decider": (double, (len(header.sizes) - 1, N_FEATURES)),
    }
    per_model = 1 + gates + n_task_gates(len(header.tasks))
    about = len(header.tasks) + N_SURFACE + words
    for at, size in enumerate(header.sizes):
        r = max(_length(tensors, f"fusion.{at}.shares"), 1)
        layouts[f"fusion.{at}.shares"] = double, (r,)
        layouts[f"fusion.{at}.shared"] = double, (r, size * per_model if of_choices else size + 1)
        layouts[f"fusion.{at}.bias"] = double, (r, c if of_choices else 1)
        layouts[f"fusion.{at}.own"] = double, (r, size * c + about, c) if of_choices else (r, 0, 1)
    return layouts


def _length(tensors: Mapping[str, Tensor], name: str) -> int:
    return tensors[name].numel() if name in tensors else 0

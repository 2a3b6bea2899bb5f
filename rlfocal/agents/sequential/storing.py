"""Agents of the variant `sequential` as named tensors and plain values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlfocal.agents.sequential.agents import Fusion, SequentialAgents
from rlfocal.agents.sequential.config import SequentialConfig
from rlfocal.agents.sequential.observations import Scales
from rlfocal.agents.sequential.queries import QueryFeatures
from rlfocal.agents.sequential.softmax_regression import Weights
from rlfocal.agents.tensorfiles import under
from rlfocal.methods.base import Episode

FORMAT = "rlfocal-sequential-2"

_PLAIN = (
    "benchmark", "kind", "models", "seed", "snapshot", "n_slots", "tasks", "order", "sizes", "penalty",
    "train_accuracy", "history",
)  # fmt: skip


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
    about = {name: getattr(agents, name) for name in _PLAIN} | {"config": agents.config.to_dict()}
    return tensors, about


def from_parts(about: dict[str, Any], tensors: Mapping[str, Tensor]) -> SequentialAgents:
    """The inverse of `to_parts`. Raises KeyError, TypeError or ValueError for parts that do not fit."""
    plain = {name: _tuple(about[name]) for name in _PLAIN if name != "history"}
    stages = [under(f"fusion.{at}.", tensors) for at in range(len(plain["sizes"]))]
    return SequentialAgents(
        config=SequentialConfig.from_dict(about["config"]),
        scales=Scales(**{name: value.numpy() for name, value in under("scales.", tensors).items()}),
        queries=QueryFeatures(
            **{n: v.numpy().astype(np.float64) for n, v in under("queries.", tensors).items()}
        ),
        fusions=tuple(
            Fusion(Weights(stage["shared"], stage["bias"], stage["own"]), stage["shares"].numpy())
            for stage in stages
        ),
        decider=tensors["decider"].numpy(),
        history=tuple(Episode(*row) for row in about["history"]),
        **plain,
    )


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value

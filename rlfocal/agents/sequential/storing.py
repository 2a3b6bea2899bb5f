"""Agents of the variant `sequential` as named tensors and plain values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlfocal.agents.sequential.agents import Fusion, SequentialAgents
from rlfocal.agents.sequential.config import SequentialConfig
from rlfocal.agents.sequential.decider import N_FEATURES
from rlfocal.agents.sequential.observations import Scales, n_task_gates
from rlfocal.agents.sequential.queries import N_SURFACE, QueryFeatures
from rlfocal.agents.sequential.softmax_regression import Weights
from rlfocal.agents.tensorfiles import under
from rlfocal.methods.base import Episode

FORMAT = "rlfocal-sequential-3"

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
    agents = SequentialAgents(
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
    _refuse_misfits(agents)
    return agents


def _refuse_misfits(agents: SequentialAgents) -> None:
    """Raises ValueError for parts that are not of one training: numpy would stretch some of them to fit."""
    n, c, tasks, queries = len(agents.models), agents.n_slots, len(agents.tasks), agents.queries
    of_choices = agents.kind == "choices"
    gates = len(queries.gate_scale) + n_task_gates(tasks)
    about = tasks + N_SURFACE + queries.directions.shape[1]
    found = [agents.decider.shape, (len(agents.train_accuracy),), tuple(sorted(agents.order))]
    wanted = [(len(agents.sizes) - 1, N_FEATURES), (n,), tuple(range(n))]
    for size, fusion in zip(agents.sizes, agents.fusions, strict=True):
        weights, r = fusion.weights, len(fusion.shares)
        found += [tuple(part.shape) for part in (weights.shared, weights.bias, weights.own)]
        if of_choices:
            wanted += [(r, size * (1 + gates)), (r, c), (r, size * c + about, c)]
        else:
            wanted += [(r, size + 1), (r, 1), (r, 0, 1)]
    if agents.kind not in ("choices", "answers") or found != wanted:
        raise ValueError("its parts do not fit each other")


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value

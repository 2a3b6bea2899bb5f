"""What a checkpoint stores beside its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from rlfocal.data.dataset import Kind
from rlfocal.data.policy import Episode
from rlfocal.methods.agents.queries import QueryFeatures
from rlfocal.methods.agents.tensorfiles import under


class Header(BaseModel):
    """The fields that every variant stores."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    method: str
    benchmark: str
    kind: Kind
    models: tuple[str, ...]
    seed: int
    snapshot: int
    history: tuple[Episode, ...]

    @classmethod
    def about(cls, agents: Any) -> dict[str, Any]:
        """The fields to write for these agents."""
        fields = {name: getattr(agents, name) for name in cls.model_fields if name != "method"}
        return fields | {"config": asdict(agents.config), "method": agents.method}

    def fields(self) -> dict[str, Any]:
        """The agents' fields that are not tensors."""
        return {name: value for name, value in self if name != "method"}


def query_tensors(queries: QueryFeatures) -> dict[str, Tensor]:
    """The tensors by name."""
    return {f"queries.{n}": torch.from_numpy(v).to(torch.float32) for n, v in queries._asdict().items()}


def read_queries(tensors: Mapping[str, Tensor]) -> QueryFeatures:
    """The inverse of `query_tensors`."""
    parts = under("queries.", tensors)
    return QueryFeatures(**{name: value.numpy().astype(np.float64) for name, value in parts.items()})

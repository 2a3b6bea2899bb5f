"""Converts the features of questions to named tensors and back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from rlfocal.agents.shared.queries import N_BUCKETS, N_SURFACE, QueryFeatures
from rlfocal.agents.storage.layout import Layout
from rlfocal.agents.storage.tensorfiles import under


def query_tensors(queries: QueryFeatures) -> dict[str, Tensor]:
    """The tensors by name."""
    return {f"queries.{n}": torch.from_numpy(v).to(torch.float32) for n, v in queries._asdict().items()}


def query_layouts(words: int, gates: int, marks: int = 0, bends: int = 0) -> dict[str, Layout]:
    """Layouts for `words` word directions, the first `gates` of them gates, and `bends` surface curves."""
    shapes: dict[str, tuple[int, ...]] = {
        "surface_mean": (N_SURFACE,), "surface_scale": (N_SURFACE,), "rarity": (N_BUCKETS,),
        "directions": (N_BUCKETS, words), "middle": (words,), "gate_scale": (gates,),
        "landmarks": (marks, N_SURFACE), "bends": (marks, bends),
    }  # fmt: skip
    return {f"queries.{name}": (torch.float32, shape) for name, shape in shapes.items()}


def read_queries(tensors: Mapping[str, Tensor]) -> QueryFeatures:
    """The inverse of `query_tensors`, for tensors that `refuse_misfits` has checked."""
    parts = under("queries.", tensors)
    return QueryFeatures(**{name: value.numpy().astype(np.float64) for name, value in parts.items()})

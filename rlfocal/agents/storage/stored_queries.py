"""What turns questions into numbers, as named tensors and back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from rlfocal.agents.shared.queries import N_BUCKETS, N_SURFACE, QueryFeatures
from rlfocal.agents.storage.layout import Layout, refuse_misfits
from rlfocal.agents.storage.tensorfiles import under


def query_tensors(queries: QueryFeatures) -> dict[str, Tensor]:
    """By name."""
    return {f"queries.{n}": torch.from_numpy(v).to(torch.float32) for n, v in queries._asdict().items()}


def query_layouts(words: int, gates: int) -> dict[str, Layout]:
    """With so many directions of words, the first of which are gates."""
    shapes: dict[str, tuple[int, ...]] = {
        "surface_mean": (N_SURFACE,), "surface_scale": (N_SURFACE,), "rarity": (N_BUCKETS,),
        "directions": (N_BUCKETS, words), "middle": (words,), "gate_scale": (gates,),
    }  # fmt: skip
    return {f"queries.{name}": (torch.float32, shape) for name, shape in shapes.items()}


def read_queries(tensors: Mapping[str, Tensor], words: int, gates: int) -> QueryFeatures:
    """The inverse of `query_tensors`. Raises UnusableError for other tensors."""
    refuse_misfits(tensors, query_layouts(words, gates))
    parts = under("queries.", tensors)
    return QueryFeatures(**{name: value.numpy().astype(np.float64) for name, value in parts.items()})

"""Which tensors a file must hold, with values that training can produce; and those of questions' features."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from rlfocal.methods.agents.queries import N_BUCKETS, N_SURFACE, QueryFeatures
from rlfocal.methods.agents.tensorfiles import UnusableError, under

Layout = tuple[torch.dtype, tuple[int, ...]]

LARGEST = 1e12
"""Far above any weight, scale or reward in training, yet sums of products of such values stay finite."""


def layout(tensor: Tensor) -> Layout:
    return tensor.dtype, tuple(tensor.shape)


def refuse_misfits(tensors: Mapping[str, Tensor], wanted: Mapping[str, Layout]) -> None:
    """Raises UnusableError for tensors with other names or layouts, and for NaN, infinite or huge values."""
    for name in sorted(tensors.keys() | wanted.keys()):
        if name not in tensors or name not in wanted or layout(tensors[name]) != wanted[name]:
            raise UnusableError(f"is not a valid checkpoint: its parts do not fit each other ({name})")
        if not (tensors[name].abs() <= LARGEST).all():
            raise UnusableError(f"is not a valid checkpoint: NaN, infinite or huge numbers in {name}")


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

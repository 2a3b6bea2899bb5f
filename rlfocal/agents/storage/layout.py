"""What tensors a file must hold: their names, dtypes and shapes, and only numbers that a training gives."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rlfocal.agents.storage.tensorfiles import UnusableError

Layout = tuple[torch.dtype, tuple[int, ...]]

LARGEST = 1e12
"""No weight, scale or reward of a training comes near it, and sums of products of such stay finite."""


def layout(tensor: Tensor) -> Layout:
    return tensor.dtype, tuple(tensor.shape)


def refuse_misfits(tensors: Mapping[str, Tensor], wanted: Mapping[str, Layout]) -> None:
    """Raises UnusableError for tensors of other names or layouts, and for NaN, infinite or huge numbers."""
    for name in sorted(tensors.keys() | wanted.keys()):
        if name not in tensors or name not in wanted or layout(tensors[name]) != wanted[name]:
            raise UnusableError(f"is not a valid checkpoint: its parts do not fit each other ({name})")
        if not (tensors[name].abs() <= LARGEST).all():
            raise UnusableError(f"is not a valid checkpoint: NaN, infinite or huge numbers in {name}")

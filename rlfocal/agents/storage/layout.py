"""Which tensors a file must hold: their names, dtypes and shapes, with values that training can produce."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rlfocal.agents.storage.tensorfiles import UnusableError

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

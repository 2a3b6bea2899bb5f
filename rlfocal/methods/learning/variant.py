"""The register of trained methods, and what a kind of trained agents provides. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlfocal.base.errors import unknown_name
from rlfocal.data.dataset import Dataset
from rlfocal.methods.checking import Space
from rlfocal.methods.learning.agents import Driver, Progress, TrainedAgents
from rlfocal.methods.learning.store import Header
from rlfocal.methods.registry import load_trained_methods

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Variant:
    """One kind of trained agents."""

    header: type[Header]
    """The class of the header that its checkpoints hold besides tensors."""
    train: Callable[[Dataset, Any, Sequence[int], Progress | None, Path | None], Sequence[TrainedAgents]]
    """A function that trains agents for each seed.

    It takes train rows, settings, seeds, progress and the folder from which a killed training resumes. Raises
    InputError for data that cannot be learned from.
    """
    to_parts: Callable[[Any], dict[str, Tensor]]
    """A function that returns the tensors of agents."""
    from_parts: Callable[[Any, Mapping[str, Tensor]], TrainedAgents]
    """The inverse of `to_parts`, from header and tensors. Raises UnusableError for parts that do not fit."""
    driver: Callable[[Any], Driver]
    """The class that runs such agents one query at a time."""


@dataclass(frozen=True)
class TrainedMethod:
    """The parts of a method trained to checkpoints that its entry does not hold."""

    configure: Callable[[int], Any]
    """The function that returns its settings for a number of train rows."""
    variant: str
    """Where its `Variant` is, as `module:name`; it needs torch, and is imported when used."""
    routes_graded: bool = True
    """Whether agents that ask one model take its place where answers are only graded."""
    space: Mapping[str, Space] = field(default_factory=dict)
    """The settings that `--tune` searches, with their ranges."""


METHODS_BY_NAME: dict[str, TrainedMethod] = {}
"""The trained methods by name, as their folders register them."""


def find_trained_method(method: str) -> TrainedMethod:
    """The trained method of that name. Raises InputError for a name that is none."""
    load_trained_methods()
    if method not in METHODS_BY_NAME:
        raise unknown_name("method", method, METHODS_BY_NAME, "RL-Focal")
    return METHODS_BY_NAME[method]

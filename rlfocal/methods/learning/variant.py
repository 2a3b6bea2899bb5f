"""The register of trained methods, and the functions of each kind of agents. It does not import torch."""

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
    """The functions that train, save, load and run one kind of agents."""

    header: type[Header]
    """The class of the header that these agents' checkpoints hold besides tensors."""
    train: Callable[[Dataset, Any, Sequence[int], Progress | None, Path | None], Sequence[TrainedAgents]]
    """A function that trains agents for each seed.

    It takes train rows, settings, seeds, progress and the folder from which a killed training resumes. Raises
    InputError for data that cannot be learned from.
    """
    to_parts: Callable[[Any], dict[str, Tensor]]
    """A function that returns the tensors of agents."""
    from_parts: Callable[[Any, Mapping[str, Tensor]], TrainedAgents]
    """A function that returns the agents of a header and tensors.

    Raises UnusableError if they do not fit each other.
    """
    driver: Callable[[Any], Driver]
    """The class that runs such agents one query at a time."""


@dataclass(frozen=True)
class TrainedMethod:
    """What the entry of a method with checkpoints does not say."""

    configure: Callable[[int], Any]
    """The function that returns the method's settings for a number of train rows."""
    variant: str
    """The place of the method's `Variant`, as `module:name`; it is imported late because it needs torch."""
    routes_graded: bool = True
    """Whether RoutedAgents, which ask one model, are trained where answers are only graded."""
    space: Mapping[str, Space] = field(default_factory=dict)
    """The settings that `--tune` searches, with their ranges."""


METHODS_BY_NAME: dict[str, TrainedMethod] = {}
"""The trained methods by name, from the modules `method` of their folders."""


def find_trained_method(method: str) -> TrainedMethod:
    """The trained method of that name. Raises InputError if no trained method has it."""
    load_trained_methods()
    if method not in METHODS_BY_NAME:
        raise unknown_name("method", method, METHODS_BY_NAME, "RL-Focal")
    return METHODS_BY_NAME[method]

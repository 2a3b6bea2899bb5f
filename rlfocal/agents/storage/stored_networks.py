"""Agents that are networks as named tensors and back, for `rl_focal` and `rl_focal_released`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from rlfocal.agents.shared.networks import Sizes
from rlfocal.agents.shared.stream import Memory
from rlfocal.agents.storage.header import Header
from rlfocal.agents.storage.layout import Layout, layout, refuse_misfits
from rlfocal.agents.storage.tensorfiles import UnusableError, under

_SLOTS = 10_000
"""More slots than any document has: looking back on train rows allocates as many as a file names."""

Networks = TypeVar("Networks", bound=nn.Module)


class NetworksHeader(Header):
    """The header of agents that are networks."""

    sizes: Sizes

    def refuse_other_sizes(self, metrics: int, past_rewards: int, answer_slots: int) -> None:
        """Raises ValueError for sizes that do not follow from the models and settings."""
        slots = answer_slots if self.kind == "answers" else max(self.sizes.slots, 1)
        if self.sizes != Sizes(len(self.models), slots, metrics, past_rewards):
            raise ValueError("its sizes are not those of its models and settings")


def network_tensors(networks: nn.Module, memory: Memory) -> dict[str, Tensor]:
    """The tensors by name."""
    tensors = {f"agents.{name}": value for name, value in networks.state_dict().items()}
    return tensors | {f"memory.{name}": value for name, value in memory._asdict().items()}


def read_networks(build: Callable[[], Networks], tensors: Mapping[str, Tensor]) -> Networks:
    """Networks with these tensors; no memory is allocated before the tensors are known to be the right ones.

    Raises UnusableError if one is missing, unknown or of another shape.
    """
    try:
        with torch.device("meta"):
            networks = build()
    except (RuntimeError, TypeError) as error:
        raise UnusableError("is not a valid checkpoint: its layers have impossible sizes") from error
    wanted = {f"agents.{name}": layout(value) for name, value in networks.state_dict().items()}
    refuse_misfits({name: value for name, value in tensors.items() if name not in _MEMORY}, wanted)
    networks.load_state_dict(under("agents.", tensors), assign=True)
    return networks


_MEMORY = tuple(f"memory.{name}" for name in Memory._fields)


def read_memory(header: NetworksHeader, tensors: Mapping[str, Tensor]) -> Memory:
    """What the agents remember. Raises UnusableError for tensors that do not fit."""
    n, found = len(header.models), {name: tensors[name] for name in _MEMORY if name in tensors}
    labels = found.get("memory.labels", torch.zeros(0))
    wanted: dict[str, Layout] = {
        "memory.predictions": (torch.int64, (labels.numel(), n)),
        "memory.labels": (torch.int64, (labels.numel(),)),
        "memory.past_rewards": (torch.float32, (header.sizes.past_rewards,)),
        "memory.pool": (torch.float32, (n,)),
    }
    refuse_misfits(found, wanted)
    memory = Memory(*(found[name] for name in _MEMORY))
    slots = torch.cat([memory.predictions.flatten(), memory.labels])
    if not len(labels) or slots.min() < -1 or slots.max() >= _SLOTS:
        raise UnusableError("is not a valid checkpoint (memory: no such answers)")
    if not ((memory.pool == 0) | (memory.pool == 1)).all():
        raise UnusableError("is not a valid checkpoint (memory: no such pool)")
    return memory

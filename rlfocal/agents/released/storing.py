"""A trained policy of the variant `released` as tensors and plain values, and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlfocal.agents.environment import Memory
from rlfocal.agents.networks import Sizes
from rlfocal.agents.released.config import ReleasedConfig
from rlfocal.agents.released.networks import ReleasedAgents
from rlfocal.agents.released.policy import ReleasedPolicy
from rlfocal.agents.tensorfiles import under
from rlfocal.methods.base import Episode

FORMAT = "rlfocal-released-1"


def to_parts(trained: ReleasedPolicy) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors by name, and everything else for JSON."""
    tensors = {f"agents.{name}": value for name, value in trained.agents.state_dict().items()}
    tensors |= {f"memory.{name}": value for name, value in trained.memory._asdict().items()}
    about = {
        "config": trained.config.to_dict(),
        "sizes": trained.sizes._asdict(),
        "benchmark": trained.benchmark,
        "kind": trained.kind,
        "models": trained.models,
        "seed": trained.seed,
        "snapshot": trained.snapshot,
        "history": trained.history,
    }
    return tensors, about


def from_parts(about: dict[str, Any], tensors: dict[str, Tensor]) -> ReleasedPolicy:
    """The inverse of `to_parts`."""
    config = ReleasedConfig.from_dict(about.pop("config"))
    sizes = Sizes(**about.pop("sizes"))
    agents = ReleasedAgents(sizes, config, [torch.Generator()])
    agents.load_state_dict(under("agents.", tensors))
    return ReleasedPolicy(
        agents=agents,
        memory=Memory(**under("memory.", tensors)),
        sizes=sizes,
        config=config,
        models=tuple(about.pop("models")),
        history=tuple(Episode(*row) for row in about.pop("history")),
        **about,
    )

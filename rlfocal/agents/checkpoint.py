"""Checkpoints: tensors in safetensors, the rest as JSON in the file's metadata. Loading runs no code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from rlfocal.agents.config import RLFocalConfig
from rlfocal.agents.environment import Memory
from rlfocal.agents.networks import Agents, Sizes
from rlfocal.agents.tensorfiles import read_tensors, under, write_tensors
from rlfocal.agents.trained import TrainedAgents
from rlfocal.errors import InputError
from rlfocal.methods.base import Episode

_FORMAT = "rlfocal-agents-1"


def save_checkpoint(trained: TrainedAgents, path: Path) -> None:
    """Write one seed's agents; the file appears whole or not at all."""
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
    write_tensors(path, tensors, _FORMAT, about)


def load_checkpoint(path: Path, models: Sequence[str] | None = None) -> TrainedAgents:
    """Read one seed's agents.

    Raises InputError for a file that is not a whole checkpoint, or is one of another pool than `models`.
    """
    try:
        about, tensors = read_tensors(path, _FORMAT)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} is not a readable checkpoint ({error}); train again") from error
    except KeyError as error:
        raise InputError(f"{path} is not a checkpoint of format {_FORMAT}; train again") from error
    try:
        trained = _assemble(about, tensors)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{path} is not a whole checkpoint ({error}); train again") from error
    if models is not None and trained.models != tuple(models):
        raise InputError(
            f"{path} holds agents for {', '.join(trained.models)}, not for {', '.join(models)}; "
            "train on this pool"
        )
    return trained


def _assemble(about: dict[str, Any], tensors: dict[str, torch.Tensor]) -> TrainedAgents:
    config = RLFocalConfig.from_dict(about.pop("config"))
    sizes = Sizes(**about.pop("sizes"))
    agents = Agents(sizes, config, [torch.Generator()])
    agents.load_state_dict(under("agents.", tensors))
    return TrainedAgents(
        agents=agents,
        memory=Memory(**under("memory.", tensors)),
        sizes=sizes,
        config=config,
        models=tuple(about.pop("models")),
        history=tuple(Episode(*row) for row in about.pop("history")),
        **about,
    )

"""Checkpoints: tensors in safetensors, the rest as JSON in the file's metadata. Loading runs no code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from rlfocal.agents.config import RLFocalConfig
from rlfocal.agents.environment import Memory
from rlfocal.agents.networks import Agents, Sizes
from rlfocal.agents.released import storing as released_storing
from rlfocal.agents.released.policy import ReleasedPolicy
from rlfocal.agents.sequential import storing
from rlfocal.agents.sequential.agents import SequentialAgents
from rlfocal.agents.tensorfiles import read_tensors, under, write_tensors
from rlfocal.agents.trained import TrainedAgents
from rlfocal.errors import InputError
from rlfocal.methods.base import Episode

_FORMAT = "rlfocal-agents-1"

AnyAgents = TrainedAgents | ReleasedPolicy | SequentialAgents


def save_checkpoint(trained: AnyAgents, path: Path) -> None:
    """Write one seed's agents; the file appears whole or not at all."""
    if isinstance(trained, SequentialAgents):
        key, (tensors, about) = storing.FORMAT, storing.to_parts(trained)
    elif isinstance(trained, ReleasedPolicy):
        key, (tensors, about) = released_storing.FORMAT, released_storing.to_parts(trained)
    else:
        key, (tensors, about) = _FORMAT, _to_parts(trained)
    write_tensors(path, tensors, key, about)


def load_checkpoint(path: Path, models: Sequence[str] | None = None) -> AnyAgents:
    """Read one seed's agents, of whatever variant.

    Raises InputError for a file that is not a whole checkpoint, or is one of another pool than `models`.
    """
    trained = _read(path)
    if models is not None and trained.models != tuple(models):
        raise InputError(
            f"{path} holds agents for {', '.join(trained.models)}, not for {', '.join(models)}; "
            "train on this pool"
        )
    return trained


def _read(path: Path) -> AnyAgents:
    for key, assemble in _FORMATS.items():
        try:
            about, tensors = read_tensors(path, key)
        except (OSError, SafetensorError, ValueError) as error:
            raise InputError(f"{path} is not a readable checkpoint ({error}); train again") from error
        except KeyError:
            continue
        try:
            if broken := [name for name, value in tensors.items() if value.isnan().any()]:
                raise ValueError(f"NaN in {broken[0]}")
            return assemble(about, tensors)
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"{path} is not a whole checkpoint ({error}); train again") from error
    raise InputError(f"{path} is not a checkpoint of {' or '.join(_FORMATS)}; train again")


def _to_parts(trained: TrainedAgents) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
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


_FORMATS: Mapping[str, Callable[[dict[str, Any], dict[str, torch.Tensor]], AnyAgents]] = {
    _FORMAT: _assemble,
    released_storing.FORMAT: released_storing.from_parts,
    storing.FORMAT: storing.from_parts,
}

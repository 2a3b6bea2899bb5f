"""Checkpoints of any variant, one file per seed. Loading runs no code and refuses damaged files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from rlfocal.base.errors import InputError
from rlfocal.base.failures import on_one_line, shortened
from rlfocal.base.gone import is_gone
from rlfocal.methods.agents.tensorfiles import (
    CHECKPOINT,
    UnusableError,
    first_fault,
    read_tensors,
    write_tensors,
)
from rlfocal.methods.agents.variant import TrainedAgents
from rlfocal.methods.trained.variants import VARIANTS


def save_checkpoint(agents: TrainedAgents, path: Path) -> None:
    """Write one seed's agents; the file appears whole or not at all."""
    tensors, about = VARIANTS[agents.method].to_parts(agents)
    write_tensors(path, tensors, CHECKPOINT, about)


def load_checkpoint(path: Path, models: Sequence[str] | None = None) -> TrainedAgents:
    """Read one seed's agents, of any variant.

    Raises InputError for a file that is not an intact checkpoint (by its digest), and for one of a pool other
    than `models`.
    """
    try:
        agents = _read(path)
    except UnusableError as error:
        raise InputError(_in_short(f"{path} {error}; train again with `rlfocal train`")) from error
    if models is not None and agents.models != tuple(models):
        theirs, ours = (", ".join(names) for names in (agents.models, models))
        raise InputError(_in_short(f"{path} holds agents for {theirs}, not for {ours}; train on this pool"))
    return agents


def _read(path: Path) -> TrainedAgents:
    about, tensors = read_tensors(path, CHECKPOINT)
    method = str(about.get("method"))
    if is_gone(f"method {method}"):
        raise UnusableError(f"is of {method}, which is gone")
    of = VARIANTS.get(method)
    if of is None:
        raise UnusableError(f"is not a valid checkpoint (method: none of {', '.join(VARIANTS)})")
    try:
        return of.from_parts(of.header.model_validate_json(json.dumps(about)), tensors)
    except ValidationError as error:
        raise UnusableError(f"is not a valid checkpoint ({first_fault(error)})") from error
    except (InputError, KeyError, RuntimeError, TypeError, ValueError) as error:  # parts that do not fit
        raise UnusableError(f"is not a valid checkpoint ({error})") from error


def _in_short(message: str) -> str:
    return shortened(on_one_line(message))

"""The functions of trained methods that need torch: training, checkpoints, and drivers for a Router."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rlfocal.base.errors import InputError, escape_controls, shorten
from rlfocal.base.names import TRAINED_METHODS, is_gone
from rlfocal.data.dataset import Dataset
from rlfocal.methods.learning import routed
from rlfocal.methods.learning.agents import Driver, Progress, TrainedAgents
from rlfocal.methods.learning.store import (
    CHECKPOINT_FORMAT,
    UnusableError,
    first_fault,
    read_tensors,
    write_tensors,
)
from rlfocal.methods.learning.variant import Variant, find_trained_method


@cache
def _find_variant(method: str, *, is_routed: bool = False) -> Variant:
    """The variant of a trained method, or with `is_routed` that of agents that ask one model.

    Raises InputError for a method that is not trained.
    """
    own = find_trained_method(method)
    if is_routed and own.routes_graded:
        return routed.make_variant(type(own.configure(0)))
    module, _, name = own.variant.partition(":")
    variant: Variant = getattr(import_module(module), name)
    return variant


def train_agents(
    method: str, rows: Dataset, config: Any, seeds: Sequence[int],
    on_progress: Progress | None = None, folder: Path | None = None,
) -> Sequence[TrainedAgents]:  # fmt: skip
    """Trains agents for each seed. Where answers are only graded, they ask one model, chosen by the question.

    A killed training resumes from `folder`. Raises InputError for data that cannot be learned from.
    """
    of = _find_variant(method, is_routed=config.has_floor and rows.is_only_graded)
    agents = of.train(rows, config, seeds, on_progress, folder)
    return [replace(agent, method=method) for agent in agents]


def driver_of(agents: TrainedAgents) -> Driver:
    """A driver that runs these agents for a Router."""
    return _variant(agents).driver(agents)


def _variant(agents: TrainedAgents) -> Variant:
    return _find_variant(agents.method, is_routed=isinstance(agents, routed.RoutedAgents))


def save_checkpoint(agents: TrainedAgents, path: Path) -> None:
    """Writes one seed's agents to a file, which appears whole or not at all."""
    of = _variant(agents)
    write_tensors(path, of.to_parts(agents), CHECKPOINT_FORMAT, of.header.make_metadata(agents))


def load_checkpoint(path: Path, models: Sequence[str] | None = None) -> TrainedAgents:
    """Reads one seed's agents, of any variant.

    Raises InputError for a file that is not an intact checkpoint, by its digest, and for agents of a pool
    other than `models`.
    """
    try:
        agents = _read(path)
    except UnusableError as error:
        raise InputError(_shorten_message(f"{path}: {error}; train again with `rlfocal train`")) from error
    if models is not None and agents.models != tuple(models):
        theirs, ours = (", ".join(names) for names in (agents.models, models))
        raise InputError(
            _shorten_message(f"{path} holds agents for {theirs}, not for {ours}; train on this pool")
        )
    return agents


def _read(path: Path) -> TrainedAgents:
    about, tensors = read_tensors(path, CHECKPOINT_FORMAT)
    method = str(about.get("method"))
    if is_gone(f"method {method}"):
        raise UnusableError(f"the file is of the method {method}, which is gone")
    if method not in TRAINED_METHODS:
        methods = ", ".join(TRAINED_METHODS)
        raise UnusableError(f"the file is not a valid checkpoint (method: none of {methods})")
    of = _find_variant(method, is_routed=routed.WEIGHTS_KEY in tensors)
    try:
        return of.from_parts(of.header.model_validate_json(json.dumps(about)), tensors)
    except ValidationError as error:
        raise UnusableError(f"the file is not a valid checkpoint ({first_fault(error)})") from error
    except (InputError, KeyError, RuntimeError, TypeError, ValueError) as error:  # parts that do not fit
        raise UnusableError(f"the file is not a valid checkpoint ({error})") from error


def _shorten_message(message: str) -> str:
    return shorten(escape_controls(message))

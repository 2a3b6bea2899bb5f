"""The trained methods by name, with their parts that need torch: training, checkpoints, a Router's driver."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from rlfocal.base.errors import InputError
from rlfocal.base.failures import escape_controls, shorten
from rlfocal.base.gone import is_gone
from rlfocal.data.dataset import Dataset
from rlfocal.methods.learning import routed
from rlfocal.methods.learning.agents import Driver, Progress, TrainedAgents
from rlfocal.methods.learning.store import (
    CHECKPOINT_FORMAT,
    Header,
    UnusableError,
    first_fault,
    read_tensors,
    write_tensors,
)
from rlfocal.methods.rl_focal.agents import (
    GatedAgents,
    PoolDriver,
    PoolHeader,
    RLFocalAgents,
    from_parts,
    to_parts,
)
from rlfocal.methods.rl_focal.config import GatedConfig, RLFocalConfig
from rlfocal.methods.rl_focal.gated import train as train_gated
from rlfocal.methods.rl_focal.training import train
from rlfocal.methods.rl_focal_sequential import agents as sequential
from rlfocal.methods.rl_focal_sequential.agents import StageDriver
from rlfocal.methods.rl_focal_sequential.config import SequentialConfig
from rlfocal.methods.rl_focal_sequential.training import train as train_sequential


@dataclass(frozen=True)
class Variant:
    """One kind of trained agents."""

    header: type[Header]
    """The class of what its checkpoints hold besides tensors."""
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


_RL_FOCAL = Variant(
    PoolHeader[RLFocalConfig], train, to_parts, partial(from_parts, RLFocalAgents),
    PoolDriver,
)  # fmt: skip
VARIANTS = {
    "rl_focal": _RL_FOCAL,
    "rl_focal_literal": _RL_FOCAL,
    "rl_focal_sequential": Variant(
        sequential.SequentialHeader, train_sequential, sequential.to_parts, sequential.from_parts, StageDriver
    ),
    "gated_log_linear": Variant(
        PoolHeader[GatedConfig], train_gated, to_parts,
        partial(from_parts, GatedAgents), PoolDriver,
    ),
}  # fmt: skip


def _make_routed(config: type) -> Variant:
    """The variant of a method for answers that are only graded."""
    return Variant(
        routed.RoutedHeader[config],  # type: ignore[valid-type]
        lambda rows, settings, seeds, on_progress, kept: routed.train_routed(rows, settings, seeds),
        routed.to_parts, routed.from_parts, routed.RoutedDriver,
    )  # fmt: skip


_ROUTED_VARIANTS = {
    "rl_focal": _make_routed(RLFocalConfig),
    "rl_focal_sequential": _make_routed(SequentialConfig),
    "gated_log_linear": _make_routed(GatedConfig),
}


def train_agents(
    method: str, rows: Dataset, config: Any, seeds: Sequence[int],
    on_progress: Progress | None = None, kept: Path | None = None,
) -> Sequence[TrainedAgents]:  # fmt: skip
    """Trains agents for each seed. Where answers are only graded, they ask one model, chosen by the question.

    `kept`: the folder from which a killed training resumes. Raises InputError for data that cannot be learned
    from.
    """
    is_routed = method in _ROUTED_VARIANTS and config.has_floor and rows.is_only_graded
    of = _ROUTED_VARIANTS[method] if is_routed else VARIANTS[method]
    agents = of.train(rows, config, seeds, on_progress, kept)
    return [replace(agent, method=method) for agent in agents]


def driver_of(agents: TrainedAgents) -> Driver:
    """The driver by which a Router asks these agents."""
    return _variant(agents).driver(agents)


def _variant(agents: TrainedAgents) -> Variant:
    return (_ROUTED_VARIANTS if isinstance(agents, routed.RoutedAgents) else VARIANTS)[agents.method]


def save_checkpoint(agents: TrainedAgents, path: Path) -> None:
    """Write one seed's agents; the file appears whole or not at all."""
    of = _variant(agents)
    write_tensors(path, of.to_parts(agents), CHECKPOINT_FORMAT, of.header.make_metadata(agents))


def load_checkpoint(path: Path, models: Sequence[str] | None = None) -> TrainedAgents:
    """Read one seed's agents, of any variant.

    Raises InputError for a file that is not an intact checkpoint (by its digest), and for one of a pool other
    than `models`.
    """
    try:
        agents = _read(path)
    except UnusableError as error:
        raise InputError(_shorten_message(f"{path} {error}; train again with `rlfocal train`")) from error
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
        raise UnusableError(f"is of {method}, which is gone")
    of = (_ROUTED_VARIANTS if routed.WEIGHTS_KEY in tensors else VARIANTS).get(method)
    if of is None:
        raise UnusableError(f"is not a valid checkpoint (method: none of {', '.join(VARIANTS)})")
    try:
        return of.from_parts(of.header.model_validate_json(json.dumps(about)), tensors)
    except ValidationError as error:
        raise UnusableError(f"is not a valid checkpoint ({first_fault(error)})") from error
    except (InputError, KeyError, RuntimeError, TypeError, ValueError) as error:  # parts that do not fit
        raise UnusableError(f"is not a valid checkpoint ({error})") from error


def _shorten_message(message: str) -> str:
    return shorten(escape_controls(message))

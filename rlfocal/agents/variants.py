"""RL-Focal's variants: how each is configured and trained."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfocal.agents import config as paper
from rlfocal.agents.checkpoint import AnyAgents
from rlfocal.agents.released import config as released
from rlfocal.agents.sequential import config as sequential
from rlfocal.dataset import Dataset
from rlfocal.errors import unknown

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Variant:
    """One way to be RL-Focal."""

    revision: int
    configure: Callable[[int], Any]
    """Settings for as many train rows."""
    train: Callable[[Dataset, Any, Sequence[int], Progress | None, Path | None], list[AnyAgents]]
    """Train rows, settings, seeds, progress, and a folder that holds what a killed training goes on from."""

    def recipe(self, settings: Any) -> str:
        """Changes whenever the agents would be trained otherwise."""
        return json.dumps([self.revision, settings.to_dict()])


def variant(name: str) -> Variant:
    """The variant of that name. Raises InputError for an unknown one."""
    if name not in _VARIANTS:
        raise unknown("variant", name, _VARIANTS)
    return _VARIANTS[name]


def _train_paper(
    rows: Dataset, settings: Any, seeds: Sequence[int], on_progress: Progress | None, kept: Path | None
) -> list[AnyAgents]:
    from rlfocal.agents.training import train

    return [*train(rows, settings, seeds, on_progress, kept=kept)]


def _train_sequential(
    rows: Dataset, settings: Any, seeds: Sequence[int], on_progress: Progress | None, kept: Path | None
) -> list[AnyAgents]:
    from rlfocal.agents.sequential.training import train

    return [*train(rows, settings, seeds, on_progress, kept)]


def _train_released(
    rows: Dataset, settings: Any, seeds: Sequence[int], on_progress: Progress | None, kept: Path | None
) -> list[AnyAgents]:
    from rlfocal.agents.released.training import train

    return [*train(rows, settings, seeds, on_progress, kept)]


_VARIANTS = {
    "sequential": Variant(sequential.REVISION, sequential.sequential_config, _train_sequential),
    "paper": Variant(paper.REVISION, paper.paper_config, _train_paper),
    "released": Variant(released.REVISION, released.released_config, _train_released),
}

"""RL-Focal as one method among the others: one pair of agents per seed, trained side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from rlfocal.dataset import Dataset
from rlfocal.errors import InputError, unknown

if TYPE_CHECKING:
    from rlfocal.agents.config import RLFocalConfig
    from rlfocal.agents.trained import TrainedAgents

VARIANTS = ("paper",)


@dataclass(frozen=True)
class CheckpointStore:
    """Where trained agents are kept, and whether those that are there are taken instead of training again."""

    folder: Path
    reuse: bool = True


@dataclass(frozen=True)
class RLFocal:
    """Raises InputError for an unknown variant."""

    variant: str = "paper"
    config: RLFocalConfig | None = None
    """Settings; by default the variant's for as many train rows."""
    store: CheckpointStore | None = None
    """Without one, nothing is saved."""
    on_progress: Callable[[float], None] | None = None
    """Called with the finished share of a fit."""
    seeded: bool = True

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise unknown("variant", self.variant, VARIANTS)

    def recipe(self, n_train: int) -> str:
        from rlfocal.agents.config import REVISION

        return json.dumps([REVISION, self._config(n_train).to_dict()])

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[TrainedAgents]:
        # torch takes seconds to import, and listing the methods must not.
        from rlfocal.agents.checkpoint import save_checkpoint
        from rlfocal.agents.training import train as train_agents

        fitted = self._trained_before(train, seeds)
        missing = [seed for seed in seeds if seed not in fitted]
        if missing:
            kept = None if self.store is None else self.checkpoint(train, missing[0]).parent
            for agents in train_agents(train, self._config(len(train)), missing, self.on_progress, kept=kept):
                fitted[agents.seed] = agents
                if self.store is not None:
                    save_checkpoint(agents, self.checkpoint(train, agents.seed))
        elif self.on_progress is not None:
            self.on_progress(1.0)
        return [fitted[seed] for seed in seeds]

    def checkpoint(self, train: Dataset, seed: int) -> Path:
        """The file of one seed's agents: named by all that training depends on, so never of other data."""
        assert self.store is not None
        tasks = sorted(set(train.tasks.tolist()))
        rows = tasks[0] if len(tasks) == 1 else "all"
        digest = sha256(f"{train.fingerprint()} {self.recipe(len(train))}".encode()).hexdigest()[:12]
        return (
            self.store.folder
            / train.benchmark
            / f"{self.variant}-{rows}-{digest}"
            / f"seed-{seed}.safetensors"
        )

    def _trained_before(self, train: Dataset, seeds: Sequence[int]) -> dict[int, TrainedAgents]:
        from rlfocal.agents.checkpoint import load_checkpoint

        found: dict[int, TrainedAgents] = {}
        if self.store is not None and self.store.reuse:
            for seed in seeds:
                path = self.checkpoint(train, seed)
                if path.exists():
                    try:
                        found[seed] = load_checkpoint(path, train.models)
                    except InputError:  # damaged: trained and written again
                        continue
        return found

    def _config(self, n_train: int) -> RLFocalConfig:
        from rlfocal.agents.config import paper_config

        return self.config or paper_config(n_train)

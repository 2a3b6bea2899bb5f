"""RL-Focal as one method among the others: one pair of agents per seed, trained side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlfocal.dataset import Dataset
from rlfocal.errors import InputError, unknown

if TYPE_CHECKING:
    from rlfocal.agents.checkpoint import AnyAgents

VARIANTS = ("sequential", "paper", "released")
"""Names of what `rlfocal.agents.variants` holds, the default first: listing them must not import torch."""


@dataclass(frozen=True)
class CheckpointStore:
    """Where trained agents are kept, and whether those that are there are taken instead of training again."""

    folder: Path
    reuse: bool = True


@dataclass(frozen=True)
class RLFocal:
    """Raises InputError for an unknown variant."""

    variant: str = VARIANTS[0]
    config: Any = None
    """The variant's settings; by default the variant's for as many train rows."""
    store: CheckpointStore | None = None
    """Without one, nothing is saved."""
    on_progress: Callable[[float], None] | None = None
    """Called with the finished share of a fit."""
    seeded: bool = True

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise unknown("variant", self.variant, VARIANTS)

    def recipe(self, n_train: int) -> str:
        from rlfocal.agents.variants import variant

        return variant(self.variant).recipe(self._settings(n_train))

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[AnyAgents]:
        # torch takes seconds to import, and listing the methods must not.
        from rlfocal.agents.checkpoint import save_checkpoint
        from rlfocal.agents.variants import variant

        fitted = self._trained_before(train, seeds)
        missing = [seed for seed in seeds if seed not in fitted]
        if missing:
            kept = None if self.store is None else self.checkpoint(train, missing[0]).parent
            settings = self._settings(len(train))
            for agents in variant(self.variant).train(train, settings, missing, self.on_progress, kept):
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

    def _trained_before(self, train: Dataset, seeds: Sequence[int]) -> dict[int, AnyAgents]:
        from rlfocal.agents.checkpoint import load_checkpoint

        found: dict[int, AnyAgents] = {}
        if self.store is not None and self.store.reuse:
            for seed in seeds:
                path = self.checkpoint(train, seed)
                if path.exists():
                    try:
                        found[seed] = load_checkpoint(path, train.models)
                    except InputError:  # damaged: trained and written again
                        continue
        return found

    def _settings(self, n_train: int) -> Any:
        from rlfocal.agents.variants import variant

        return self.config or variant(self.variant).configure(n_train)

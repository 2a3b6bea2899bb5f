"""RL-Focal as one method among the others: one pair of agents per seed, trained side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlfocal.dataset import Dataset
from rlfocal.errors import unknown

if TYPE_CHECKING:
    from rlfocal.agents.config import RLFocalConfig
    from rlfocal.agents.trained import TrainedAgents

VARIANTS = ("paper",)


@dataclass(frozen=True)
class RLFocal:
    """Raises InputError for an unknown variant."""

    variant: str = "paper"
    config: RLFocalConfig | None = None
    """Settings; by default the variant's."""
    on_progress: Callable[[float], None] | None = None
    """Called with the finished share of a fit."""
    seeded: bool = True

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise unknown("variant", self.variant, VARIANTS)

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[TrainedAgents]:
        # torch takes seconds to import, and listing the methods must not.
        from rlfocal.agents.config import RLFocalConfig
        from rlfocal.agents.training import train as train_agents

        return train_agents(train, self.config or RLFocalConfig(), seeds, self.on_progress)

"""What Deciders are fitted on, and which stages of asking earn a round of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlfocal.agents.rl_focal_sequential.config import SequentialConfig
from rlfocal.agents.rl_focal_sequential.decider import StageView, fit_within, stop_stages

Floats = NDArray[np.float64]


class Ledger(NamedTuple):
    """What a Decider is fitted on, stage after stage."""

    views: list[StageView]
    deployed: list[Floats]

    def at(self, stages: Sequence[int], paid: Sequence[float]) -> Ledger:
        """Of some of the stages, and what prices and rounds have cost at each."""
        views = [self.views[at]._replace(paid=cost) for at, cost in zip(stages, paid, strict=True)]
        return Ledger(views, [self.deployed[at] for at in stages])

    def decider(self, config: SequentialConfig, n_models: int) -> tuple[Floats, float]:
        """Its weights, and the penalty a model."""
        return fit_within(self.views, self.deployed, config.budget(n_models), config.size_penalty / n_models)

    def earned(self, config: SequentialConfig, n_models: int) -> float:
        """What a train document earns on average by Fusion fitted without it, where the Decider stops."""
        stop = stop_stages(self.decider(config, n_models)[0], [view.features for view in self.views])
        earned = np.stack([view.earned(config.size_penalty / n_models) for view in self.views])
        return float(earned[stop, np.arange(len(stop))].mean())


def worthwhile_stages(
    ledgers: Sequence[Ledger],
    sizes: Sequence[int],
    paid: Callable[[Sequence[int]], list[float]],
    config: SequentialConfig,
    n_models: int,
) -> list[int]:
    """The stages that earn a round of their own: one after the other is left out while that pays.

    `paid` tells what prices and rounds cost by each stage of given sizes. All stages where rounds cost
    nothing: there, another look is never worse. The first keeps to the mean pool.
    """
    kept = list(range(len(sizes)))
    if not config.round_penalty:
        return kept

    def earned(stages: Sequence[int]) -> float:
        costs = paid([sizes[at] for at in stages])
        return float(np.mean([one.at(stages, costs).earned(config, n_models) for one in ledgers]))

    best = earned(kept)
    while len(kept) > 1:
        fewer = [[*kept[:at], *kept[at + 1 :]] for at in range(len(kept))]
        worth = [earned(one) if sizes[one[0]] <= config.budget(n_models) else -np.inf for one in fewer]
        if max(worth) <= best:
            break
        best, kept = max(worth), fewer[int(np.argmax(worth))]
    return kept

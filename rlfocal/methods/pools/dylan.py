"""DyLAN's first round (Liu et al., 2023): a team of important models, asked in turn until they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlfocal.base.arrays import Floats, Ints
from rlfocal.data.calls import Answered, Calls
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Budget, decide
from rlfocal.methods.registry import Entry, MethodBase, register
from rlfocal.statistics.votes import plurality

TEAM = 4
"""Models in a team, unless a size is given."""


@register(
    Entry(
        "dylan",
        f"the {TEAM} most important models in turn, until more than two thirds of the team agree",
        "what they agree on, else the plurality",
        has_budgets=True,
        is_default=False,
        source="DyLAN (arXiv 2310.02170)",
        differs="round 1 only (DyLAN-round1): later rounds, peer ratings and the LLM ranker need texts "
        "generated from what the others said; importance by agreement with the final answer, not by ratings",
        argument="size",
        make=lambda making: Dylan(making.size or TEAM),
        reads=("outputs",),
        space={"order": ("random", "importance")},
    )
)
@dataclass(frozen=True)
class Dylan(MethodBase):
    """The models with the highest importance on train, asked in an order drawn anew per document.

    Importance of model a: Σ over train documents of [a agrees with the plurality of all] / the number that
    do: the paper's backward pass where the last round is also the first. It reads no labels.
    """

    size: int = TEAM
    order: str = "random"
    """Or "importance": the most important first."""

    @property
    def seeded(self) -> bool:
        return self.order == "random"

    def fit(self, train: Dataset, seeds: Sequence[int]) -> list[FirstRound]:
        ranked = np.argsort(-importance(train).round(9), kind="stable")
        team = min(self.size, len(ranked))
        return [FirstRound(ranked, team, seed if self.seeded else None, train) for seed in seeds]


def importance(documents: Dataset) -> Floats:
    """(N,) each model's importance summed over documents, with all models asked."""
    everybody = np.ones(len(documents.models), dtype=np.bool_)
    final = plurality(documents.predictions, everybody, documents.kind)
    agrees = (documents.predictions == final[:, None]) & (final[:, None] >= 0)
    shares: Floats = (agrees / np.maximum(agrees.sum(axis=1, keepdims=True), 1)).sum(axis=0)
    return shares


@dataclass(frozen=True)
class FirstRound:
    """Asks the n models of a team one after another, until they agree: more than ⌊2n/3⌋ replies are equal."""

    ranked: Ints
    """(N,) positions of all models, the most important first."""
    size: int
    seed: int | None
    """Seed of the random order; None: the most important first."""
    train: Dataset
    """Where the mean number of models asked is counted, for budgets."""

    def decide(self, calls: Calls) -> Answered:
        T, n = len(calls), self.size
        turns = np.tile(self.ranked[:n], (T, 1))
        if self.seed is not None:
            turns = np.random.default_rng(self.seed).permuted(turns, axis=1)
        models = np.arange(len(calls.models))
        needed, agreed = 2 * n // 3, np.zeros(T, dtype=np.bool_)
        slots = np.full(T, -1, dtype=np.int64)
        for turn in range(n):
            said = calls.call(~agreed[:, None] & (turns[:, turn, None] == models))
            slots = plurality(said.predictions, calls.called, calls.kind)
            same = (said.predictions == slots[:, None]) & (slots[:, None] >= 0)
            agreed |= same.sum(axis=1) > needed
        return Answered(slots)

    def within(self, budget: Budget) -> FirstRound | None:
        """The largest team that keeps to the budget on average over train."""
        cost = budget.costs(self.train.prices)
        for size in range(len(self.ranked), 0, -1):
            team = replace(self, size=size)
            if np.isfinite(cost[self.ranked[:size]]).all():
                pools = decide(team, self.train).pools
                if np.where(pools, cost, 0.0).sum(axis=1).mean() <= budget.amount + 1e-9:
                    return team
        return None

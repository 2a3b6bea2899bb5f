"""Diversity of many pools over many windows of a stream, counted in torch: what the Decider observes.

The pools of one window share its matrices, so every count is a few matrix products over the window's rows;
nothing grows with 2^N.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from rlfocal.statistics.metrics import METRICS, PairCounts, mean_over_pairs


class Window:
    """P pools on each of E windows of w documents: `rlfocal.statistics.metrics.Counts`.

    `pools` (E, P, N) holds 0 or 1; `fails` (E, w, N) is 1 where a model is wrong; `right` (E, P, w) says
    where the pool's plurality is right; `votes` (E, w, 1+C, N) is 1 where a model predicts a slot; `n` (E,)
    counts the rows that exist: a window at the start of the stream is padded with rows in which no model
    fails and no plurality is right.
    """

    def __init__(
        self,
        pools: Tensor,
        fails: Tensor,
        n: Tensor,
        right: Callable[[], Tensor],
        votes: Callable[[], Tensor],
    ) -> None:
        self.members, self.n, self.size = pools, n[:, None], pools.sum(-1)
        self._fails, self._right, self._votes = fails, right, votes

    @cached_property
    def _k(self) -> Tensor:
        """(E, P, w) k_t: how many members fail on each row."""
        return torch.bmm(self.members, self._fails.transpose(1, 2))

    @cached_property
    def failures(self) -> Tensor:
        return self._k.sum(-1)

    @property
    def joint_failures(self) -> Tensor:
        return (self._k * (self._k - 1)).sum(-1)

    @property
    def failures_beside(self) -> tuple[Tensor, Tensor]:
        once, squares = torch.bmm(self._k, self._fails), torch.bmm(self._k * self._k, self._fails)
        return once, squares - once

    @cached_property
    def pairs(self) -> PairCounts[Tensor]:
        both_wrong = torch.bmm(self._fails.transpose(1, 2), self._fails)
        wrong, n = both_wrong.diagonal(dim1=1, dim2=2), self.n[:, :, None]
        only_a, only_b = wrong[:, None, :] - both_wrong, wrong[:, :, None] - both_wrong
        return PairCounts(n, n - both_wrong - only_a - only_b, both_wrong, only_a, only_b)

    def over_pairs(self, statistic: Tensor) -> Tensor:
        return mean_over_pairs(statistic, self.members)

    @cached_property
    def _votes_per_slot(self) -> Tensor:
        """(E, P, w, 1+C) members that predict a slot, none being the first."""
        votes = self._votes()
        shape = (len(votes), self.members.shape[1], votes.shape[1], votes.shape[2])
        return torch.bmm(self.members, votes.flatten(1, 2).transpose(1, 2)).view(shape)

    @property
    def same_votes(self) -> Tensor:
        return (self._votes_per_slot * (self._votes_per_slot - 1)).sum((-1, -2))

    @property
    def chance(self) -> Tensor:
        return (self._votes_per_slot.sum(-2) / (self.n * self.size)[..., None]).square().sum(-1)

    @property
    def plurality_right(self) -> Tensor:
        return self._right().sum(-1)


def observed_metrics(window: Window, names: Sequence[str]) -> Tensor:
    """(E, P, K) the named metrics; 0 where undefined, so also for a diversity of fewer than two models."""
    columns = [METRICS[name](window).nan_to_num(0, 0, 0) for name in names]
    return torch.stack(columns, -1) if columns else window.size.new_zeros((*window.size.shape, 0))

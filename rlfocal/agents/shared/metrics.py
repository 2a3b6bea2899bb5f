"""Diversity metrics of many pools over many windows at once: what the Decider observes.

The pools of one window share its matrices, so every metric is a few matrix products over the window's rows;
nothing grows with 2^N. An undefined value (contract: NaN) is observed as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor


class Window:
    """E windows of w documents, and P pools looked at through each.

    `pools` (E, P, N) holds 0 or 1; `fails` (E, w, N) is 1 where a model is wrong; `right` (E, P, w) says
    where the pool's plurality is right; `votes` (E, w, 1+C, N) is 1 where a model predicts a slot; `n` (E,)
    counts the rows that exist: a window at the start of the stream is filled up with rows in which nobody
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
        self.pools, self.fails, self.n = pools, fails, n[:, None]
        self.right, self.votes = right, votes
        self.size = pools.sum(-1)

    @cached_property
    def n_failing(self) -> Tensor:
        """(E, P, w) k_t: how many members fail on each row."""
        return torch.bmm(self.pools, self.fails.transpose(1, 2))

    @cached_property
    def joint_failures(self) -> Tensor:
        """(E, N, N) rows on which both models fail; the diagonal counts a model's own failures."""
        return torch.bmm(self.fails.transpose(1, 2), self.fails)

    def pair_mean(self, pairwise: Tensor) -> Tensor:
        """(E, P) mean of a symmetric (E, N, N) statistic over the pool's pairs at which it is defined."""
        value = torch.triu(pairwise, 1)
        defined = torch.triu(torch.isfinite(pairwise), 1).to(value.dtype)
        total = (torch.bmm(self.pools, value.nan_to_num(0, 0, 0)) * self.pools).sum(-1)
        return total / (torch.bmm(self.pools, defined) * self.pools).sum(-1)

    def pair_counts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(E, N, N) each: rows both right, both wrong, only the first right, only the second right."""
        both_wrong = self.joint_failures
        own = both_wrong.diagonal(dim1=1, dim2=2)
        only_a = own[:, None, :] - both_wrong
        only_b = own[:, :, None] - both_wrong
        return self.n[:, :, None] - both_wrong - only_a - only_b, both_wrong, only_a, only_b


def focal_correlations(window: Window) -> tuple[Tensor, Tensor]:
    """(E, P, N) each model's 1 - P(2)/P(1) on its failures, Eq (8), and 1 for the members that fail."""
    k = window.n_failing
    first, second = torch.bmm(k, window.fails), torch.bmm(k * k, window.fails)  # Σ F_tf k_t, Σ F_tf k_t²
    rho = 1 - (second - first) / ((window.size[..., None] - 1) * first)
    counted = window.pools * (first > 0)
    return torch.where(counted > 0, rho, 0), counted


def focal_diversity(window: Window) -> Tensor:
    """Eq (8): mean of the focal correlations of the members that fail at all."""
    rho, counted = focal_correlations(window)
    return rho.sum(-1) / counted.sum(-1)


def generalized_diversity(window: Window) -> Tensor:
    """1 - P(2)/P(1) over all rows (Partridge and Krzanowski)."""
    k = window.n_failing
    return 1 - (k * (k - 1)).sum(-1) / ((window.size - 1) * k.sum(-1))


def plurality_accuracy(window: Window) -> Tensor:
    """Share of rows on which the pool's plurality is right."""
    return window.right().sum(-1) / window.n


def binary_entropy(window: Window) -> Tensor:
    """Entropy in bits of the share of right entries in rows × pool."""
    wrong = window.n_failing.sum(-1) / (window.n * window.size)
    return -(torch.xlogy(wrong, wrong) + torch.xlogy(1 - wrong, 1 - wrong)) / torch.log(torch.tensor(2.0))


def fleiss_kappa(window: Window) -> Tensor:
    """Fleiss' kappa over the predicted slots; no answer is a category of its own."""
    votes = window.votes()
    shape = (votes.shape[0], window.pools.shape[1], votes.shape[1], votes.shape[2])
    counts = torch.bmm(window.pools, votes.flatten(1, 2).transpose(1, 2)).view(shape)
    size, rows = window.size, window.n * window.size
    agreement = (counts * (counts - 1)).sum((-1, -2)) / (rows * (size - 1))
    chance = (counts.sum(-2) / rows[..., None]).square().sum(-1)
    return (agreement - chance) / (1 - chance)


def q_statistic(window: Window) -> Tensor:
    """Mean over pairs of Yule's Q."""
    n11, n00, n10, n01 = window.pair_counts()
    return window.pair_mean((n11 * n00 - n10 * n01) / (n11 * n00 + n10 * n01))


def correlation(window: Window) -> Tensor:
    """Mean over pairs of the correlation of being right."""
    n11, n00, n10, n01 = window.pair_counts()
    spread = ((n11 + n10) * (n01 + n00)).sqrt() * ((n11 + n01) * (n10 + n00)).sqrt()
    return window.pair_mean((n11 * n00 - n10 * n01) / spread)


def disagreement(window: Window) -> Tensor:
    """Mean over pairs of the share of rows on which exactly one is right."""
    _, _, n10, n01 = window.pair_counts()
    return window.pair_mean((n10 + n01) / window.n[..., None])


def kappa(window: Window) -> Tensor:
    """Mean over pairs of the paper's pairwise kappa (section 1.3)."""
    n11, n00, n10, n01 = window.pair_counts()
    chance = (n11 + n10) * (n01 + n00) + (n11 + n01) * (n10 + n00)
    return window.pair_mean(2 * (n11 * n00 - n10 * n01) / chance)


def double_fault(window: Window) -> Tensor:
    """Mean over pairs of the share of rows on which both are wrong."""
    return window.pair_mean(window.joint_failures / window.n[..., None])


METRICS: Mapping[str, Callable[[Window], Tensor]] = {
    metric.__name__: metric
    for metric in (
        focal_diversity,
        generalized_diversity,
        plurality_accuracy,
        fleiss_kappa,
        q_statistic,
        correlation,
        disagreement,
        kappa,
        double_fault,
        binary_entropy,
    )
}


def observed_metrics(window: Window, names: Sequence[str]) -> Tensor:
    """(E, P, K) the named metrics; 0 where undefined, so also for a diversity of fewer than two models."""
    pairwise = window.size > 1
    columns = []
    for name in names:
        value = METRICS[name](window)
        lonely = window.size > 0 if name in ("plurality_accuracy", "binary_entropy") else pairwise
        columns.append(torch.where(lonely, value, 0).nan_to_num(0, 0, 0))
    return torch.stack(columns, -1) if columns else window.pools.new_zeros((*window.pools.shape[:2], 0))

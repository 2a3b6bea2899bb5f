"""Diversity of many pools over many windows of a stream, counted in torch: the metrics that the Decider
observes.

The pools of one window share its matrices, so every count is a few matrix products over the window's rows.
Nothing grows with 2^N.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from rlfocal.data.dataset import Kind
from rlfocal.statistics.metrics import METRICS, PairCounts, mean_over_pairs


class Window:
    """P pools on each of E windows of w documents: `rlfocal.statistics.metrics.Counts`.

    `pools` (E, P, N) holds 0 or 1. `fails` (E, w, N) is 1 where a model is wrong. `right` (E, P, w) says
    where the pool's plurality is right. `votes` (E, w, 1+C, N) is 1 where a model predicts a slot. `n` (E,)
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

    def average_pairs(self, statistic: Tensor) -> Tensor:
        return mean_over_pairs(statistic, self.members)

    @cached_property
    def _votes_per_slot(self) -> Tensor:
        """(E, P, w, 1+C) the number of members that predict each slot; the first slot is no answer."""
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
    """(E, P, K) the named metrics; 0 where undefined, as a diversity of fewer than two models is."""
    columns = [METRICS[name](window).nan_to_num(0, 0, 0) for name in names]
    return torch.stack(columns, -1) if columns else window.size.new_zeros((*window.size.shape, 0))


MODELS_RANKED = 18
"""Up to so many models, the weights of `_make_answer_margins` sum exactly in single precision."""


class Outcomes:
    """T documents in stream order, after `lead` empty rows that let a window reach back before the first
    document.

    `predictions` (T, N) and `labels` (T,) are slots, -1 for none. Rows are numbered by document: -lead ..
    T-1.
    """

    def __init__(self, predictions: Tensor, labels: Tensor, n_slots: int, kind: Kind, lead: int) -> None:
        slots = torch.arange(-1, n_slots)
        self.lead, self.n_models, self.n_rows = lead, predictions.shape[1], lead + len(labels)
        self._fails = _prepend_blank((predictions != labels[:, None]) | (labels[:, None] < 0), lead)
        self._votes = _prepend_blank(predictions[:, None, :] == slots[:, None], lead)
        self._margins: list[Tensor] | None = None
        if kind == "choices":
            margins = _make_choice_margins(predictions, labels, n_slots)
        elif self.n_models <= MODELS_RANKED:
            margins = _make_answer_margins(predictions, labels)
        else:
            ranks = _ranks(predictions, labels)
            supporters = ranks[:, None, :] == torch.arange(max(int(ranks.max()), 0) + 1)[:, None]
            self._ranks, self._supporters = _prepend_blank(ranks, lead, -1), _prepend_blank(supporters, lead)
            return
        self._margins = [_prepend_blank(rival, lead) for rival in margins]

    def window(self, pools: Tensor, end: int, length: int, stride: int) -> Window:
        """The `length` rows before row `end + g * stride`, for each of the pools (G, P, N)."""
        start = end - length
        rows = torch.arange(len(pools)) * stride + end
        return Window(
            pools,
            self._view_rows(self._fails, start, length, stride, len(pools)),
            rows.clamp(max=length).to(pools.dtype),
            lambda: self.mark_right(pools, start, length, stride),
            lambda: self._view_rows(self._votes, start, length, stride, len(pools)),
        )

    def mark_right(self, pools: Tensor, start: int, length: int, stride: int) -> Tensor:
        """(G, P, length) whether a pool's plurality is right on rows start + g * stride ..., as 0 or 1."""
        if self._margins is None:
            supporters, ranks = (
                self._view_rows(rows, start, length, stride, len(pools))
                for rows in (self._supporters, self._ranks)
            )
            return _mark_best_supported(pools, supporters, ranks)
        return _leads_all(
            pools, [self._view_rows(rival, start, length, stride, len(pools)) for rival in self._margins]
        )

    def right_on(self, pools: Tensor, rows: Tensor) -> Tensor:
        """(D, P) whether the plurality of `pools` (D, P, N) is right on their one document, `rows` (D,)."""
        places = rows + self.lead
        if self._margins is None:
            supporters, ranks = self._supporters[places][:, None], self._ranks[places][:, None]
            return _mark_best_supported(pools, supporters, ranks)[..., 0]
        return _leads_all(pools, [rival[places][:, None] for rival in self._margins])[..., 0]

    def _view_rows(self, values: Tensor, start: int, length: int, stride: int, groups: int) -> Tensor:
        """(G, length, ...) a view of the rows from start + g * stride on."""
        step = values.stride(0)
        last = start + self.lead + (groups - 1) * stride + length
        if start + self.lead < 0 or last > self.n_rows:
            raise IndexError(f"rows {start}..{last - self.lead - 1} of a stream of {self.n_rows - self.lead}")
        return values.as_strided(
            (groups, length, *values.shape[1:]),
            (stride * step, *values.stride()),
            (start + self.lead) * step,
        )


def _leads_all(pools: Tensor, margins: list[Tensor]) -> Tensor:
    """(G, P, L) 1 where [pool; 1] times the row of every rival (G, L, N+1) is at least 1, else 0."""
    anybody = pools.amax(-1, keepdim=True)
    asked = torch.cat([pools, anybody], -1)
    least = torch.bmm(asked, margins[0].transpose(1, 2))
    for rival in margins[1:]:
        least = torch.minimum(least, torch.bmm(asked, rival.transpose(1, 2)))
    return least.clamp_(0, 1)


def _make_choice_margins(predictions: Tensor, labels: Tensor, n_slots: int) -> list[Tensor]:
    """(T, N+1) rows for each rival of the label; times [pool; 1] they are at least 1 where the label beats
    the rival.

    The product is twice the lead in votes, plus one where the label wins ties by its lower index.
    """
    for_label = ((predictions == labels[:, None]) & (labels[:, None] >= 0)).float()
    rivals = []
    if n_slots == 1 or bool((predictions < 0).any()):  # then a pool can be without any vote
        rivals.append(pad(for_label, (0, 1)))
    for after in range(n_slots - 1):
        slot = after + (after >= labels).long()  # the slots without the label
        ahead = for_label - (predictions == slot[:, None]).float()
        wins_ties = ((slot > labels) & (labels >= 0)).float()
        rivals.append(torch.cat([2 * ahead, wins_ties[:, None]], -1))
    return rivals


def _make_answer_margins(predictions: Tensor, labels: Tensor) -> list[Tensor]:
    """The rows of `_make_choice_margins` for free answers, where the alphabetically first giver wins ties.

    A vote of the i-th model counts 2^N + 2^(N-1-i), so that the earliest giver decides between equal votes.
    """
    n = predictions.shape[1]
    worth = 2.0**n + 2.0 ** torch.arange(n - 1, -1, -1)
    ranks = _ranks(predictions, labels)
    rivals = [worth * (ranks == 0)]
    # For documents with fewer wrong answers, the row only requires some right answer.
    rivals += [rivals[0] - worth * (ranks == answer) for answer in range(1, int(ranks.max()) + 1)]
    return [pad(rival, (0, 1)) for rival in rivals]


def _ranks(predictions: Tensor, labels: Tensor) -> Tensor:
    """(T, N) each model's answer as a rank: 0 is the right answer, 1 and up are the document's wrong ones, -1
    is none."""
    nobody = torch.iinfo(torch.long).max
    is_right = (predictions == labels[:, None]) & (labels[:, None] >= 0)
    wrong = torch.where(is_right | (predictions < 0), nobody, predictions).sort(-1).values
    repeated = pad(wrong[:, 1:] == wrong[:, :-1], (1, 0))
    distinct = wrong.masked_fill(repeated, nobody).sort(-1).values
    ranks = torch.searchsorted(distinct, predictions.contiguous()) + 1
    return torch.where(is_right, 0, torch.where(predictions < 0, -1, ranks))


def _mark_best_supported(pools: Tensor, supporters: Tensor, ranks: Tensor) -> Tensor:
    """(G, P, L) whether the right answer wins.

    `supporters` (G, L, R, N) says which models give each answer, the right one first. `ranks` (G, L, N) is
    each model's answer, -1 for none.
    """
    shape = (*pools.shape[:2], *supporters.shape[1:3])
    support = torch.bmm(pools, supporters.flatten(1, 2).transpose(1, 2)).view(shape)
    right, most = support[..., 0], support.amax(-1)
    leads = (right == most) & (most > 0)
    group, pool, row = (leads & ((support == most[..., None]).sum(-1) > 1)).nonzero(as_tuple=True)
    # The first giver of any of the equally supported answers decides.
    gives = ranks[group, row].long()
    tied = support[group, pool, row].gather(-1, gives.clamp(min=0)) == most[group, pool, row, None]
    first = (tied & (gives >= 0) & (pools[group, pool] > 0)).float().argmax(-1, keepdim=True)
    leads[group, pool, row] = gives.gather(-1, first)[..., 0] == 0
    return leads.to(pools.dtype)


def _prepend_blank(rows: Tensor, lead: int, blank: int = 0) -> Tensor:
    return torch.cat([rows.new_full((lead, *rows.shape[1:]), blank), rows]).float()

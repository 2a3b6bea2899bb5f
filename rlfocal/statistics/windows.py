"""Diversity of many pools over many windows of a stream, counted in torch, for the Decider to observe.

Every count is a few matrix products over the rows of a window, for all its pools at once.
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
    """The `rlfocal.statistics.metrics.Counts` of P pools on each of E windows of w documents.

    `pools` (E, P, N) is 1 for a pool's models, else 0. `fails` (E, w, N) is 1 where a model is wrong. `right`
    returns (E, P, w) whether the pool's plurality is right. `votes` returns (E, w, 1+C, N): 1 where a model
    predicts a slot. `n` (E,) is the number of documents. A window at the start of the stream is padded with
    rows in which no model fails and no plurality is right.
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
        """(E, P, w) k_t, the number of members that fail on each row."""
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
    """(E, P, K) the metrics of these K names; 0 where undefined, as for diversities of a single model."""
    columns = [METRICS[name](window).nan_to_num(0, 0, 0) for name in names]
    return torch.stack(columns, -1) if columns else window.size.new_zeros((*window.size.shape, 0))


MODELS_RANKED = 18
"""The most models for which the weights of `_make_answer_margins` sum exactly in single precision."""


class Outcomes:
    """T documents in stream order, after `lead` empty rows for windows that begin before the first document.

    `predictions` (T, N) and `labels` (T,) are slots, -1 for none. Rows are numbered from -lead to T - 1.
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
        """The counts of pools (G, P, N) over the `length` rows before row `end + g * stride`."""
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
        """(G, P, length) 1 if a pool's plurality is right on rows from `start + g * stride` on, else 0."""
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
        """(D, P) whether the pluralities of `pools` (D, P, N) are right on the documents `rows` (D,)."""
        places = rows + self.lead
        if self._margins is None:
            supporters, ranks = self._supporters[places][:, None], self._ranks[places][:, None]
            return _mark_best_supported(pools, supporters, ranks)[..., 0]
        return _leads_all(pools, [rival[places][:, None] for rival in self._margins])[..., 0]

    def _view_rows(self, values: Tensor, start: int, length: int, stride: int, groups: int) -> Tensor:
        """(G, length, ...) a view of the rows of `values` from `start + g * stride` on."""
        step = values.stride(0)
        last = start + self.lead + (groups - 1) * stride + length
        if start + self.lead < 0 or last > self.n_rows:
            end, n_rows = last - self.lead - 1, self.n_rows - self.lead
            raise IndexError(f"rows {start} to {end} are not in a stream of {n_rows} documents")
        return values.as_strided(
            (groups, length, *values.shape[1:]),
            (stride * step, *values.stride()),
            (start + self.lead) * step,
        )


def _leads_all(pools: Tensor, margins: list[Tensor]) -> Tensor:
    """(G, P, L) 1 where the label beats all rivals, else 0; `margins` are weights (G, L, N+1) for each rival.

    The label beats a rival where the product of [pool; 1] and the rival's weights is at least 1.
    """
    anybody = pools.amax(-1, keepdim=True)
    asked = torch.cat([pools, anybody], -1)
    least = torch.bmm(asked, margins[0].transpose(1, 2))
    for rival in margins[1:]:
        least = torch.minimum(least, torch.bmm(asked, rival.transpose(1, 2)))
    return least.clamp_(0, 1)


def _make_choice_margins(predictions: Tensor, labels: Tensor, n_slots: int) -> list[Tensor]:
    """For each rival of the label, (T, N+1) weights whose product with [pool; 1] is the label's margin.

    The margin is twice the lead in votes, plus one where the label wins ties by its lower index.
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
    """The weights of `_make_choice_margins` for free answers, where the alphabetically first model wins ties.

    A vote of the i-th model counts 2^N + 2^(N-1-i), so that the first model decides between equal votes.
    """
    n = predictions.shape[1]
    worth = 2.0**n + 2.0 ** torch.arange(n - 1, -1, -1)
    ranks = _ranks(predictions, labels)
    rivals = [worth * (ranks == 0)]
    # For documents with fewer wrong answers, the row only requires some right answer.
    rivals += [rivals[0] - worth * (ranks == answer) for answer in range(1, int(ranks.max()) + 1)]
    return [pad(rival, (0, 1)) for rival in rivals]


def _ranks(predictions: Tensor, labels: Tensor) -> Tensor:
    """(T, N) each model's answer as a number: 0 if right, -1 if missing, from 1 on for wrong answers."""
    nobody = torch.iinfo(torch.long).max
    is_right = (predictions == labels[:, None]) & (labels[:, None] >= 0)
    wrong = torch.where(is_right | (predictions < 0), nobody, predictions).sort(-1).values
    repeated = pad(wrong[:, 1:] == wrong[:, :-1], (1, 0))
    distinct = wrong.masked_fill(repeated, nobody).sort(-1).values
    ranks = torch.searchsorted(distinct, predictions.contiguous()) + 1
    return torch.where(is_right, 0, torch.where(predictions < 0, -1, ranks))


def _mark_best_supported(pools: Tensor, supporters: Tensor, ranks: Tensor) -> Tensor:
    """(G, P, L) 1 where the right answer is the plurality of the pools (G, P, N), else 0.

    `supporters` (G, L, R, N): which models give each answer, the right one first. `ranks` (G, L, N): each
    model's answer as a number, -1 for none.
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

"""What every model answered along the stream, laid out so that many windows are views, not copies."""

from __future__ import annotations

import torch
from torch import Tensor

from rlfocal.agents.metrics import Window
from rlfocal.dataset import Kind


class Outcomes:
    """T documents in stream order, after `lead` empty rows that let a window reach back before the first one.

    `predictions` (T, N) and `labels` (T,) are slots, -1 for none. Rows are numbered by document: -lead ..
    T-1.
    """

    def __init__(self, predictions: Tensor, labels: Tensor, n_slots: int, kind: Kind, lead: int) -> None:
        slots = torch.arange(-1, n_slots, device=labels.device)
        self.kind, self.lead, self.n_models = kind, lead, predictions.shape[1]
        self._fails = _after_blank((predictions != labels[:, None]) | (labels[:, None] < 0), lead)
        self._votes = _after_blank(predictions[:, None, :] == slots[:, None], lead)
        if kind == "choices":
            self._margins = _after_blank(_margins(predictions, labels, n_slots), lead)
            self._margins[:lead, :, -1] = 0.5
        else:
            agree = (predictions[:, :, None] == predictions[:, None, :]) & (predictions[:, :, None] >= 0)
            self._agree = _after_blank(agree, lead)

    def window(self, pools: Tensor, end: int, length: int, stride: int) -> Window:
        """The `length` rows before row `end + g * stride`, for each of the pools (G, P, N)."""
        start = end - length
        rows = torch.arange(len(pools), device=pools.device) * stride + end
        return Window(
            pools,
            self._rows(self._fails, start, length, stride, len(pools)),
            rows.clamp(max=length).to(pools.dtype),
            lambda: self.right(pools, start, length, stride),
            lambda: self._rows(self._votes, start, length, stride, len(pools)),
        )

    def right(self, pools: Tensor, start: int, length: int, stride: int) -> Tensor:
        """(G, P, length) whether a pool's plurality is right on rows start + g * stride ..., as 0 or 1."""
        shape = (*pools.shape[:2], length)
        if self.kind == "choices":
            margins = self._rows(self._margins, start, length, stride, len(pools))
            always = torch.cat([pools, pools.new_ones((*pools.shape[:2], 1))], -1)
            leads = torch.bmm(always, margins.flatten(1, 2).transpose(1, 2))
            return (leads.view(*shape, -1).amax(-1) <= 0).to(pools.dtype)
        agree = self._rows(self._agree, start, length, stride, len(pools))
        fails = self._rows(self._fails, start, length, stride, len(pools))
        support = torch.bmm(pools, agree.flatten(1, 2).transpose(1, 2)).view(*shape, self.n_models)
        # The alphabetically first of equally supported members decides, so keys never tie.
        key = support * self.n_models - torch.arange(self.n_models, device=pools.device)
        key = torch.where((pools[:, :, None] > 0) & (support > 0), key, -torch.inf)
        best_right = torch.where(fails[:, None] > 0, -torch.inf, key).amax(-1)
        return (best_right >= key.amax(-1)).logical_and(best_right > -torch.inf).to(pools.dtype)

    def _rows(self, values: Tensor, start: int, length: int, stride: int, groups: int) -> Tensor:
        """(G, length, ...) view of rows start + g * stride onwards."""
        step = values.stride(0)
        offset = (start + self.lead) * step
        last = start + self.lead + (groups - 1) * stride + length
        if start + self.lead < 0 or last > len(values):
            raise IndexError(f"rows {start}..{last - self.lead - 1} of a stream of {len(values) - self.lead}")
        return values.as_strided(
            (groups, length, *values.shape[1:]), (stride * step, *values.stride()), offset
        )


def _margins(predictions: Tensor, labels: Tensor, n_slots: int) -> Tensor:
    """(T, C, N+1) rows whose product with [pool; 1] is > 0 for some slot exactly if the plurality is wrong.

    Slot c's product is its votes minus the label's, plus a half where c wins ties (c < label); the label's
    own row says instead that somebody voted for it.
    """
    slots = torch.arange(n_slots, device=labels.device)
    votes = (predictions[:, None, :] == slots[:, None]).float()
    for_label = ((predictions == labels[:, None]) & (labels[:, None] >= 0)).float()
    is_label = slots == labels[:, None]
    rivals = torch.where(is_label[..., None], 0, votes) - for_label[:, None, :]
    bias = torch.where((slots <= labels[:, None]) | (labels[:, None] < 0), 0.5, 0.0)
    return torch.cat([rivals, bias[..., None]], -1)


def _after_blank(rows: Tensor, lead: int) -> Tensor:
    return torch.cat([rows.new_zeros((lead, *rows.shape[1:])), rows]).float()

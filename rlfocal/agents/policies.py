"""How logits become actions: sampled in training, modal once frozen."""

from __future__ import annotations

import torch
from torch import Tensor


def sample_pool(logits: Tensor, draws: Tensor) -> Tensor:
    """(..., N) 1 where a uniform draw falls under the branch's probability, else 0."""
    return (draws < torch.sigmoid(logits)).to(logits.dtype)


def modal_pool(logits: Tensor) -> Tensor:
    """(..., N) 1 where a branch is likelier than not; if none is, at the likeliest: one has to answer."""
    likeliest = torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1])
    chosen = (logits > 0).long()
    return torch.where(chosen.any(-1, keepdim=True), chosen, likeliest).to(logits.dtype)


def mask_closed(logits: Tensor, open_slots: Tensor) -> Tensor:
    """(..., C) -inf where no slot is; where there is none at all slot 0 stays, and stands for no answer."""
    first = torch.arange(logits.shape[-1], device=logits.device) == 0
    allowed = open_slots | (first & ~open_slots.any(-1, keepdim=True))
    return logits.masked_fill(~allowed, -torch.inf)


def sample_slot(logits: Tensor, draws: Tensor) -> Tensor:
    """(...) the slot at which the cumulated probability passes a uniform draw."""
    slot = (torch.softmax(logits, -1).cumsum(-1) <= draws[..., None]).sum(-1)
    last = torch.isfinite(logits).long().cumsum(-1).argmax(-1)  # rounding may leave the last total below 1
    return torch.minimum(slot, last)


def modal_answer(logits: Tensor) -> Tensor:
    """(...) the likeliest slot; ties: the lowest."""
    return logits.argmax(-1)

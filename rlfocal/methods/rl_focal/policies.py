"""How logits become actions, sampled in training and modal once frozen, and their log-probabilities."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, one_hot

SMALLEST = torch.finfo(torch.float32).tiny


def logistic_noise(draws: Tensor) -> Tensor:
    """Noise from uniform draws: a branch whose logit lies above it is asked."""
    return torch.logit(draws, eps=1e-7)


def gumbel_noise(draws: Tensor) -> Tensor:
    """Noise from uniform draws: the slot whose logit plus noise is highest is drawn by the softmax."""
    return -(-draws.clamp_min(SMALLEST).log()).clamp_min(SMALLEST).log()


def sample_pool(logits: Tensor, noise: Tensor) -> Tensor:
    """(..., N) 1 with the branch's probability, else 0, by logistic noise."""
    return (logits > noise).to(logits.dtype)


def modal_pool(logits: Tensor) -> Tensor:
    """(..., N) 1 where a branch is likelier than not; if none is, at the likeliest, for one has to answer."""
    likeliest = one_hot(logits.argmax(-1), logits.shape[-1])
    chosen = (logits > 0).long()
    return torch.where(chosen.any(-1, keepdim=True), chosen, likeliest).to(logits.dtype)


def move(pool: Tensor, action: Tensor) -> Tensor:
    """(..., N) the pool after a move: model `action` (...) is added or dropped; N changes nothing."""
    changes = one_hot(action, pool.shape[-1] + 1)[..., :-1]
    return (pool - changes).abs()


def moves(before: Tensor, after: Tensor) -> Tensor:
    """(...) the moves that led from one pool (..., N) to the next."""
    changed = before != after
    return torch.where(changed.any(-1), changed.long().argmax(-1), before.shape[-1])


def modal_move(logits: Tensor, pool: Tensor) -> Tensor:
    """(..., N) the pool after the likeliest move (of N+1) that leaves a model to answer."""
    last_one = (pool > 0) & (pool.sum(-1, keepdim=True) == 1)
    allowed = torch.cat([~last_one, torch.ones_like(last_one[..., :1])], -1)
    return move(pool, logits.masked_fill(~allowed, -torch.inf).argmax(-1))


def next_modal_pool(logits: Tensor, pool: Tensor) -> Tensor:
    """The pool that a frozen Decider asks next: by branches, or from N+1 logits by one move."""
    return modal_pool(logits) if logits.shape[-1] == pool.shape[-1] else modal_move(logits, pool)


def mask_closed(logits: Tensor, open_slots: Tensor) -> Tensor:
    """(..., C) -inf for slots that do not exist; if none does, slot 0 is kept and stands for no answer."""
    first = torch.arange(logits.shape[-1]) == 0
    allowed = open_slots | (first & ~open_slots.any(-1, keepdim=True))
    return logits.masked_fill(~allowed, -torch.inf)


def sample_slot(logits: Tensor, noise: Tensor) -> Tensor:
    """(...) a slot drawn by the softmax of the logits (..., C), with Gumbel noise (..., C)."""
    return (logits + noise).argmax(-1)


def modal_answer(logits: Tensor) -> Tensor:
    """(...) the likeliest slot; ties: the lowest."""
    return logits.argmax(-1)


def branch_log_probs(logits: Tensor, actions: Tensor) -> Tensor:
    """log π(a_i|o) of each Bernoulli branch, Eq (5), from `logits` and `actions` (0 or 1): all (..., N)."""
    return logsigmoid(torch.where(actions.bool(), logits, -logits))


def branch_entropy(logits: Tensor) -> Tensor:
    """Entropy of each Bernoulli branch in nats, (..., N)."""
    p = torch.sigmoid(logits)
    return -(p * logsigmoid(logits) + (1 - p) * logsigmoid(-logits))


def choice_entropy(logits: Tensor) -> Tensor:
    """Entropy of a categorical policy in nats, (...); slots of probability 0 add nothing."""
    log_p = torch.log_softmax(logits, -1)
    return -(log_p.exp() * log_p.clamp_min(torch.finfo(log_p.dtype).min)).sum(-1)

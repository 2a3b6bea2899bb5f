"""The clipped objective of MAPPO, Eq (7), for branched and for categorical policies."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def branch_log_probs(logits: Tensor, actions: Tensor) -> Tensor:
    """log π(a_i|o) of each Bernoulli branch, Eq (5), from `logits` and `actions` (0 or 1): all (..., N)."""
    return logsigmoid(torch.where(actions.bool(), logits, -logits))


def branch_entropy(logits: Tensor) -> Tensor:
    """Entropy of each Bernoulli branch in nats, (..., N)."""
    p = torch.sigmoid(logits)
    return -(p * logsigmoid(logits) + (1 - p) * logsigmoid(-logits))


def choice_log_probs(logits: Tensor, actions: Tensor) -> Tensor:
    """log π(c|o) of a categorical policy: `logits` (..., C), -inf where no slot is; `actions` (...) int."""
    return torch.log_softmax(logits, -1).gather(-1, actions[..., None])[..., 0]


def choice_entropy(logits: Tensor) -> Tensor:
    """Entropy of a categorical policy in nats, (...); slots of probability 0 add nothing."""
    log_p = torch.log_softmax(logits, -1)
    return -(log_p.exp() * log_p.clamp_min(torch.finfo(log_p.dtype).min)).sum(-1)


def clipped_surrogate(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, clip: float | Tensor
) -> Tensor:
    """min(ρ Â, clip(ρ, 1-ε, 1+ε) Â), elementwise and to be maximised; the arguments broadcast."""
    ratio = (log_probs - old_log_probs).exp()
    clip = torch.as_tensor(clip, dtype=ratio.dtype)
    return torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


def normalised(advantages: Tensor, dim: tuple[int, ...]) -> Tensor:
    """Zero mean and unit deviation over `dim`, as MAPPO does."""
    mean = advantages.mean(dim, keepdim=True)
    return (advantages - mean) / (advantages.std(dim, correction=0, keepdim=True) + 1e-5)

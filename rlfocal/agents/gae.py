"""Generalised advantage estimation (paper, section 1.6)."""

from __future__ import annotations

import torch
from torch import Tensor


def advantages(rewards: Tensor, values: Tensor, gamma: float | Tensor, lam: float | Tensor) -> Tensor:
    """Â_t = δ_t + γλ Â_{t+1} with δ_t = r_t + γ V(s_{t+1}) - V(s_t).

    `rewards` is (L, ...), `values` (L+1, ...): the last value stands for everything after the buffer. Returns
    (L, ...).
    """
    deltas = rewards + gamma * values[1:] - values[:-1]
    result = torch.empty_like(deltas)
    running = torch.zeros_like(deltas[0])
    for t in range(len(deltas) - 1, -1, -1):
        running = deltas[t] + gamma * lam * running
        result[t] = running
    return result

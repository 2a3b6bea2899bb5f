"""What a constant pool costs, and whether a budget can pay for it."""

from __future__ import annotations

import numpy as np

from rlfocal.base.arrays import Bools, Floats
from rlfocal.data.policy import Budget


def affordable(pools: Bools, prices: Floats, budget: Budget) -> Bools:
    """(P,) whether the budget can pay for each of the pools (P, N); false if a member's price is unknown."""
    each = np.ones(pools.shape[1]) if budget.unit == "models" else prices
    # Sums of prices are inexact in binary, and a budget may equal one of them.
    return np.asarray(np.where(pools, each, 0.0).sum(axis=1) <= budget.amount + 1e-9)


def most_affordable(prices: Floats, budget: Budget) -> int:
    """The size of the largest pool that the budget can pay for."""
    cheapest_first = np.argsort(prices, kind="stable")
    largest = np.tri(len(prices), dtype=np.bool_)[:, np.argsort(cheapest_first, kind="stable")]
    return int(affordable(largest, prices, budget).sum())

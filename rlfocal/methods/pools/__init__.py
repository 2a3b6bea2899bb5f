"""Methods that choose one pool of models for all documents, on train: within a budget, or grown by models."""

from __future__ import annotations

import math
from collections.abc import Callable

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


Grown = tuple[int, ...]
"""Positions of models, in the order in which they joined the pool."""


def grow(worth: Callable[[Grown], float], cost: Floats, amount: float, largest: int | None) -> Grown:
    """Adds models one by one, each time the one that makes the pool worth most among those still affordable.

    `cost` (N,) is infinite where unknown. With `largest`, growth also stops at that many models, or when no
    model makes the pool worth more; without, it goes on as far as `amount` allows. Ties: the first model.
    """
    pool: Grown = ()
    worth_now, spent = -math.inf, 0.0
    while largest is None or len(pool) < largest:
        affordable = [
            m
            for m in range(len(cost))
            if m not in pool and spent + cost[m] <= amount + 1e-9 and cost[m] < math.inf
        ]
        if not affordable:
            break
        worths = [worth((*pool, model)) for model in affordable]
        best = int(np.argmax(worths))
        if largest is not None and worths[best] <= worth_now:
            break
        pool, worth_now = (*pool, affordable[best]), worths[best]
        spent += cost[affordable[best]]
    return pool

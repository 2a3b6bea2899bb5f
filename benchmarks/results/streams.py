"""Constructed streams that turn: what online learning regains, and what it costs where nothing turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from benchmarks.results.revisions import revision
from rlfocal.base.arrays import Bools
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Decisions, Fitted
from rlfocal.evaluation.fitting import decide_groups
from rlfocal.methods import make_method
from warehouse import Warehouse

N_TRAIN, N_TEST, TURN_POSITION, SCORED_FROM = 400, 900, 300, 300
ACCURACIES_BEFORE, ACCURACIES_AFTER = (0.9, 0.85, 0.4, 0.3, 0.35, 0.4), (0.3, 0.35, 0.4, 0.9, 0.85, 0.4)
"""How often each of six models is right, before the turn and after it."""


@dataclass(frozen=True)
class StreamTable:
    """Methods that learn online, on 16 streams of 900 documents after 400 train documents."""

    methods: tuple[str, ...]
    seeds: int = 16

    @property
    def command(self) -> str:
        return "make results ONLY=online"

    @property
    def about(self) -> dict[str, Any]:
        return {"benchmark": "constructed streams", "protocol": "online", "settings": []}

    def rows(self, warehouse: Warehouse, at_once: int = 1) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        return {"models": len(ACCURACIES_BEFORE), "documents": N_TEST}, [
            self._make_row(name) for name in self.methods
        ]

    def _make_row(self, method: str) -> dict[str, Any]:
        costs, shares, just_after, late = [], [], [], np.arange(N_TEST) >= TURN_POSITION + SCORED_FROM
        for seed in range(self.seeds):
            steady, turned = make_turning_stream(seed, N_TEST), make_turning_stream(seed, TURN_POSITION)
            [policy] = make_method(method).fit(steady.train, [seed])  # train does not turn
            frozen, kept = (_mark_right(policy, steady, protocol) for protocol in ("frozen", "online"))
            costs.append(frozen.mean() - kept.mean())
            right = _mark_right(policy, turned, "online")
            shares.append(right[late].mean() / best_constant(turned.test.rows(late)))
            just_after.append(right[TURN_POSITION : TURN_POSITION + SCORED_FROM].mean())
        return {
            "method": method,
            "seeds": self.seeds,
            "cost_of_steady": _summarise_spread(costs),
            "after_turn": _summarise_spread(shares),
            "just_after": _summarise_spread(just_after),
            "revision": revision(method, (), "online"),
        }


def _summarise_spread(values: list[float]) -> list[float]:
    """The mean, the least and the most."""
    return [round(float(value), 6) for value in (np.mean(values), np.min(values), np.max(values))]


def decide_stream(policy: Fitted, data: Dataset, protocol: str) -> Decisions:
    """The decisions of one policy on all test documents."""
    return decide_groups(data, [np.ones(len(data), dtype=np.bool_)], [policy], protocol)


def _mark_right(policy: Fitted, data: Dataset, protocol: str) -> Bools:
    return data.test.is_right(decide_stream(policy, data, protocol).predictions)


def make_turning_stream(
    seed: int,
    turn: int,
    before: Sequence[float] = ACCURACIES_BEFORE,
    after: Sequence[float] = ACCURACIES_AFTER,
    train: int = N_TRAIN,
    test: int = N_TEST,
) -> Dataset:
    """Train documents, then test documents; after `turn` of these, other models are right."""
    rng = np.random.default_rng(seed)
    n, m = train + test, len(before)
    labels = rng.integers(0, 4, n)
    right = rng.random((n, m)) < np.where((np.arange(n) < train + turn)[:, None], before, after)
    said = np.where(right, labels[:, None], (labels[:, None] + rng.integers(1, 4, right.shape)) % 4)
    probs = np.full((n, m, 4), 0.1 / 3)
    np.put_along_axis(probs, said[..., None], 0.9, axis=2)
    return Dataset(
        benchmark="constructed streams",
        kind="choices",
        models=tuple(f"model-{i}" for i in range(m)),
        prices=np.ones(m),
        tasks=np.full(n, "task"),
        doc_ids=np.arange(n),
        probs=probs,
        logprobs=np.log(probs),
        n_choices=np.full(n, 4),
        predictions=said,
        labels=labels,
        is_train=np.arange(n) < train,
        slots=(),
        snapshot=0,
    )


def best_constant(data: Dataset) -> float:
    """Accuracy of the pool whose plurality is best in hindsight; ties go to the first of the pool."""
    shares = []
    for pool in product((False, True), repeat=len(data.models)):
        if any(pool):
            votes = np.zeros((len(data), 4))
            for said in data.predictions[:, list(pool)].T:
                votes[np.arange(len(data)), said] += 1 - 1e-3 * votes.any(1)
            shares.append((votes.argmax(1) == data.labels).mean())
    return float(max(shares))

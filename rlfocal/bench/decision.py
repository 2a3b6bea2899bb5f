"""How long one decision takes, from the question's arrival to the answer, the models' own time left out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np

from rlfocal.bench.training import CHOICES, generated
from rlfocal.dataset import Dataset

Query = TypeVar("Query")

WARM_UP = 50
"""Decisions before the first that counts."""


@dataclass(frozen=True)
class Latency:
    """Microseconds of one decision."""

    way: str
    median: float
    p99: float
    times_faster: float
    """the median of the first way over this one's"""


@dataclass(frozen=True)
class DecisionBench:
    """All that was measured in one run."""

    models: int
    choices: int
    decisions: int
    latencies: list[Latency]


def bench_decision(models: int = 16, decisions: int = 2_000, seed: int = 0) -> DecisionBench:
    """Agents of the variant `paper` are trained briefly on generated logits, saved, loaded, and asked.

    A document given to `decide` is the reference; choosing and fusing one query at a time is ours.
    """
    from rlfocal.agents.checkpoint import load_checkpoint, save_checkpoint
    from rlfocal.agents.config import RLFocalConfig
    from rlfocal.agents.quick import QuickAgents
    from rlfocal.agents.trained import TrainedAgents
    from rlfocal.agents.training import one_thread, train

    rows = generated(600, models, CHOICES, seed)
    config = RLFocalConfig(window=500, decider_episodes=1, fusion_episodes=1)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "agents.safetensors"
        save_checkpoint(train(rows, config, [seed])[0], path)
        loaded = load_checkpoint(path, rows.models)
    assert isinstance(loaded, TrainedAgents)
    quick = QuickAgents(loaded)
    asked = [row % len(rows) for row in range(decisions + WARM_UP)]
    singles = [rows.rows(np.arange(len(rows)) == row) for row in asked[: WARM_UP + decisions // 10]]

    def one_by_one(row: int) -> None:
        quick.choose()
        quick.fuse(rows.probs[row], CHOICES)

    def by_document(document: Dataset) -> None:
        loaded.decide(document)

    with one_thread():
        timed = [
            ("paper, a document to decide", _microseconds(by_document, singles)),
            ("paper, choose and fuse", _microseconds(one_by_one, asked)),
        ]
    reference = float(np.median(timed[0][1]))
    latencies = [
        Latency(way, float(np.median(us)), float(np.quantile(us, 0.99)), reference / float(np.median(us)))
        for way, us in timed
    ]
    return DecisionBench(models, CHOICES, decisions, latencies)


def _microseconds(decide: Callable[[Query], None], queries: list[Query]) -> list[float]:
    taken = []
    for query in queries:
        started = time.perf_counter_ns()
        decide(query)
        taken.append((time.perf_counter_ns() - started) / 1e3)
    return taken[WARM_UP:]

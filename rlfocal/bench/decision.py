"""How long one decision takes, from the question's arrival to the answer, the models' own time left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from rlfocal.bench.training import CHOICES, generated
from rlfocal.dataset import Dataset
from rlfocal.methods.rl_focal import VARIANTS, CheckpointStore, RLFocal
from rlfocal.router import Router
from rlfocal.routing.outputs import Output

if TYPE_CHECKING:
    from rlfocal.agents.checkpoint import AnyAgents

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
    """the first way's median over this one's"""


@dataclass(frozen=True)
class DecisionBench:
    """All that was measured in one run."""

    models: int
    choices: int
    decisions: int
    latencies: list[Latency]


def bench_decision(models: int = 16, decisions: int = 2_000, seed: int = 0) -> DecisionBench:
    """Agents of each variant that a Router takes are trained briefly on generated logits, saved, and loaded.

    The reference is a document given to `decide`; ours are whole queries to a Router: what to ask, until it
    is enough, and the answer.
    """
    from rlfocal.agents.training import one_thread

    rows = generated(600, models, CHOICES, seed)
    documents = [rows.rows(np.arange(len(rows)) == row) for row in range(WARM_UP + decisions // 20)]
    outputs = [dict(zip(rows.models, of_document, strict=True)) for of_document in rows.logprobs.tolist()]
    queries = [outputs[row % len(rows)] for row in range(WARM_UP + decisions)]
    timed: dict[str, list[float]] = {}
    with one_thread():
        for name, agents in _loaded(rows, seed).items():
            router = Router(agents)

            def ask(said: Mapping[str, Output], router: Router = router) -> None:
                heard: dict[str, Output] = {}
                while wanted := router.choose("", heard):
                    heard |= {model: said[model] for model in wanted}
                router.fuse(heard)

            timed[f"{name}, a document to decide"] = _microseconds(agents.decide, documents)
            timed[f"{name}, a query to a Router"] = _microseconds(ask, queries)
    reference = float(np.median(next(iter(timed.values()))))
    latencies = [
        Latency(way, float(np.median(us)), float(np.quantile(us, 0.99)), reference / float(np.median(us)))
        for way, us in timed.items()
    ]
    return DecisionBench(models, CHOICES, decisions, latencies)


def _loaded(rows: Dataset, seed: int) -> dict[str, AnyAgents]:
    """Agents by variant, from their checkpoints."""
    from rlfocal.agents.checkpoint import load_checkpoint
    from rlfocal.agents.config import RLFocalConfig

    loaded = {}
    with TemporaryDirectory() as folder:
        for name in ("paper", VARIANTS[0]):
            settings = RLFocalConfig(decider_episodes=1, fusion_episodes=1) if name == "paper" else None
            method = RLFocal(name, settings, CheckpointStore(Path(folder)))
            method.fit(rows, [seed])
            loaded[name] = load_checkpoint(method.checkpoint(rows, seed), rows.models)
    return loaded


def _microseconds(decide: Callable[[Query], object], queries: list[Query]) -> list[float]:
    taken = []
    for query in queries:
        started = time.perf_counter_ns()
        decide(query)
        taken.append((time.perf_counter_ns() - started) / 1e3)
    return taken[WARM_UP:]

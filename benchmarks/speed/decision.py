"""Measures how long one decision takes, from the question to the answer, without the models' own time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.speed.training import N_CHOICES, generate_rows
from rlfocal.base.names import RL_FOCAL
from rlfocal.data.dataset import Dataset
from rlfocal.data.outputs import Output
from rlfocal.data.policy import decide
from rlfocal.methods import CheckpointStore, RLFocal
from rlfocal.serving import Router

if TYPE_CHECKING:
    from rlfocal.methods.learning.agents import TrainedAgents

QUESTION_WORDS = 60
"""The number of words of a generated question."""
WARM_UP = 50
"""The number of decisions that are made first and not counted."""
BATCH_DOCUMENTS = 1_000
"""The number of documents in a batch that is decided at once."""
N_BATCHES = 11
"""The number of batches; the first is not counted."""


@dataclass(frozen=True)
class Latency:
    """The microseconds that a decision takes in one way: median and 99th percentile."""

    way: str
    median: float
    p99: float
    times_faster: float
    """The median of the first way, which is the reference, over this way's median."""


@dataclass(frozen=True)
class DecisionBench:
    """The latencies of all ways to decide, measured in one run."""

    models: int
    choices: int
    decisions: int
    latencies: list[Latency]


def bench_decision(models: int = 16, decisions: int = 2_000, seed: int = 0) -> DecisionBench:
    """Measures latencies of RL-Focal's agents, which were briefly trained on generated logits and reloaded.

    The reference is `decide` on a single document. Compared are a document's share of a batch, and queries to
    a Router, without and with a question's text. A query is all calls of `choose` and the call of `fuse`.
    """
    from rlfocal.methods.learning.networks import use_one_thread

    rows = add_questions(generate_rows(600, models, N_CHOICES, seed), seed)
    documents = [rows.rows(np.arange(len(rows)) == row) for row in range(WARM_UP + decisions // 20)]
    batch = rows.take(np.arange(BATCH_DOCUMENTS) % len(rows))
    outputs = [dict(zip(rows.models, of_document, strict=True)) for of_document in rows.logprobs.tolist()]
    at = [row % len(rows) for row in range(WARM_UP + decisions)]
    silent = [("", outputs[row]) for row in at]
    worded = [(rows.questions[row], outputs[row]) for row in at]
    timed: dict[str, list[float]] = {}
    with use_one_thread():
        for name, agents in _load_agents(rows, seed).items():
            router = Router(agents)
            timed[f"{name}, a document to decide"] = _time_each(partial(decide, agents), documents)
            per_batch = _time_each(partial(decide, agents), [batch] * N_BATCHES, warm_up=1)
            timed[f"{name}, a document of {BATCH_DOCUMENTS:,} to decide"] = [
                us / BATCH_DOCUMENTS for us in per_batch
            ]
            for about, queries in (("", silent), (f" of {QUESTION_WORDS} words", worded)):
                queries_timed = [_time_calls(router, *query) for query in queries][WARM_UP:]
                timed[f"{name}, a query{about}"] = [sum(steps) for steps in queries_timed]
                timed[f"{name}, a query{about}, each step"] = [
                    step for steps in queries_timed for step in steps
                ]
    reference = float(np.median(next(iter(timed.values()))))
    latencies = [
        Latency(way, float(np.median(us)), float(np.quantile(us, 0.99)), reference / float(np.median(us)))
        for way, us in timed.items()
    ]
    return DecisionBench(models, N_CHOICES, decisions, latencies)


def add_questions(rows: Dataset, seed: int) -> Dataset:
    """The documents `rows` with questions of random words."""
    drawn = np.random.default_rng(seed).integers(0, 3_000, size=(len(rows), QUESTION_WORDS))
    return replace(rows, questions=tuple(" ".join(f"word{word}" for word in of) for of in drawn))


def _load_agents(rows: Dataset, seed: int) -> dict[str, TrainedAgents]:
    """Briefly trained agents by method, loaded from their checkpoints."""
    from rlfocal.methods.rl_focal.config import RLFocalConfig
    from rlfocal.methods.trained import load_checkpoint

    loaded = {}
    with TemporaryDirectory() as folder:
        for name in RL_FOCAL[:2]:
            settings = (
                RLFocalConfig(decider_episodes=0, fusion_episodes=0, joint_episodes=2)
                if name == "rl_focal"
                else None
            )
            method = RLFocal(name, settings, CheckpointStore(Path(folder)))
            method.fit(rows, [seed])
            loaded[name] = load_checkpoint(method.checkpoint(rows, seed), rows.models)
    return loaded


def _time_calls(router: Router, question: str, every_output: Mapping[str, Output]) -> list[float]:
    """The microseconds of every call of `choose` for a question, and of the call of `fuse`."""
    times = []
    outputs: dict[str, Output] = {}
    while True:
        started = time.perf_counter_ns()
        wanted = router.choose(question, outputs)
        times.append((time.perf_counter_ns() - started) / 1e3)
        if not wanted:
            break
        outputs |= {model: every_output[model] for model in wanted}
    started = time.perf_counter_ns()
    router.fuse(outputs)
    return [*times, (time.perf_counter_ns() - started) / 1e3]


def _time_each(
    decide: Callable[[Dataset], object], documents: list[Dataset], warm_up: int = WARM_UP
) -> list[float]:
    times = []
    for document in documents:
        started = time.perf_counter_ns()
        decide(document)
        times.append((time.perf_counter_ns() - started) / 1e3)
    return times[warm_up:]

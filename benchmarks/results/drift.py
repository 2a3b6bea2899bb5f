"""Streams of real test documents that drift: tasks in blocks that return, and models that degrade."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np

from benchmarks.results.evaluations import rounded
from benchmarks.results.revisions import revision
from benchmarks.results.streams import decide_stream
from rlfocal.base.arrays import Floats, Ints, Texts
from rlfocal.data.dataset import Dataset
from rlfocal.data.policy import Fitted
from rlfocal.evaluation.planning import read_dataset
from rlfocal.methods import make_method
from rlfocal.statistics.intervals import paired_by_seed
from warehouse import Warehouse

DEGRADED_MODELS = 2
DEGRADED_FROM = 1 / 3
"""The share of the test documents after which models degrade."""
DEGRADED_SHARE = 0.5
"""The share of the later documents on which a degraded model gives its answer to another document."""
FROZEN = "frozen"
"""In `above`, the name of the same policy under the frozen protocol."""


@dataclass(frozen=True)
class DriftTable:
    """Methods on one benchmark's test documents, in orders that each seed draws, with labels revealed."""

    benchmark: str
    methods: tuple[str, ...]
    above: tuple[str, ...]
    """Methods to which differences are taken on the same stream."""
    streams: tuple[str, ...] = ()
    """Keys of `STREAMS`; empty: all of them."""
    seeds: int = 3

    @property
    def command(self) -> str:
        return "make results DATA=DIR ONLY=drift"

    @property
    def about(self) -> dict[str, Any]:
        return {"benchmark": self.benchmark, "protocol": "online", "settings": []}

    def rows(self, warehouse: Warehouse, at_once: int = 1) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        data, started = read_dataset(warehouse, self.benchmark, None), time.process_time()
        tasks, data = data.test.tasks, data.hide_tasks()
        fitted = {name: make_method(name).fit(data.train, range(self.seeds)) for name in self.methods}
        rows: list[dict[str, Any]] = []
        for name in self.streams or STREAMS:
            streams = [STREAMS[name](data, tasks, seed) for seed in range(self.seeds)]
            decided = {
                method: [_decide(policy, *stream) for policy, stream in zip(cycle(policies), streams)]
                for method, policies in fitted.items()
            }
            rows += self._make_rows(name, decided)
        about = {
            "models": len(data.models),
            "documents": len(data.test),
            "data": data.fingerprint()[:12],
            "seconds": round(time.process_time() - started, 1),
        }
        return about, rows

    def _make_rows(
        self, stream: str, decided: Mapping[str, Sequence[StreamDecisions]]
    ) -> Iterator[dict[str, Any]]:
        online = {name: np.stack([one.right for one in seeds]) for name, seeds in decided.items()}
        for name, seeds in decided.items():
            frozen = np.stack([one.right_frozen for one in seeds])
            others = {FROZEN: frozen, **{other: online[other] for other in self.above if other != name}}
            yield {
                "method": name,
                "label": stream,
                "seeds": self.seeds,
                "budget": None,
                "accuracy": round(float(online[name].mean()), 6),
                "mean_pool_size": round(float(np.mean([one.asked for one in seeds])), 4),
                "above": {
                    other: rounded(paired_by_seed(online[name], right)) for other, right in others.items()
                },
                "revision": revision(name, (), "online"),
            }


@dataclass(frozen=True)
class StreamDecisions:
    """One seed's decisions on T test documents, in the order of the warehouse."""

    right: Floats
    """(T,) 1 where it is right online"""
    right_frozen: Floats
    """(T,) 1 where the same policy is right frozen"""
    asked: float
    """The mean number of models asked, online"""


Stream = tuple[Dataset, Ints]
"""Train documents, then T test documents as they come; and (T,) each one's place in the warehouse's order."""


def _decide(policy: Fitted, data: Dataset, order: Ints) -> StreamDecisions:
    online, frozen = (decide_stream(policy, data, protocol) for protocol in ("online", "frozen"))
    places = np.argsort(order)
    right, right_frozen = (
        data.test.is_right(decided.predictions)[places].astype(np.float64) for decided in (online, frozen)
    )
    return StreamDecisions(right, right_frozen, float(online.pools.sum(1).mean()))


def shuffle(data: Dataset, tasks: Texts, seed: int) -> Stream:
    """The test documents of all tasks in random order."""
    return _reorder(data, np.random.default_rng(seed).permutation(len(tasks)))


def put_in_blocks(data: Dataset, tasks: Texts, seed: int) -> Stream:
    """Half of each task's test documents, task by task; then the other halves, in another order of tasks."""
    rng = np.random.default_rng(seed)
    halves: tuple[list[Ints], list[Ints]] = ([], [])
    for task in dict.fromkeys(tasks.tolist()):
        documents = rng.permutation(np.flatnonzero(tasks == task))
        for half, part in zip(halves, np.array_split(documents, 2), strict=True):
            half.append(part)
    blocks = [half[at] for half in halves for at in rng.permutation(len(half))]
    return _reorder(data, np.concatenate(blocks))


def degrade(data: Dataset, tasks: Texts, seed: int) -> Stream:
    """Shuffled documents; the two best models of train lose accuracy after a third of them.

    On half of the later documents each gives its answer to another document of the same task with as many
    choices.
    """
    stream, order = shuffle(data, tasks, seed)
    rng, test = np.random.default_rng([seed, 1]), stream.test
    n_train, n = len(stream) - len(test), len(test)
    kinds = np.char.add(tasks[order].astype(np.str_), test.n_choices.astype(np.str_))
    later = np.arange(n) >= DEGRADED_FROM * n
    probs, logprobs, predictions = stream.probs.copy(), stream.logprobs.copy(), stream.predictions.copy()
    for model in stream.train.rank_models()[:DEGRADED_MODELS]:
        source = np.arange(n)
        for kind in np.unique(kinds):
            alike = np.flatnonzero(later & (kinds == kind))
            source[alike] = rng.permutation(alike)
        source = n_train + np.where(rng.random(n) < DEGRADED_SHARE, source, np.arange(n))
        for values in (probs, logprobs, predictions):
            values[n_train:, model] = values[source, model]
    return replace(stream, probs=probs, logprobs=logprobs, predictions=predictions), order


STREAMS: Mapping[str, Callable[[Dataset, Texts, int], Stream]] = {
    "shuffled": shuffle,
    "tasks in blocks": put_in_blocks,
    "models degrade": degrade,
}


def _reorder(data: Dataset, order: Ints) -> Stream:
    rows = np.concatenate([np.flatnonzero(data.is_train), np.flatnonzero(~data.is_train)[order]])
    return data.take(rows), order

"""How far an extraction has come: what is committed, running, failed, and how long the rest will take."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rlfocal.extraction.partition import partition_lock
from rlfocal.extraction.recording import read_failure, read_start
from rlfocal.extraction.running.shards import shard_folder
from rlfocal.pool.specs import PoolSpec
from warehouse import Warehouse
from warehouse.store import PartitionKey

_SHARD = re.compile(r"-(\d+)-(\d+)\.arrow$")


class State(StrEnum):
    """What has become of a partition."""

    DONE = "done"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    WAITING = "waiting"


@dataclass(frozen=True)
class PartitionProgress:
    """One partition, as far as it has come."""

    key: PartitionKey
    state: State
    done: int
    """Documents answered so far; a shard counts once it is whole."""
    total: int | None
    """Documents of the partition; None before any model has begun it."""
    reason: str | None = None
    """Why it failed."""


@dataclass(frozen=True)
class ModelProgress:
    """One model on all benchmarks of a pool."""

    model: str
    partitions: tuple[PartitionProgress, ...]
    tokens_per_second: float | None
    seconds_left: float | None
    """Seconds of its engine, at the speed of its committed partitions; None where nothing is known."""
    dollars: float | None
    """What its committed partitions cost in GPU time; None without a price."""
    dollars_left: float | None

    def count(self, state: State, benchmark: str | None = None) -> int:
        """Partitions in a state."""
        return sum(p.state is state and benchmark in (None, p.key.benchmark) for p in self.partitions)


def read_progress(
    warehouse: Warehouse, pool: PoolSpec | None = None, gpu_price: float | None = None
) -> list[ModelProgress]:
    """How far each model has come, from the warehouse and the shards on this machine.

    Without a pool, of every model and task that the warehouse knows: a run enters its own when it begins.
    Runs on other machines show once they commit. `gpu_price`: dollars per GPU-hour.
    """
    if pool is None:
        gpus, places = _read_known(warehouse)
    else:
        gpus = {model.model: model.tensor_parallel for model in pool.models}
        places = [(benchmark.name, task) for benchmark in pool.benchmarks for task in benchmark.tasks]
    counts = "SELECT benchmark, task, max(n_docs) FROM extractions GROUP BY ALL"
    sizes = {(benchmark, task): n for benchmark, task, n in warehouse.rows(counts)}
    committed = {key: made.n_docs for key, made in warehouse.committed().items() if made.fault is None}
    speeds = _read_speeds(warehouse)
    return [
        _model_progress(
            model,
            [_partition(warehouse, PartitionKey(model, *place), committed, sizes) for place in places],
            speeds,
            None if gpu_price is None else gpu_price * n / 3600,
        )
        for model, n in gpus.items()
    ]


def _read_known(warehouse: Warehouse) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The models with the GPUs each was on, and the tasks."""
    gpus = (
        "SELECT model, coalesce(max(try_cast(settings->>'tensor_parallel' AS INT)), 1) FROM models "
        "LEFT JOIN extractions USING (model) GROUP BY model ORDER BY model"
    )
    places = "SELECT DISTINCT benchmark, task FROM tasks ORDER BY ALL"
    return dict(warehouse.rows(gpus)), [(benchmark, task) for benchmark, task in warehouse.rows(places)]


def _read_speeds(warehouse: Warehouse) -> dict[tuple[str, str], tuple[float, int, int]]:
    """Seconds, documents and tokens of the committed partitions, by model and benchmark."""
    sums = (
        "SELECT model, benchmark, sum(seconds), sum(n_docs)::BIGINT, "
        "sum(n_prompt_tokens + n_generated_tokens)::BIGINT "
        "FROM extractions WHERE seconds > 0 GROUP BY ALL"
    )
    return {
        (model, benchmark): (s, n, tokens or 0) for model, benchmark, s, n, tokens in warehouse.rows(sums)
    }


def _partition(
    warehouse: Warehouse,
    key: PartitionKey,
    committed: Mapping[PartitionKey, int],
    sizes: Mapping[tuple[str, str], int],
) -> PartitionProgress:
    total = sizes.get((key.benchmark, key.task))
    if key in committed:
        return PartitionProgress(key, State.DONE, committed[key], committed[key])
    folder = shard_folder(warehouse.location.shards, key)
    if not folder.exists():
        return PartitionProgress(key, State.WAITING, 0, total)
    done = min(sum(_shard_sizes(folder)), total or 2**63)
    starts, n_docs = read_start(folder)
    if (reason := read_failure(folder)) is not None:
        return PartitionProgress(key, State.FAILED, done, n_docs or total, reason)
    with partition_lock(warehouse, key, wait=False) as is_free:
        state = State.RUNNING if not is_free else State.INTERRUPTED if starts else State.WAITING
    return PartitionProgress(key, state, done, n_docs or total)


def _shard_sizes(folder: Path) -> Iterator[int]:
    for path in folder.glob("*.arrow"):
        if found := _SHARD.search(path.name):
            yield int(found[2]) - int(found[1]) + 1


def _model_progress(
    model: str,
    partitions: Sequence[PartitionProgress],
    speeds: Mapping[tuple[str, str], tuple[float, int, int]],
    per_second: float | None,
) -> ModelProgress:
    """`per_second`: dollars of the model's GPUs."""
    benchmarks = dict.fromkeys(p.key.benchmark for p in partitions)
    own = [speeds[model, benchmark] for benchmark in benchmarks if (model, benchmark) in speeds]
    spent, tokens = sum(seconds for seconds, _, _ in own), sum(tokens for _, _, tokens in own)
    left: float | None = 0.0
    for p in (p for p in partitions if p.state is not State.DONE):
        known = speeds.get((model, p.key.benchmark))
        if known is None or p.total is None:
            left = None
            break
        left = (left or 0.0) + known[0] / known[1] * (p.total - p.done)
    return ModelProgress(
        model=model,
        partitions=tuple(partitions),
        tokens_per_second=tokens / spent if spent and tokens else None,
        seconds_left=left,
        dollars=None if per_second is None else spent * per_second,
        dollars_left=None if per_second is None or left is None else left * per_second,
    )

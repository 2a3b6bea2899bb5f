"""Measures diversity in numpy and in SQL on generated answers, against loops by the definitions."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed import peak_megabytes
from rlfocal.base.errors import RunError
from rlfocal.data.loading import load_dataset
from rlfocal.extraction.running.processes import Send, run_each
from rlfocal.statistics import diversity
from rlfocal.statistics.votes import plurality
from warehouse import Warehouse, open_warehouse
from warehouse.scripts import script

WINDOW_DOCUMENTS = 500
POOL_SIZE = 5
LARGE_POOL, LARGE_POOLS = 10, 1000
SAMPLE_SIZE = 20  # pools or windows on which a slow reference is measured


@dataclass(frozen=True)
class DiversitySizes:
    models: int = 12
    """The number of models, every pool of which is measured."""
    documents: int = 14_042
    many_models: int = 100
    many_documents: int = 1_000_000


@dataclass(frozen=True)
class DiversityMeasurement:
    """The seconds and memory of one way to do a piece of work."""

    work: str
    way: str
    seconds: float
    times_faster: float
    """The seconds of the reference, which is the first way of the same work, over this way's."""
    max_difference: float | None = None
    """The largest difference from the reference's values; None if values are not compared."""
    peak_bytes: int | None = None
    """The peak memory of the process, Python included; None unless the work had a process of its own."""


@dataclass(frozen=True)
class DiversityBench:
    cores: int
    sizes: DiversitySizes
    sampled: int
    """The number of pools or windows on which a reference marked as scaled was measured."""
    measured: list[DiversityMeasurement]


@dataclass(frozen=True)
class TimedValue:
    seconds: float
    value: Any


def bench_diversity(sizes: DiversitySizes, on_progress: Callable[[str], None]) -> DiversityBench:
    """Measures all work on two generated warehouses, of about 8 bytes per model and document."""
    measured: list[DiversityMeasurement] = []
    with tempfile.TemporaryDirectory() as folder:
        on_progress(f"{sizes.models} models × {sizes.documents:,} documents × 4 choices")
        with _make_warehouse(Path(folder) / "few", sizes.models, sizes.documents, choices=4) as warehouse:
            measured += _every_pool(warehouse, on_progress)
            measured += _measure_over_time(warehouse, on_progress)
        measured += _batch(sizes, on_progress)
        on_progress(f"{sizes.many_models} models × {sizes.many_documents:,} documents × 2 choices")
        place = Path(folder) / "many"
        _make_warehouse(place, sizes.many_models, sizes.many_documents, choices=2).close()
        measured += _measure_large_pool(place, sizes, on_progress)
    return DiversityBench(len(os.sched_getaffinity(0)), sizes, SAMPLE_SIZE, measured)


def _make_warehouse(place: Path, models: int, documents: int, choices: int) -> Warehouse:
    warehouse = open_warehouse(place)
    size = {"documents": documents, "choices": choices}
    with warehouse.transaction("make up answers"):
        for statement in warehouse.connection.extract_statements(script("bench/documents")):
            named = {**size, "models": models}
            warehouse.connection.execute(statement, {n: named[n] for n in statement.named_parameters})
        for model in range(models):  # one file each, as an extraction writes them
            warehouse.connection.execute(script("bench/scores"), {**size, "model": model})
    return warehouse


def _every_pool(warehouse: Warehouse, on_progress: Callable[[str], None]) -> Iterator[DiversityMeasurement]:
    data = load_dataset(warehouse, "made-up")
    n_models = len(data.models)
    pools = diversity.every_pool(n_models, n_models)
    at = np.random.default_rng(0).choice(len(pools), min(SAMPLE_SIZE, len(pools)), replace=False)
    scale = len(pools) / len(at)

    work = f"focal diversity of every pool ({len(pools):,}) of 2 to {n_models} models"
    on_progress(work)
    eq8 = _time_work(lambda: [focal_diversity_of_pool(data.correct[:, pools[i]]) for i in at], scale)
    ours = _time_work(lambda: diversity.focal_diversity(data.correct, pools))
    yield DiversityMeasurement(work, "Eq (8) pool by pool, scaled", eq8.seconds, 1.0)
    yield _make_row(work, "rlfocal", ours, eq8, at)

    work = "with plurality accuracy"
    on_progress(work)

    def vote_pool_by_pool() -> list[float]:
        votes = (plurality(data.predictions, pools[i], "choices") for i in at)
        return [float((said == data.labels).mean()) for said in votes]

    voted = _time_work(vote_pool_by_pool, scale)
    both = TimedValue(eq8.seconds + voted.seconds, voted.value)
    accuracy = _time_work(lambda: diversity.plurality_accuracy(data.predictions, data.labels, pools))
    sql = "SELECT plurality_accuracy FROM all_pools('made-up', ?)"
    table = _time_work(lambda: _numbers(warehouse, sql, [n_models])[:, 0])
    yield DiversityMeasurement(work, "Eq (8) and a vote pool by pool, scaled", both.seconds, 1.0)
    yield _make_row(work, "rlfocal", TimedValue(ours.seconds + accuracy.seconds, accuracy.value), both, at)
    yield _make_row(work, "SQL: all_pools", table, both, at)

    work = f"focal diversity of every pool at every document, window {WINDOW_DOCUMENTS}"
    on_progress(work)
    steps = _time_work(
        lambda: [diversity.pool_diversity_over_time(*_answers(data), pools[i], WINDOW_DOCUMENTS) for i in at],
        scale,
    )

    def each_step() -> np.ndarray:
        blocks = diversity.focal_diversity_over_time(data.correct, pools, WINDOW_DOCUMENTS)
        return np.vstack([block[:, at] for _, block in blocks]).T

    slid = _time_work(each_step)
    yield DiversityMeasurement(work, "all statistics pool by pool, scaled", steps.seconds, 1.0)
    expected = np.array([s.focal_diversity for s in steps.value])
    yield _make_row(work, "rlfocal", slid, TimedValue(steps.seconds, expected))


def _measure_over_time(
    warehouse: Warehouse, on_progress: Callable[[str], None]
) -> Iterator[DiversityMeasurement]:
    data = load_dataset(warehouse, "made-up")
    size = min(POOL_SIZE, len(data.models))
    pool = np.arange(len(data.models)) < size
    work = f"all statistics of a pool of {size} at every document, window {WINDOW_DOCUMENTS}"
    on_progress(work)
    ends = np.random.default_rng(0).choice(len(data), min(SAMPLE_SIZE, len(data)), replace=False)

    def recompute_kappa() -> list[float]:
        windows = (slice(max(0, end - WINDOW_DOCUMENTS), end) for end in ends)
        each = (diversity.pool_diversity(data.predictions[w], data.labels[w], pool[None]) for w in windows)
        return [float(s.kappa[0]) for s in each]

    reference = _time_work(recompute_kappa, len(data) / len(ends))
    ours = _time_work(
        lambda: diversity.pool_diversity_over_time(*_answers(data), pool, WINDOW_DOCUMENTS).kappa
    )
    sql = "SELECT kappa FROM pool_diversity_over_time('made-up', ?, ?) ORDER BY position"
    table = _time_work(lambda: _numbers(warehouse, sql, [list(data.models[:size]), WINDOW_DOCUMENTS])[:, 0])
    yield DiversityMeasurement(work, "every window anew, scaled", reference.seconds, 1.0)
    yield _make_row(work, "rlfocal", ours, reference, ends)
    yield _make_row(work, "SQL: pool_diversity_over_time", table, reference, ends)


def _batch(sizes: DiversitySizes, on_progress: Callable[[str], None]) -> Iterator[DiversityMeasurement]:
    """Measures statistics of large pools of many models, which err less on easy documents."""
    rng = np.random.default_rng(0)
    shape, size = (sizes.documents, sizes.many_models), min(LARGE_POOL, sizes.many_models)
    labels = rng.integers(0, 4, sizes.documents)
    knows = rng.random(shape) < rng.random((sizes.documents, 1))
    predictions = np.where(knows, labels[:, None], rng.integers(0, 4, shape))
    chosen = rng.random((LARGE_POOLS, sizes.many_models)).argsort(axis=1) < size
    work = f"all statistics of {LARGE_POOLS:,} pools of {size} of {sizes.many_models} models"
    on_progress(work)
    correct = predictions == labels[:, None]
    at = np.arange(min(SAMPLE_SIZE, LARGE_POOLS))
    eq8 = _time_work(
        lambda: [focal_diversity_of_pool(correct[:, chosen[i]]) for i in at], LARGE_POOLS / len(at)
    )
    ours = _time_work(lambda: diversity.pool_diversity(predictions, labels, chosen).focal_diversity)
    yield DiversityMeasurement(work, "focal diversity alone: Eq (8) pool by pool, scaled", eq8.seconds, 1.0)
    yield _make_row(work, "rlfocal", ours, eq8, at)


def _measure_large_pool(
    place: Path, sizes: DiversitySizes, on_progress: Callable[[str], None]
) -> Iterator[DiversityMeasurement]:
    size = min(LARGE_POOL, sizes.many_models)
    names = [f"model {i * sizes.many_models // size:03}" for i in range(size)]
    work = f"a pool of {size} of {sizes.many_models} models over {sizes.many_documents:,} documents"
    # Each in a process of its own, whose memory is then its own.
    ways = {
        "accuracy of its models alone, by view": "bench/accuracy_of_models",
        "SQL: pool_diversity": "bench/one_pool",
    }
    found: dict[str, tuple[float, int]] = {}

    def note(way: str, event: Any) -> None:
        found[way] = event

    on_progress(work)
    jobs = {way: (str(place), sql, names) for way, sql in ways.items()}
    for way, reason in run_each(_run_query, jobs, at_once=1, on_event=note).items():
        if reason:
            raise RunError(f"{way}: {reason}")
    reference = found[next(iter(ways))][0]
    for way in ways:
        seconds, peak = found[way]
        yield DiversityMeasurement(work, way, seconds, reference / seconds, peak_bytes=peak)


def _run_query(send: Send, place: str, name: str, models: list[str]) -> None:
    """Sends the seconds of a stored query and the process's peak memory in bytes; runs in its own process."""
    with open_warehouse(place, read_only=True) as warehouse:
        timed = _time_work(partial(warehouse.rows, script(name), [models]))
    send((timed.seconds, round(1e6 * peak_megabytes())))


def _answers(data: Any) -> tuple[Any, Any]:
    return data.predictions, data.labels


def _numbers(warehouse: Warehouse, sql: str, params: list[Any]) -> np.ndarray:
    """(rows, columns) the result of a query; NaN for NULL."""
    return np.array(warehouse.rows(sql, params), dtype=np.float64)


def _time_work(work: Callable[[], Any], scale: float = 1.0) -> TimedValue:
    started = perf_counter()
    value = work()
    return TimedValue(scale * (perf_counter() - started), value)


def _make_row(
    work: str, way: str, timed: TimedValue, reference: TimedValue, at: Any = slice(None)
) -> DiversityMeasurement:
    difference = float(np.nanmax(np.abs(timed.value[at] - np.asarray(reference.value))))
    return DiversityMeasurement(work, way, timed.seconds, reference.seconds / timed.seconds, difference)


def focal_diversity_of_pool(correct: NDArray[np.bool_]) -> float:
    """The reference: Eq (8) of the paper, the mean of 1 - P(2)/P(1) over the members that ever fail.

    `correct` (T, S) says which members are right. The result is NaN if no member ever fails.
    """
    size = correct.shape[1]
    j = np.arange(size + 1)
    found = []
    for focal in range(size):
        failing = (~correct[~correct[:, focal]]).sum(axis=1)
        if len(failing):
            p = np.bincount(failing, minlength=size + 1) / len(failing)
            p1, p2 = (j / size * p).sum(), (j * (j - 1) / (size * (size - 1)) * p).sum()
            found.append(1 - p2 / p1)
    return float(np.mean(found)) if found else float("nan")

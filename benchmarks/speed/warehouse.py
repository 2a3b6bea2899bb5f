"""How long a warehouse takes to fill, open and query, and how large it is, of a dozen models and of many."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import comb
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.speed import peak_megabytes
from rlfocal.base.errors import RunError
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.extraction.running.processes import Send, run_each
from warehouse import open_warehouse

N_MODELS = 12
SIZES = {
    "mmlu": (57, 14_042, 4),
    "bbh": (24, 5_761, 12),
    "musr": (3, 756, 3),
    "gpqa": (1, 448, 4),
    "gsm8k": (1, 8_792, 10),
}
"""{benchmark: (tasks, documents, choices of each)}; GSM8K with ten passes' worth of choices."""
QUERIES = {
    "pairwise_diversity": "SELECT sum(kappa) FROM pairwise_diversity('mmlu')",
    "all_pools up to 3": "SELECT sum(plurality_accuracy) FROM all_pools('mmlu', 3)",
}
MOST_POOLS = 200_000
"""Beyond so many, they are not measured."""


class Used(NamedTuple):
    """What one piece of work took, in a process of its own."""

    work: str
    cpu_seconds: float
    peak_megabytes: float


class PoolBench(NamedTuple):
    """A pool of many models on documents like MMLU's."""

    models: int
    parquet_bytes: int
    used: list[Used]


class WarehouseBench(NamedTuple):
    """What was measured."""

    choice_rows: int
    import_seconds: float
    """Reading, checking and committing the files."""
    parquet_bytes: int
    open_seconds: float
    query_seconds: float
    """The first query: every model's accuracy on every task."""
    pools: list[PoolBench]


def bench_warehouse(share: float = 1.0, pools: Sequence[int] = ()) -> WarehouseBench:
    """Generates scores of twelve models on `share` of five benchmarks' documents and imports them.

    `pools`: also of so many models, on the first benchmark.
    """
    with TemporaryDirectory() as folder:
        place = Path(folder)
        _write_files(place, share, N_MODELS, SIZES)
        started = time.perf_counter()
        with open_warehouse(place / "w") as warehouse:
            import_predictions(warehouse, place / "docs.parquet", place / "scores.parquet")
        imported = time.perf_counter()
        with open_warehouse(place / "w", read_only=True) as warehouse:
            opened = time.perf_counter()
            warehouse.rows("FROM accuracy")
            asked = time.perf_counter()
            rows = int(warehouse.rows("SELECT count(*) FROM choice_logprobs")[0][0])
        size = _parquet_bytes(place)
    of_pools = [_bench_pool(models, share) for models in pools]
    return WarehouseBench(rows, imported - started, size, opened - imported, asked - opened, of_pools)


def _bench_pool(models: int, share: float) -> PoolBench:
    with TemporaryDirectory() as folder:
        place = Path(folder)
        _write_files(place, share, models, {"mmlu": SIZES["mmlu"]})
        used: list[Used] = []
        works = {"import": "", **QUERIES}
        if comb(models, 3) > MOST_POOLS:
            works.pop("all_pools up to 3")
        jobs = {work: (folder, sql) for work, sql in works.items()}
        failed = run_each(_use, jobs, at_once=1, on_event=lambda work, taken: used.append(Used(work, *taken)))
        for work, reason in failed.items():
            if reason:
                raise RunError(f"{work} of {models} models: {reason}")
        return PoolBench(models, _parquet_bytes(place), used)


def _use(send: Send, folder: str, sql: str) -> None:
    """Runs a query, or imports the files, in a process of its own."""
    place = Path(folder)
    started = time.process_time()
    with open_warehouse(place / "w", read_only=bool(sql)) as warehouse:
        if sql:
            warehouse.rows(sql)
        else:
            import_predictions(warehouse, place / "docs.parquet", place / "scores.parquet")
    send((time.process_time() - started, peak_megabytes()))


def _parquet_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in (folder / "w").rglob("*.parquet"))


def _write_files(folder: Path, share: float, models: int, sizes: Mapping[str, tuple[int, int, int]]) -> None:
    """docs.parquet and scores.parquet, as `import predictions` takes them."""
    numbers = np.random.default_rng(0)
    docs, scores = [], []
    for benchmark, (n_tasks, n_whole, n_choices) in sizes.items():
        n = max(int(n_whole * share), n_tasks)
        tasks = np.sort(np.arange(n) % n_tasks)
        keys = {
            "benchmark": pa.array([benchmark] * n),
            "task": pa.array([f"{benchmark}_{task:02}" for task in tasks]),
            "doc_id": pa.array(np.arange(n) - np.searchsorted(tasks, tasks)),
        }
        docs.append(pa.table(keys | {"label": numbers.integers(n_choices, size=n)}))
        for model in range(models):
            # Log-probs as engines give them: sums of single-precision numbers.
            values = -numbers.gamma(2.0, 2.0, size=n * n_choices).astype(np.float32).astype(np.float64)
            offsets = pa.array(np.arange(n + 1) * n_choices, pa.int32())
            lists = pa.ListArray.from_arrays(offsets, pa.array(values))
            scores.append(pa.table(keys | {"model": [f"model-{model:03}"] * n, "choice_logprobs": lists}))
    pq.write_table(pa.concat_tables(docs), folder / "docs.parquet")
    pq.write_table(pa.concat_tables(scores), folder / "scores.parquet")

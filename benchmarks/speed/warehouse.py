"""Measures CPU seconds and memory of an import and of statistics in SQL, for pools of up to a hundred
models."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import comb
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.speed import peak_megabytes
from benchmarks.speed.references import FOLDER, Cost, References, do_fixed_work
from rlfocal.base.errors import RunError
from rlfocal.exchange.imports.predictions import import_predictions
from rlfocal.extraction.running.processes import Send, run_each
from warehouse import open_warehouse

REFERENCES = References(FOLDER / "warehouse.json")
N_DOCUMENTS, N_TASKS, N_CHOICES = 14_042, 57, 4
"""The size of MMLU: documents, tasks, and choices per document."""
FIVE_MODELS = "['model-000', 'model-001', 'model-002', 'model-003', 'model-004']"
QUERIES = {
    "accuracy": "SELECT sum(accuracy) FROM accuracy",
    "pairwise_diversity": "SELECT sum(kappa) FROM pairwise_diversity('mmlu')",
    "pool_diversity of 5": f"FROM pool_diversity('mmlu', {FIVE_MODELS})",
    "windows of 5": f"SELECT sum(focal_diversity) FROM pool_diversity_over_time('mmlu', {FIVE_MODELS}, 100)",
    "ceiling": "FROM ceiling('mmlu')",
}
ALL_POOLS = "SELECT sum(plurality_accuracy) FROM all_pools('mmlu', {})"
POOL_SIZES = (2, 3, 4)
MAX_POOLS = 200_000
"""The largest number of pools of one size that is measured; larger sizes are left out."""


class PoolCosts(NamedTuple):
    """The costs of all queries and of the import, for a pool of so many models."""

    models: int
    documents: int
    parquet_bytes: int
    costs: list[Cost]
    commit: str | None
    """The commit of the reference; None if there is no reference."""

    @property
    def size(self) -> str:
        """The name of the measured size in the file of references."""
        return size_of(self.models, self.documents)


def bench_warehouse(
    models: Sequence[int], documents: int, on_progress: Callable[[str], None]
) -> list[PoolCosts]:
    """Measures, for each number of models, the import of generated scores on `documents`, and queries on
    them. Each import and each query has its own process."""
    return [_bench_pool(n, max(documents, N_TASKS), on_progress) for n in models]


def size_of(models: int, documents: int) -> str:
    return f"{models} x {documents}"


def list_queries(models: int) -> dict[str, str]:
    """The measured queries by name, for a pool of so many models."""
    pools = {f"all_pools up to {n}": ALL_POOLS.format(n) for n in POOL_SIZES if comb(models, n) <= MAX_POOLS}
    return QUERIES | pools


def _bench_pool(models: int, documents: int, on_progress: Callable[[str], None]) -> PoolCosts:
    commit, last = REFERENCES.find_newest(size_of(models, documents))
    used: list[tuple[str, float, float]] = []
    work = [do_fixed_work()]

    def add(name: str, taken: tuple[float, float]) -> None:
        used.append((name, *taken))
        work.append(do_fixed_work())
        on_progress(f"{models} models: {name}")

    with TemporaryDirectory() as folder:
        _write_files(Path(folder), models, documents)
        jobs = {name: (folder, sql) for name, sql in {"import": "", **list_queries(models)}.items()}
        for name, reason in run_each(_use, jobs, at_once=1, on_event=add).items():
            if reason:
                raise RunError(f"{name} of {models} models: {reason}")
        size = sum(file.stat().st_size for file in (Path(folder) / "w").rglob("*.parquet"))
    unit = float(np.mean(work))
    costs = [Cost(name, cpu, cpu / unit, last.get(name), None, peak) for name, cpu, peak in used]
    return PoolCosts(models, documents, size, costs, commit)


def _use(send: Send, folder: str, sql: str) -> None:
    """Sends CPU seconds and peak MB of a query, or of the import if `sql` is empty, in its own process."""
    place = Path(folder)
    started = time.process_time()
    with open_warehouse(place / "w", read_only=bool(sql)) as warehouse:
        if sql:
            warehouse.rows(sql)
        else:
            import_predictions(warehouse, place / "docs.parquet", place / "scores.parquet")
    send((time.process_time() - started, peak_megabytes()))


def _write_files(folder: Path, models: int, documents: int) -> None:
    """Writes docs.parquet and scores.parquet, as `import predictions` takes them."""
    numbers = np.random.default_rng(0)
    tasks = np.sort(np.arange(documents) % N_TASKS)
    keys = {
        "benchmark": pa.array(["mmlu"] * documents),
        "task": pa.array([f"mmlu_{task:02}" for task in tasks]),
        "doc_id": pa.array(np.arange(documents) - np.searchsorted(tasks, tasks)),
    }
    labels = numbers.integers(N_CHOICES, size=documents)
    scores = []
    for model in range(models):
        # Log-probs as engines give them: sums of single-precision numbers.
        values = -numbers.gamma(2.0, 2.0, size=documents * N_CHOICES).astype(np.float32).astype(np.float64)
        lists = pa.ListArray.from_arrays(
            np.arange(documents + 1, dtype=np.int32) * N_CHOICES, pa.array(values)
        )
        name = [f"model-{model:03}"] * documents
        scores.append(pa.table(keys | {"model": name, "choice_logprobs": lists}))
    pq.write_table(pa.table(keys | {"label": labels}), folder / "docs.parquet")
    pq.write_table(pa.concat_tables(scores), folder / "scores.parquet")

"""How long a warehouse of five benchmarks takes to fill, open and query, and how large it is."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rlfocal.exchange.imports.predictions import import_predictions
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


class WarehouseBench(NamedTuple):
    """What was measured."""

    choice_rows: int
    import_seconds: float
    """Reading, checking and committing the files."""
    parquet_bytes: int
    open_seconds: float
    query_seconds: float
    """The first query: every model's accuracy on every task."""


def bench_warehouse(share: float = 1.0, seed: int = 0) -> WarehouseBench:
    """Generates scores of twelve models on `share` of five benchmarks' documents and imports them."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        _write_files(place, share, np.random.default_rng(seed))
        started = time.perf_counter()
        with open_warehouse(place / "w") as warehouse:
            import_predictions(warehouse, place / "docs.parquet", place / "scores.parquet")
        imported = time.perf_counter()
        with open_warehouse(place / "w", read_only=True) as warehouse:
            opened = time.perf_counter()
            warehouse.rows("FROM accuracy")
            asked = time.perf_counter()
            rows = int(warehouse.rows("SELECT count(*) FROM choice_logprobs")[0][0])
        size = sum(file.stat().st_size for file in (place / "w").rglob("*.parquet"))
    return WarehouseBench(rows, imported - started, size, opened - imported, asked - opened)


def _write_files(folder: Path, share: float, numbers: np.random.Generator) -> None:
    """docs.parquet and scores.parquet, as `import predictions` takes them."""
    docs, scores = [], []
    for benchmark, (n_tasks, n_whole, n_choices) in SIZES.items():
        n = max(int(n_whole * share), n_tasks)
        tasks = np.sort(np.arange(n) % n_tasks)
        keys = {
            "benchmark": pa.array([benchmark] * n),
            "task": pa.array([f"{benchmark}_{task:02}" for task in tasks]),
            "doc_id": pa.array(np.arange(n) - np.searchsorted(tasks, tasks)),
        }
        docs.append(pa.table(keys | {"label": numbers.integers(n_choices, size=n)}))
        for model in range(N_MODELS):
            # Log-probs as engines give them: sums of single-precision numbers.
            values = -numbers.gamma(2.0, 2.0, size=n * n_choices).astype(np.float32).astype(np.float64)
            offsets = pa.array(np.arange(n + 1) * n_choices, pa.int32())
            lists = pa.ListArray.from_arrays(offsets, pa.array(values))
            scores.append(pa.table(keys | {"model": [f"model-{model:02}"] * n, "choice_logprobs": lists}))
    pq.write_table(pa.concat_tables(docs), folder / "docs.parquet")
    pq.write_table(pa.concat_tables(scores), folder / "scores.parquet")

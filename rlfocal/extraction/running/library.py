"""`rlfocal.extract`: fills a warehouse from Python, as `rlfocal extract` does without Prefect."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlfocal.extraction.running.runner import ExtractionReport, OnProgress, extract_pool
from rlfocal.pool import load_pool
from rlfocal.pool.specs import PoolSpec


def extract(
    pool: str | Path | PoolSpec,
    location: str | Path | None = None,
    *,
    models: Sequence[str] | None = None,
    benchmarks: Sequence[str] | None = None,
    backend: str | None = None,
    limit: int | None = None,
    datasets: str | Path | None = None,
    jobs: int | None = None,
    replace_documents: bool = False,
    on_progress: OnProgress | None = None,
) -> ExtractionReport:
    """Asks the models of a pool what the warehouse at `location` lacks, and commits their answers.

    `pool` is a pool's name, its YAML file, or what `load_pool` returns; `location` is what `open_warehouse`
    takes. `models` and `benchmarks` restrict the pool. The rest is as in `extract_pool` of the module
    `rlfocal.extraction.running.runner`: models that fail are in the report's `missing`, and the others
    continue.

    Raises InputError for a wrong name, and InputError or RunError, with nothing written, if the backend or a
    benchmark is not available. Engines run in processes of their own: call it under
    `if __name__ == "__main__":`.
    """
    whole = pool if isinstance(pool, PoolSpec) else load_pool(str(pool))
    chosen = whole.choose(
        None if models is None else list(models), None if benchmarks is None else list(benchmarks)
    )
    return extract_pool(
        location,
        chosen,
        backend=backend,
        limit=limit,
        datasets=datasets,
        jobs=jobs,
        replace_documents=replace_documents,
        on_progress=on_progress,
    )

"""Answers of a pool's models, into a warehouse: what can be asked for, and `rlfocal.extract`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from rlfocal.base.request import Backend, Benchmarks, Datasets, Limit, Models, Option, Request, with_fields

if TYPE_CHECKING:
    from rlfocal.extraction.running.runner import ExtractionReport
    from rlfocal.pool import PoolSpec


class LoadedPool(Protocol):
    """A PoolSpec; its module is too slow to import for the command line's help."""

    def choose(self, models: list[str] | None, benchmarks: list[str] | None) -> PoolSpec: ...


@dataclass(frozen=True)
class PoolRequest(Request):
    """Models of a pool, the benchmarks to run them on, and how."""

    pool: Annotated[
        str | Path | LoadedPool,
        Option("The pool's name or its YAML file.", flags=("--pool", "-p"), complete="pools"),
    ]
    location: str | Path | None = None
    """The warehouse, as `open_warehouse` takes it."""
    _: KW_ONLY
    models: Models = None
    benchmarks: Benchmarks = None
    backend: Backend = None
    limit: Limit = None
    datasets: Datasets = None
    jobs: Annotated[
        int | None,
        Option(
            "How many models run at once, one process each.",
            1,
            default="as many as fit on the GPUs; on a CPU 2, with vllm 1",
        ),
    ] = None

    def load_pool(self) -> PoolSpec:
        """Reads the pool and keeps the models and benchmarks asked for. Raises InputError."""
        from rlfocal.pool import load_pool

        pool = load_pool(str(self.pool)) if isinstance(self.pool, str | Path) else self.pool
        return pool.choose(
            None if self.models is None else list(self.models),
            None if self.benchmarks is None else list(self.benchmarks),
        )


@dataclass(frozen=True)
class ExtractionRequest(PoolRequest):
    """Answers of a pool's models that a warehouse is to have."""

    _: KW_ONLY
    replace_documents: Annotated[
        bool,
        Option(
            "If a task's documents changed, drop all models' answers to the old ones (earlier snapshots keep "
            "them)."
        ),
    ] = False
    unconditional: Annotated[
        bool,
        Option("Also score each choice after an empty prompt, once per task, for acc_mutual_info."),
    ] = False
    on_progress: Callable[[Any], None] | None = None
    """Called with each event of `rlfocal.extraction.running.events`."""

    def load_pool(self) -> PoolSpec:
        chosen = super().load_pool()
        return chosen.with_unconditional() if self.unconditional else chosen


@with_fields(ExtractionRequest)
def extract(request: ExtractionRequest) -> ExtractionReport:
    """Asks the models of a pool what the warehouse at `location` lacks, and commits their answers.

    `pool` is a pool's name, its YAML file, or what `load_pool` returns; `location` is what `open_warehouse`
    takes. Models that fail are in the report's `missing`, and the others continue.

    Raises InputError for a wrong name, and InputError or RunError, with nothing written, if the backend or a
    benchmark is not available. Engines run in processes of their own: call it under
    `if __name__ == "__main__":`.
    """
    return run_extraction(request)


def run_extraction(request: ExtractionRequest) -> ExtractionReport:
    """As `extract` does, for a request."""
    from rlfocal.extraction.running.runner import extract_pool  # here, as it takes seconds to import

    return extract_pool(
        request.location,
        request.load_pool(),
        backend=request.backend,
        limit=request.limit,
        datasets=request.datasets,
        jobs=request.jobs,
        replace_documents=request.replace_documents,
        on_progress=request.on_progress,
    )

"""Extracts the answers of a pool's models into a warehouse: `rlfocal.extract`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated

from rlfocal.base import options
from rlfocal.base.names import import_when_used

if TYPE_CHECKING:
    from rlfocal.extraction.running.runner import extract as extract
    from rlfocal.pool import PoolSpec

__getattr__ = import_when_used(__name__, {"extract": "rlfocal.extraction.running.runner"})


@dataclass(frozen=True)
class PoolRequest:
    """A request for answers of a pool's models: which models, to which benchmarks, and on which engine."""

    pool: options.Pool
    _: KW_ONLY
    models: options.Models = None
    benchmarks: options.Benchmarks = None
    backend: options.Backend = None
    limit: options.Limit = None
    datasets: options.Datasets = None
    jobs: options.Jobs = None

    def load_pool(self) -> PoolSpec:
        """Reads the pool, with only the requested models and benchmarks. Raises InputError for an unknown
        name."""
        from rlfocal.pool import load_pool  # here, as the command line's help must not wait for it

        return load_pool(self.pool).choose(self.models, self.benchmarks)


@dataclass(frozen=True)
class ExtractionRequest(PoolRequest):
    """A request to extract the answers of a pool's models that a warehouse lacks. Its fields are parameters
    of `extract`."""

    _: KW_ONLY
    replace_documents: Annotated[
        bool,
        options.Option(
            "If a task's documents changed, drop all models' answers to the old ones (earlier snapshots keep "
            "them)."
        ),
    ] = False
    unconditional: options.Unconditional = False
    stop_if_slower: options.StopIfSlower = False
    gpu_hours: options.GPUHours = None

"""The backends there are, and the one place that starts an engine."""

from __future__ import annotations

from importlib import import_module
from typing import get_args

from rlfocal.errors import unknown
from rlfocal.extraction.engine import Engine
from rlfocal.pool.hub import local_weights
from rlfocal.pool.specs import Backend, ModelSpec

BACKENDS: tuple[Backend, ...] = get_args(Backend)


def start_engine(model: ModelSpec, backend: str, threads: int) -> Engine:
    """Loads a model with the `load` of its backend's module. `threads` is for CPU kernels."""
    check_backend(backend)
    engine: Engine = import_module(f"{__package__}.{backend}").load(model, local_weights(model), threads)
    return engine


def check_backend(backend: str) -> None:
    """Raises InputError for a backend that does not exist."""
    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)

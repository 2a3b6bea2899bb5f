"""The backends there are, and the one place that starts an engine."""

from __future__ import annotations

from importlib import import_module
from time import perf_counter
from typing import get_args

from rlfocal.base.errors import InputError, unknown
from rlfocal.extraction.engine import Engine
from rlfocal.extraction.logs import log, start_log
from rlfocal.pool.hub import local_weights
from rlfocal.pool.specs import Backend, ModelSpec

BACKENDS: tuple[Backend, ...] = get_args(Backend)


def start_engine(model: ModelSpec, backend: str, threads: int) -> Engine:
    """Loads a model with the `load` of its backend's module. `threads` is for CPU kernels."""
    check_backend(backend)
    start_log()
    started = perf_counter()
    engine: Engine = import_module(f"{__package__}.{backend}").load(model, local_weights(model), threads)
    log("engine started", model=model.model, backend=backend, seconds=perf_counter() - started)
    return engine


def check_entry_for(backend: str, model: ModelSpec) -> None:
    """Raises InputError for a setting of the entry that the backend would ignore."""
    if backend == "hf" and model.quantization is not None:
        raise InputError(
            f"model {model.model!r}: the backend hf does not quantize ({model.quantization}); use --backend "
            "vllm, or leave `quantization` out (weights that are quantized already load as they are)"
        )


def check_backend(backend: str) -> None:
    """Raises InputError for a backend that does not exist."""
    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)

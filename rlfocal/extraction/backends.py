"""The backends there are, and the one place that starts an engine."""

from __future__ import annotations

from typing import get_args

from rlfocal.errors import unknown
from rlfocal.extraction.engine import Engine
from rlfocal.pool.hub import local_weights
from rlfocal.pool.specs import Backend, ModelSpec

BACKENDS: tuple[Backend, ...] = get_args(Backend)


def start_engine(model: ModelSpec, backend: str, threads: int) -> Engine:
    """The one place that loads a model. `threads` is for CPU kernels."""
    check_backend(backend)
    folder = local_weights(model)
    if backend == "vllm":
        from rlfocal.extraction import vllm

        return vllm.load(model, folder, threads)
    if backend == "openai":
        from rlfocal.extraction import openai

        return openai.load(model, folder)
    from rlfocal.extraction import hf

    return hf.load(model, folder, threads)


def check_backend(backend: str) -> None:
    """Raises InputError for a backend that does not exist."""
    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)

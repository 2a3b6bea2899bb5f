"""The backends there are, and the one place that starts an engine."""

from __future__ import annotations

from rlfocal.errors import unknown
from rlfocal.extraction.engine import Engine
from rlfocal.extraction.fingerprint import local_weights
from rlfocal.pool.specs import ModelSpec

BACKENDS = ("hf",)


def start_engine(model: ModelSpec, backend: str, threads: int) -> Engine:
    """The one place that loads a model. `threads` is for CPU kernels."""
    check_backend(backend)
    import torch

    from rlfocal.extraction import hf

    torch.set_num_threads(threads)
    return hf.load(model, local_weights(model))


def check_backend(backend: str) -> None:
    """Raises InputError for a backend that does not exist."""
    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)

"""What makes two extractions the same: a fingerprint of model, prompts and engine, known before any load."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from rlfocal.errors import InputError
from rlfocal.extraction.tasks import TaskDocuments
from rlfocal.pool.specs import ModelSpec

# Raise this when the numbers that an engine computes from the same input change.
REVISION = 1
LAB_PREFIX = "rlfocal-lab/"


def fingerprint(model: ModelSpec, weights: str | None, task: TaskDocuments, backend: str) -> str:
    """sha256 over all that a row of (model, task) depends on; `weights` is the model's `weights_digest`.

    How many documents are asked does not enter: a limited partition is a part of the whole one.
    """
    parts = {
        "revision": REVISION,
        "model": [model.hf_repo, model.revision, model.dtype, model.trust_remote_code, weights],
        "task": [task.benchmark, task.task, task.digest],
        "backend": backend,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def local_weights(model: ModelSpec) -> Path | None:
    """The directory of a model that lies on this machine; None for a hub id.

    Raises InputError for a path that is not there.
    """
    if model.hf_repo.startswith(LAB_PREFIX):
        from rlfocal.lab import weights_dir

        return Path(weights_dir(model.hf_repo.removeprefix(LAB_PREFIX)))
    path = Path(model.hf_repo).expanduser()
    if path.is_dir():
        return path.resolve()
    if path.is_absolute() or model.hf_repo.startswith((".", "~")):
        raise InputError(f"model {model.model!r}: the directory {model.hf_repo!r} does not exist")
    return None


def weights_digest(model: ModelSpec) -> str | None:
    """sha256 over names and contents of a local model's files; None for a hub id, which has a revision."""
    folder = local_weights(model)
    if folder is None:
        return None
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith(".")):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.name}\0{content}\0".encode())
    return digest.hexdigest()

"""Tensors in safetensors, the rest as JSON in the file's metadata. Reading runs no code."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor


def write_tensors(path: Path, tensors: Mapping[str, Tensor], key: str, about: Mapping[str, Any]) -> None:
    """Write one file, which appears whole or not at all. Equal contents make equal bytes.

    `key` is the one key of the metadata: safetensors writes several in no fixed order.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        whole = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        save_file(whole, partial, metadata={key: json.dumps(about)})
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_tensors(path: Path, key: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The JSON under `key`, and the tensors.

    Raises OSError or SafetensorError for a file that is missing or torn, and KeyError for one of another key.
    """
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, not a dict
    return json.loads(metadata[key]), tensors


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names start so, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

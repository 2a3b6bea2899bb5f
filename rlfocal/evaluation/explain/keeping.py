"""Explanations in files beside the warehouse. No torch: the report reads them."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rlfocal.base.atomic import write_file
from rlfocal.evaluation.explain.findings import Explanation
from rlfocal.methods.trained import RL_FOCAL
from warehouse import Warehouse

EXPLAINED = (*RL_FOCAL[:3], "gated_log_linear")
"""The methods whose agents see only the outputs they ask for; those of the released code read all outputs."""


def kept_at(warehouse: Warehouse, run_id: str) -> Path:
    """The file of the explanation of a run: its id changes with everything that the agents' decisions depend
    on."""
    return warehouse.location.explanations / f"{run_id}.json"


def keep(found: Explanation, path: Path) -> None:
    """The file appears whole or not at all."""
    write_file(path, TypeAdapter(Explanation).dump_json(found, indent=1).decode())


def kept(path: Path) -> Explanation | None:
    """The inverse of `keep`; None for a file that is missing, or holds something else."""
    try:
        return TypeAdapter(Explanation).validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None

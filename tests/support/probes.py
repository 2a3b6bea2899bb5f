"""Choosers of probes, which a model's own process calls, and what a probe leaves in a warehouse."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warehouse import Warehouse, open_warehouse

Place = tuple[str, str]
COMPARED = (
    "probe_id, model, benchmark, task, doc_id, fingerprint, settings, versions, evidence, probability, "
    "choices, passes, traces, paid"
)
"""The columns of `probe_answers` that are the same however often the probe was killed."""


@dataclass(frozen=True)
class InTurn:
    """Batches in this order: the first of them of which nothing is committed."""

    probe_id: str
    batches: tuple[Mapping[Place, Mapping[int, float]], ...]
    killed_at: int | None = None
    """Before this batch is asked, the process is killed."""

    def __call__(self, warehouse: Warehouse) -> Mapping[Place, Mapping[int, float]]:
        rows = "SELECT benchmark, task, doc_id FROM probe_answers WHERE probe_id = ?"
        asked = set(warehouse.rows(rows, [self.probe_id]))
        for number, batch in enumerate(self.batches):
            if not {(*place, doc_id) for place, documents in batch.items() for doc_id in documents} <= asked:
                if number == self.killed_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return batch
        return {}


def drawn(place: Place, *doc_ids: int) -> dict[Place, dict[int, float]]:
    """A batch of one task, each document with a probability of its own."""
    return {place: {doc_id: 1 / (2 + doc_id) for doc_id in doc_ids}}


def probe_answers(location: Path | str) -> list[dict[str, Any]]:
    with open_warehouse(location, read_only=True) as warehouse:
        rows = f"SELECT {COMPARED} FROM probe_answers ORDER BY probe_id, benchmark, task, doc_id"
        return warehouse.query(rows).to_pylist()


Chooser = Callable[[Warehouse], Mapping[Place, Mapping[int, float]]]

"""Which partitions (model, benchmark, task) there are, and which are still to be extracted."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple

from rlfocal.extraction.tasks import TaskDocuments
from warehouse import Warehouse


class Place(NamedTuple):
    """What names a partition."""

    model: str
    benchmark: str
    task: str

    @property
    def key(self) -> str:
        """One text for all three."""
        return "\0".join(self)


class Held(NamedTuple):
    """A committed partition."""

    fingerprint: str
    n_docs: int


@dataclass(frozen=True)
class Work:
    """A partition to extract."""

    task: TaskDocuments
    fingerprint: str
    replace_documents: bool = False
    """What other models answered to other documents may go."""

    def place(self, model: str) -> Place:
        return Place(model, self.task.benchmark, self.task.task)


def held_partitions(warehouse: Warehouse, model: str | None = None) -> dict[Place, Held]:
    """What the warehouse holds, of one model or of all."""
    rows = warehouse.rows(
        "SELECT model, benchmark, task, fingerprint, n_docs FROM extractions WHERE $1 IS NULL OR model = $1",
        [model],
    )
    return {Place(model, benchmark, task): Held(*made) for model, benchmark, task, *made in rows}


def partition_lock(warehouse: Warehouse, place: Place, *, wait: bool) -> AbstractContextManager[bool]:
    """Whoever extracts a partition holds it; yields False where another one does and not `wait`."""
    return warehouse.lock(f"partition {place.key}", wait=wait)


def covers(there: Held | None, work: Work) -> bool:
    """Limits take documents in one order, so of two partitions the longer one holds the shorter one's."""
    if there is None:
        return False
    return there.fingerprint == work.fingerprint and there.n_docs >= len(work.task.documents)

"""Extraction jobs: one per partition (model, benchmark, task)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from rlfocal.extraction.fingerprint import holds
from rlfocal.extraction.tasks import TaskDocuments
from warehouse import Warehouse
from warehouse.store import Committed, PartitionKey


@dataclass(frozen=True)
class Job:
    """A partition to extract."""

    task: TaskDocuments
    fingerprint: str
    replace_documents: bool = False
    """Whether other models' answers to other documents may be dropped."""

    def key(self, model: str) -> PartitionKey:
        return PartitionKey(model, self.task.benchmark, self.task.task)


def partition_lock(warehouse: Warehouse, key: PartitionKey, *, wait: bool) -> AbstractContextManager[bool]:
    """Held while a partition is extracted; yields False if another process holds it and not `wait`."""
    return warehouse.lock(f"partition {key.text}", wait=wait)


def is_covered(job: Job, committed: Committed | None) -> bool:
    """Whether the committed partition has all of the job."""
    return holds(committed, job.fingerprint, len(job.task.documents))

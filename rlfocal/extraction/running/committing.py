"""Commits answered partitions of one model together, because one commit of many costs as much as a commit of
one."""

from __future__ import annotations

from contextlib import ExitStack
from logging import ERROR
from pathlib import Path
from shutil import rmtree
from time import monotonic
from typing import Any, NamedTuple, Self

from rlfocal.base.errors import InputError
from rlfocal.extraction.partition import Job, extraction_lock
from rlfocal.extraction.recording import documents_to_ask, log
from rlfocal.extraction.running.events import ConcurrentPartition, ExtractedPartition, Failure, explain
from rlfocal.extraction.running.processes import Send
from warehouse import Warehouse
from warehouse.limits import DiskFullError
from warehouse.store import PartitionKey
from warehouse.writing import Partition

MAX_SECONDS_TO_WAIT = 30.0
"""The seconds after which an answered partition is committed without waiting for others."""
MAX_ROWS = 500_000
"""The number of answer rows in memory beyond which they are committed."""


class AnsweredPartition(NamedTuple):
    """A partition that is ready to be committed."""

    key: PartitionKey
    job: Job
    partition: Partition
    folder: Path
    """The folder of the partition's shards, which the commit deletes."""
    log_fields: dict[str, Any]


class Batch:
    """Answered partitions of one model that are not committed yet, and the locks on their benchmarks.

    The batch is committed once its first partition has waited long enough. If the process is killed before,
    the shards remain.
    """

    def __init__(self, warehouse: Warehouse, model: str, send: Send) -> None:
        self._warehouse = warehouse
        self._model = model
        self._send = send
        self._locks: dict[str, ExitStack] = {}
        self._partitions: list[AnsweredPartition] = []
        self._start_time = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        for lock in self._locks.values():
            lock.close()

    def lock(self, benchmark: str, *, wait: bool) -> bool:
        """Takes the lock of the model's answers to a benchmark; False if another process holds it.

        With `wait`, it first commits everything and releases all locks, so that no two processes wait for
        each other.
        """
        if wait:
            self.commit()
        with ExitStack() as stack:
            mine = stack.enter_context(extraction_lock(self._warehouse, self._model, benchmark, wait=wait))
            if mine:
                self._locks[benchmark] = stack.pop_all()
        return mine

    def add(self, answers: AnsweredPartition) -> None:
        """Adds an answered partition, and commits the batch if it is due. Raises DiskFullError if the disk is
        then full."""
        self._start_time = self._start_time if self._partitions else monotonic()
        self._partitions.append(answers)
        n_rows = sum(len(each.partition.rows) for each in self._partitions)
        is_due = monotonic() - self._start_time > MAX_SECONDS_TO_WAIT
        # Shards do not hold documents that will be asked again.
        if is_due or n_rows > MAX_ROWS or documents_to_ask(answers.partition.rows):
            self.commit(keep=answers.key.benchmark)

    def commit(self, keep: str | None = None) -> None:
        """Commits all answered partitions, and releases the locks of all benchmarks but `keep`."""
        answered, self._partitions = self._partitions, []
        if answered:
            self._commit(answered)
        for benchmark in [name for name in self._locks if name != keep]:
            self._locks.pop(benchmark).close()

    def _commit(self, answered: list[AnsweredPartition]) -> None:
        jobs = {each.key: each.job for each in answered}
        try:
            written = self._warehouse.put_partitions(
                [each.partition for each in answered],
                unless=lambda key, now: jobs[key].is_covered_by(now),  # if a lock was lost in the meantime
            )
        except DiskFullError:
            raise
        except InputError as error:
            if len(answered) == 1:
                self._send(log_failure(answered[0].key, error))
            else:  # one that is refused costs no other
                for each in answered:
                    self._commit([each])
        except Exception as error:
            for each in answered:
                self._send(log_failure(each.key, error))
        else:
            for each in answered:
                rmtree(each.folder, ignore_errors=True)
                if each.key in written:
                    log("partition committed", **each.key._asdict(), **each.log_fields)
                    n_docs, seconds = each.log_fields["n_docs"], each.log_fields["seconds"]
                    self._send(ExtractedPartition(*each.key, n_docs, seconds))
                else:
                    self._send(ConcurrentPartition(*each.key))


def log_failure(key: PartitionKey, error: Exception) -> Failure:
    """Logs that a partition failed, and returns the event with its reason."""
    event = Failure("extract", *key, explain(error), isinstance(error, InputError))
    log("partition failed", level=ERROR, **key._asdict(), reason=event.reason)
    return event

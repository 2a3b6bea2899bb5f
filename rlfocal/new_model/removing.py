"""Takes a model out of a pool again: its file, its answers, and the runs of pools with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlfocal.base.errors import unknown
from rlfocal.base.wording import counted
from rlfocal.pool import load_pool, remove_from_pool
from warehouse import open_warehouse
from warehouse.connecting import MissingWarehouseError
from warehouse.corrections import Gone, is_known, remove_from_benchmarks


@dataclass(frozen=True)
class Removed:
    """What a removal did."""

    model: str
    file: Path | None
    """The pool's file that lost it; None if it was gone already."""
    is_deleted: bool
    """Whether that file is gone, because the pool is again as it ships with rlfocal."""
    partitions: int
    runs: int
    """Evaluations of pools with it."""
    snapshot: int | None
    """The newest of the warehouse; None if there is none."""

    @property
    def is_nothing(self) -> bool:
        """Whether it was removed already."""
        return self.file is None and not self.partitions and not self.runs

    def __str__(self) -> str:
        if self.is_nothing:
            return f"nothing to do: {self.model} is already removed"
        done = []
        if self.file is not None:
            gone = "is deleted: the pool is again as it ships" if self.is_deleted else "is as before"
            done.append(f"{self.model} is out of {self.file}, which {gone}")
        if self.partitions or self.runs:
            taken = f"{counted(self.partitions, 'partition')} and {counted(self.runs, 'run')}"
            done.append(f"{taken} removed from the warehouse")
        return "; ".join(done)


def remove_model(
    pool: str, model: str, *, warehouse: str | None = None, keep_answers: bool = False
) -> Removed:
    """The reverse of `add_model`. Called again after it was interrupted, it does the rest.

    The pool's file is restored byte for byte; a copy of a pool that ships with rlfocal is deleted once it
    equals that. The model's answers to the pool's benchmarks, and the runs there of pools with it, are
    deleted in one transaction (earlier snapshots keep them), unless `keep_answers`. Raises InputError for a
    model that neither the pool nor the warehouse has or had, and, with nothing changed, where the warehouse
    or the file cannot be written to.
    """
    known = load_pool(pool)
    benchmarks = [benchmark.name for benchmark in known.benchmarks]
    gone, snapshot = Gone(0, 0, was_known=False), None
    try:
        with open_warehouse(warehouse, create=False, read_only=keep_answers) as opened:
            if keep_answers:
                gone = gone._replace(was_known=is_known(opened, model))
                file = remove_from_pool(pool, model)
            else:
                # The file before the commit: a run that starts in between must not extract the model again.
                with remove_from_benchmarks(opened, model, benchmarks) as gone:
                    file = remove_from_pool(pool, model)
            snapshot = opened.snapshot()
    except MissingWarehouseError:  # it was never extracted
        file = remove_from_pool(pool, model)
        if file is None:
            raise
    if file is None and not gone.was_known:
        raise unknown("model", model, [m.model for m in known.models], f"pool {known.name!r}")
    is_deleted = file is not None and not file.exists()
    return Removed(model, file, is_deleted, gone.partitions, gone.runs, snapshot)

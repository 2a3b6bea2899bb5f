"""A full disk, as the system, DuckDB and SQLite report it: its folder and the space that is left."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from warehouse.errors import RunError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_SAID = ("No space left on device", "database or disk is full", "Disk quota exceeded")


class DiskFullError(RunError):
    """Nothing more can be written to a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(
            f"the disk is full: {folder} has {_room(folder)} left. Answers so far are kept: "
            "free some space, or move the warehouse to a larger disk, and run the same command again"
        )

    def __reduce__(self) -> tuple[type[DiskFullError], tuple[Path]]:
        return type(self), (self.folder,)


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Raises DiskFullError if the block fails because the disk of `folder` is full."""
    try:
        yield
    except (OSError, duckdb.Error) as error:
        if not _is_full(error):
            raise
        raise DiskFullError(folder) from error


def _is_full(error: OSError | duckdb.Error) -> bool:
    if isinstance(error, OSError):
        return error.errno in _FULL
    return any(said in str(error) for said in _SAID)


def _room(folder: Path) -> str:
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = float(shutil.disk_usage(there).free)
    for unit in ("bytes", "KiB", "MiB"):
        if free < 1024:
            return f"{free:.0f} {unit}"
        free /= 1024
    return f"{free:.1f} GiB"

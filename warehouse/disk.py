"""A full disk, as the system, DuckDB and SQLite report it: its folder and the space that is left."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb

from warehouse.errors import ReadOnlyError, RunError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_SAID_READ_ONLY = ("readonly database", "Permission denied", "Read-only file system")
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
    """Raises DiskFullError if the disk of `folder` is full, ReadOnlyError if it may not be written to."""
    try:
        yield
    except (OSError, duckdb.Error) as error:
        if _has(error, _READ_ONLY, _SAID_READ_ONLY):
            raise ReadOnlyError(
                f"{folder} cannot be written to by this user: make it writable, or copy the warehouse to "
                "another directory and name that with --warehouse"
            ) from error
        if not _has(error, _FULL, _SAID):
            raise
        raise DiskFullError(folder) from error


def _has(error: OSError | duckdb.Error, numbers: Sequence[int], texts: Sequence[str]) -> bool:
    """Whether an error is one of the system's `numbers`, or DuckDB's or SQLite's `texts`."""
    if isinstance(error, OSError):
        return error.errno in numbers
    return any(text in str(error) for text in texts)


def _room(folder: Path) -> str:
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = float(shutil.disk_usage(there).free)
    for unit in ("bytes", "KiB", "MiB"):
        if free < 1024:
            return f"{free:.0f} {unit}"
        free /= 1024
    return f"{free:.1f} GiB"

"""Limits of memory and disk for a query, and the errors raised where they do not suffice."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir

import duckdb

from warehouse.errors import InputError, ReadOnlyError, RunError

_FULL_DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_READ_ONLY_ERRNOS = (errno.EROFS, errno.EACCES, errno.EPERM)
_READ_ONLY_MESSAGES = ("readonly database", "Permission denied", "Read-only file system")
_FULL_DISK_MESSAGES = (
    "No space left on device", "database or disk is full", "Disk quota exceeded", "File too large",
    '"COMMIT": disk I/O error',  # of SQLite, at a limit on file sizes
    "cannot rollback",  # it has ended a transaction that outgrew its memory and found no room
)  # fmt: skip
_DISK_ERROR_MESSAGES, _FEW_BYTES = ("disk I/O error",), 1 << 20
"""SQLite's messages for a full or damaged disk, and the free bytes below which the disk counts as full."""
_LOCKED_MESSAGES = ("database is locked",)


class DiskFullError(RunError):
    """The error of a folder that takes no more data: a full disk, a quota, or a limit on file sizes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        why = f"the disk is full: {folder} has {_show_room(folder)} left"
        if _count_free_bytes(folder) >= _FEW_BYTES:
            why = (
                f"{folder} takes no more, though {_show_room(folder)} are free now: the disk was full until "
                "this step was undone, or a quota or a limit on file sizes (`ulimit -f`) is reached"
            )
        super().__init__(
            f"{why}. Answers so far are kept: free some space, or move the warehouse to a larger disk, and "
            "run the same command again"
        )

    def __reduce__(self) -> tuple[type[DiskFullError], tuple[Path]]:
        return type(self), (self.folder,)


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Runs a block that writes to `folder`. Raises DiskFullError if it takes no more data, ReadOnlyError if
    this user may not write to it, and RunError if another program has locked its catalogue."""
    try:
        yield
    except (OSError, duckdb.Error) as error:
        if _has(error, _READ_ONLY_ERRNOS, _READ_ONLY_MESSAGES):
            raise ReadOnlyError(
                f"{folder} cannot be written to by this user: make it writable, or copy the warehouse to "
                "another directory and name that with --warehouse"
            ) from error
        if _has(error, (), _LOCKED_MESSAGES):
            raise RunError(
                f"another program holds the catalogue in {folder} (a browser of SQLite files, a backup?): "
                "close it, and run the same command again; of this step, nothing was stored"
            ) from error
        is_full = _has(error, _FULL_DISK_ERRNOS, _FULL_DISK_MESSAGES) or (
            _has(error, (), _DISK_ERROR_MESSAGES) and _count_free_bytes(folder) < _FEW_BYTES
        )
        if not is_full:
            raise
        raise DiskFullError(folder) from error


def _has(error: OSError | duckdb.Error, numbers: Sequence[int], texts: Sequence[str]) -> bool:
    """Whether an error has one of the error numbers, or contains one of the texts of DuckDB or SQLite."""
    if isinstance(error, OSError):
        return error.errno in numbers
    return any(text in str(error) for text in texts)


def _count_free_bytes(folder: Path) -> int:
    """The free bytes on the disk of a folder, which need not exist yet."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


def _show_room(folder: Path) -> str:
    free = float(_count_free_bytes(folder))
    for unit in ("bytes", "KiB", "MiB"):
        if free < 1024:
            return f"{free:.0f} {unit}"
        free /= 1024
    return f"{free:.1f} GiB"


LIMIT_VARIABLE = "RLFOCAL_MEMORY_LIMIT"
"""The environment variable that limits a query's memory, such as 4GB; unset: 80 % of the machine's."""
_MEMORY_AMOUNT = re.compile(r"[1-9]\d*(\.\d+)? ?[KMGT]i?B", re.IGNORECASE)
_SPILL_SHARE = 2
"""A query may spill 1 / this of the disk space that is free when the warehouse is opened."""


def memory_settings() -> dict[str, str | bool | int | float | list[str]]:
    """DuckDB's settings for memory; queries spill into the system's temporary folder.

    Raises InputError if the limit in the environment is no amount of memory.
    """
    folder = Path(gettempdir())
    limit = os.environ.get(LIMIT_VARIABLE, "").strip()
    if limit and not _MEMORY_AMOUNT.fullmatch(limit):
        raise InputError(
            f"{LIMIT_VARIABLE} is {limit!r}; set it to an amount of memory such as 4GB, or unset it"
        )
    return {
        "temp_directory": str(folder / f"rlfocal-spill-{os.getpid()}"),
        "max_temp_directory_size": f"{shutil.disk_usage(folder).free // _SPILL_SHARE}B",
        **({"memory_limit": limit} if limit else {}),
    }


def explain_memory(error: BaseException) -> str | None:
    """A sentence on what to do about a query that needs too much memory; None for other errors."""
    if not isinstance(error, duckdb.OutOfMemoryException):
        return None
    return (
        "the query needs more memory than it may take, and more disk than it may spill onto "
        f"(half of what is free in {gettempdir()}): ask about fewer models (models := [...]), smaller pools "
        f"or fewer tasks (task := ...), or set {LIMIT_VARIABLE} (now "
        f"{os.environ.get(LIMIT_VARIABLE, '').strip() or '80 % of the memory'}) higher"
    )


@contextmanager
def explain_memory_errors() -> Iterator[None]:
    """Runs a block of queries; raises RunError with what to do if one needs too much memory or disk."""
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise RunError(explain_memory(error)) from error

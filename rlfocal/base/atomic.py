"""Files and folders that are written whole or not at all, even if the process is killed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replace_path(path: Path, *, suffix: str = "") -> Iterator[Path]:
    """Yields a temporary path beside `path` for a new file or folder, which replaces `path` after the block.

    If the block raises, the new file or folder is deleted. A folder replaces only an empty or missing one.
    """
    staged = path.with_name(f".{path.name}.{os.getpid()}{suffix}")
    path.parent.mkdir(parents=True, exist_ok=True)
    _delete(staged)
    try:
        yield staged
        staged.replace(path)
    except BaseException as error:
        _delete(staged)
        if isinstance(error, OSError) and error.filename is None:  # of a write to an open file
            error.filename = str(path)
        raise


def write_file(path: Path, *parts: str | bytes | memoryview, durable: bool = False) -> None:
    """Writes a file from `parts`, text as UTF-8. `durable`: it also survives a crash of the machine."""
    with replace_path(path) as staged, staged.open("wb") as file:
        for part in parts:
            file.write(part.encode() if isinstance(part, str) else part)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    if durable:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()

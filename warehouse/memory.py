"""How much memory and disk a query may take, and what it says when that is not enough."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir

import duckdb

from warehouse.errors import InputError, RunError

LIMIT = "RLFOCAL_MEMORY_LIMIT"
"""Environment variable: memory that a query may take, such as 4GB; unset: 80 % of what there is."""
_AMOUNT = re.compile(r"[1-9]\d*(\.\d+)? ?[KMGT]i?B", re.IGNORECASE)
_SPILL_SHARE = 2
"""A query may spill onto one part in so many of the disk that is free when the warehouse is opened."""


def memory_settings() -> dict[str, str | bool | int | float | list[str]]:
    """DuckDB's settings: it spills into the system's temporary folder, not into the working directory.

    Raises InputError for a limit that is no amount of memory.
    """
    folder = Path(gettempdir())
    limit = os.environ.get(LIMIT, "").strip()
    if limit and not _AMOUNT.fullmatch(limit):
        raise InputError(f"{LIMIT} is {limit!r}; set it to an amount of memory such as 4GB, or unset it")
    return {
        "temp_directory": str(folder / f"rlfocal-spill-{os.getpid()}"),
        "max_temp_directory_size": f"{shutil.disk_usage(folder).free // _SPILL_SHARE}B",
        **({"memory_limit": limit} if limit else {}),
    }


def explain_memory(error: BaseException) -> str | None:
    """What to do about a query that is too large, in one sentence; None for other errors."""
    if not isinstance(error, duckdb.OutOfMemoryException):
        return None
    return (
        "the query needs more memory than it may take, and more disk than it may spill onto "
        f"(half of what is free in {gettempdir()}): ask about fewer models (models := [...]), smaller pools "
        f"or fewer tasks (task := ...), or set {LIMIT} (now "
        f"{os.environ.get(LIMIT, '').strip() or '80 % of the memory'}) higher"
    )


@contextmanager
def within_memory() -> Iterator[None]:
    """Raises RunError, which says what to do, if a query needs more memory and disk than it may take."""
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise RunError(explain_memory(error)) from error

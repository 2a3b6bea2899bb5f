"""What is broken or worth knowing about a warehouse and a Prefect server, and how to fix it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "fault"]


@dataclass(frozen=True)
class Finding:
    """One thing that was checked."""

    check: str
    level: Level
    """`note`: nothing is broken, but worth knowing."""
    message: str
    fix: str | None = None
    """What to run or do about it."""

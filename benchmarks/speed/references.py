"""Costs as ratios to a fixed piece of work, compared with ratios that the repository stores by commit."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FOLDER = Path(__file__).parents[1] / "references"
MAX_COST_RATIO = 1.5
"""The largest factor by which a cost may exceed the stored one without being named as slower."""


class Cost(NamedTuple):
    """The cost of one piece of work."""

    name: str
    cpu_seconds: float
    """User and system time of all processes of the work."""
    ratio: float
    """The CPU seconds over those of the fixed piece of work in the same run."""
    last: float | None = None
    """The ratio in the newest reference; None if there is none."""
    wall_seconds: float | None = None
    peak_megabytes: float | None = None

    @property
    def times_slower(self) -> float | None:
        return None if not self.last else self.ratio / self.last


@dataclass(frozen=True)
class References:
    """The file of one measurement's stored ratios, by commit and size, the newest last."""

    path: Path

    def find_newest(self, size: str) -> tuple[str | None, dict[str, float]]:
        """The commit and ratios by name of the newest reference of this size; (None, {}) without any."""
        of_size = [row for row in self._rows() if row["size"] == size]
        return (of_size[-1]["commit"], of_size[-1]["ratios"]) if of_size else (None, {})

    def store(self, costs: Sequence[Cost], size: str, commit: str) -> None:
        """Stores the costs' ratios; they replace those of the same commit and size."""
        rows = [row for row in self._rows() if (row["commit"], row["size"]) != (commit, size)]
        rows.append(
            {"commit": commit, "size": size, "ratios": {cost.name: round(cost.ratio, 2) for cost in costs}}
        )
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps(rows, indent=1) + "\n")

    def _rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.path.read_text()) if self.path.exists() else []
        return rows


def list_slower(costs: Sequence[Cost]) -> list[Cost]:
    """The costs whose ratio is more than MAX_COST_RATIO times the stored one."""
    return [cost for cost in costs if (cost.times_slower or 0.0) > MAX_COST_RATIO]


def do_fixed_work() -> float:
    """The CPU seconds of a piece of work that does not depend on this project: Python, hashing and numpy."""
    begun = time.process_time()
    total, digest = 0, b""
    for number in range(400_000):
        total += number % 7
        digest = sha256(digest).digest()
    values = np.random.default_rng(0).random((400, 400))
    for _ in range(10):
        values = np.sort(values, axis=0)[::-1] / 2
    return time.process_time() - begun

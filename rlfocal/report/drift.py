"""The report's part about drift: whether the last extraction left models' answers as they were."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from rlfocal.base.errors import InputError
from rlfocal.base.tables import Table
from rlfocal.base.wording import counted
from rlfocal.upkeep.drift import Drift, before_last_extraction, drift_since, sentences
from rlfocal.upkeep.drift.wording import LISTED, table
from warehouse import Warehouse


@dataclass(frozen=True)
class DriftPart:
    """What the page shows of it."""

    said: tuple[str, ...]
    table: Table
    """The drifted partitions first, marked as ours."""
    more: str
    """How many rows are left out, in words; empty for none."""


def drift_part(warehouse: Warehouse) -> DriftPart | None:
    """None if the last extraction began the warehouse, or if the state before it is lost."""
    try:
        drift = drift_since(warehouse, before_last_extraction(warehouse))
    except (duckdb.IOException, duckdb.InvalidInputException, InputError):
        return None  # files that only earlier snapshots need may be gone: `rlfocal doctor` tells
    if not (drift.same or drift.rows or drift.gone):
        return None
    return _part(drift)


def _part(drift: Drift) -> DriftPart:
    left_out = len(drift.rows) - LISTED
    more = f"and {counted(left_out, 'partition')} more: rlfocal drift --json" if left_out > 0 else ""
    return DriftPart(tuple(sentences(drift)), table(drift), more)

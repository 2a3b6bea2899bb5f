"""What an extraction left in a warehouse: its rows and its commits."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from support.killing import KEYS
from warehouse import open_warehouse
from warehouse.snapshots import snapshots


def tables(location: Path | str) -> dict[str, pa.Table]:
    with open_warehouse(location, read_only=True) as warehouse:
        return {name: warehouse.query(f"SELECT * FROM {name} ORDER BY {key}") for name, key in KEYS.items()}


def commits(location: str) -> list[str]:
    """What was ever extracted into a warehouse."""
    with open_warehouse(location, read_only=True) as warehouse:
        said = [snapshot.message or "" for snapshot in snapshots(warehouse)]
    return [message for message in said if message.startswith("extract ")]

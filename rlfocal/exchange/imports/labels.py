"""Corrected labels of stored documents, from a file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.reading.tables import load_table
from rlfocal.exchange.imports.rows import KEYS
from warehouse import Warehouse
from warehouse.corrections import correct_labels
from warehouse.limits import memory_settings

LABELS = KEYS | {"label": "BIGINT", "gold": "VARCHAR"}


def read_labels(path: str | Path) -> pa.Table:
    """Rows of a Parquet, CSV or JSONL file, with a number each. Raises InputError if one is wrong."""
    with closing(duckdb.connect(config=memory_settings())) as scratch:
        load_table(scratch, "labels", Path(path), LABELS, tuple(KEYS))
        rows = scratch.execute("FROM labels ORDER BY row").to_arrow_table()
    for name in ("benchmark", "task"):  # the catalogue's own SQL ends at a NUL character
        for row, value in zip(rows["row"].to_pylist(), rows[name].to_pylist(), strict=True):
            if value is not None and "\0" in value:
                raise InputError(f"{path}, row {row}: {name} {value!r} holds a NUL character; take it out")
    if rows.num_rows == 0:
        raise InputError(f"{path} has no rows")
    return rows


def correct_from_file(warehouse: Warehouse, path: str | Path) -> int:
    """Corrects labels and gold answers as a file says; returns how many changed. All of them, or none."""
    return correct_labels(warehouse, read_labels(path), lambda row: f"{path}, row {row}")

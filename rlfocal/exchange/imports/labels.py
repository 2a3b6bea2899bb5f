"""Corrects the labels of stored documents, read from a file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.reading.tables import load_table
from rlfocal.exchange.imports.source import KEY_COLUMNS
from warehouse import Warehouse
from warehouse.corrections import correct_labels
from warehouse.limits import memory_settings

LABEL_COLUMNS = KEY_COLUMNS | {"source_id": "VARCHAR", "label": "BIGINT", "gold": "VARCHAR"}


def read_labels(path: str | Path) -> tuple[pa.Table, int]:
    """The filled-in rows of a Parquet, CSV or JSONL file, with row numbers, and the number of the other rows.

    A row is filled in if it has a label or a gold. Raises InputError if a row is wrong, or none is filled in.
    """
    with closing(duckdb.connect(config=memory_settings())) as scratch:
        load_table(scratch, "labels", Path(path), LABEL_COLUMNS, ("benchmark", "task"))
        rows = scratch.execute("FROM labels ORDER BY row").to_arrow_table()
    for name in ("benchmark", "task", "source_id"):  # the catalogue's own SQL ends at a NUL character
        for row, value in zip(rows["row"].to_pylist(), rows[name].to_pylist(), strict=True):
            if value is not None and "\0" in value:
                raise InputError(f"{path}, row {row}: {name} {value!r} holds a NUL character; take it out")
    if rows.num_rows == 0:
        raise InputError(f"{path} has no rows")
    filled = rows.filter(pc.or_(pc.is_valid(rows["label"]), pc.is_valid(rows["gold"])))
    if filled.num_rows == 0:
        raise InputError(f"{path}: no row has a label, or gold for answers; fill one in where it is wrong")
    return filled, rows.num_rows - filled.num_rows


def correct(warehouse: Warehouse, labels: pa.Table, path: str | Path) -> int:
    """Corrects labels and golds by the rows of a file, all or none. Returns the number of changed
    documents."""
    return correct_labels(warehouse, labels, lambda row: f"{path}, row {row}")

"""`import predictions`: logits or answers made elsewhere, into the warehouse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb

from rlfocal.errors import InputError
from rlfocal.imports.reading.files import load_table
from rlfocal.imports.rows import DOCS, SCORES, CheckedRows, ImportReport, Source, check_rows, count
from warehouse import Warehouse
from warehouse.memory import memory_settings


def import_predictions(
    warehouse: Warehouse, docs_path: str | Path, scores_path: str | Path, *, allow_missing: bool = False
) -> ImportReport:
    """Imports a DOCS and a SCORES file (Parquet, CSV or JSONL) in one transaction; repeating it is a no-op.

    An empty or blank answer is no answer. Raises InputError with file, row and reason, and writes nothing, if
    a row is wrong, a document is not the one stored under its number, or models cover different documents
    (unless `allow_missing`, which records the gap).
    """
    with read_predictions(docs_path, scores_path, allow_missing=allow_missing) as predictions:
        return predictions.write(warehouse)


@contextmanager
def read_predictions(
    docs_path: str | Path, scores_path: str | Path, *, allow_missing: bool = False
) -> Iterator[CheckedRows]:
    """Reads and checks the files, before any warehouse is created."""
    paths = {"docs": Path(docs_path), "scores": Path(scores_path)}
    with closing(duckdb.connect(config=memory_settings())) as scratch:
        load_table(scratch, "docs", paths["docs"], DOCS, ("benchmark", "task", "doc_id"))
        load_table(scratch, "scores", paths["scores"], SCORES, ("benchmark", "task", "doc_id", "model"))
        # An empty cell of a spreadsheet is no answer, whatever the format makes of it.
        scratch.execute("UPDATE scores SET answer = NULL WHERE regexp_full_match(answer, '[\\s\\p{Z}]*')")
        for table, path in paths.items():
            if not count(scratch, f"SELECT count(*) FROM {table}"):
                raise InputError(f"{path} has no rows")
        source = Source(
            kind="predictions",
            title=str(paths["scores"]),
            place=lambda table, row: f"{paths[table]}, row {row}",
            settings={table: path.name for table, path in paths.items()},
        )
        yield check_rows(scratch, source, allow_missing=allow_missing)

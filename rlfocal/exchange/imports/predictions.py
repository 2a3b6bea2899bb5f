"""`import predictions`: logits or answers made elsewhere, into the warehouse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.gathered import importer
from rlfocal.exchange.imports.reading.files import load_table
from rlfocal.exchange.imports.rows import (
    DOCS,
    LOGGED_DOCS,
    LOGGED_SCORES,
    SCORES,
    CheckedRows,
    Source,
    check_rows,
    count,
)
from warehouse.memory import memory_settings
from warehouse.writing import MODEL_COLUMNS

_TOKENS = ("is_greedy", "choice_tokens", "n_tokens", "n_prompt_tokens")


@contextmanager
def read_predictions(
    docs_path: str | Path,
    scores_path: str | Path,
    models_path: str | Path | None = None,
    *,
    allow_missing: bool = False,
) -> Iterator[CheckedRows]:
    """Reads and checks a DOCS and a SCORES file (Parquet, CSV or JSONL), before any warehouse is created.

    A MODELS file describes the models, prices included. An empty or blank answer is no answer. Raises
    InputError with file, row and reason if a row is wrong, or models cover different documents (unless
    `allow_missing`, which records the gap).
    """
    paths = {"docs": Path(docs_path), "scores": Path(scores_path)}
    with closing(duckdb.connect(config=memory_settings())) as scratch:
        load_table(scratch, "docs", paths["docs"], DOCS | LOGGED_DOCS, ("benchmark", "task", "doc_id"))
        columns = SCORES | {name: LOGGED_SCORES[name] for name in _TOKENS}
        load_table(scratch, "scores", paths["scores"], columns, ("benchmark", "task", "doc_id", "model"))
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
            models=None if models_path is None else _read_models(scratch, Path(models_path)),
        )
        yield check_rows(scratch, source, allow_missing=allow_missing)


import_predictions = importer(read_predictions)


def _read_models(scratch: duckdb.DuckDBPyConnection, path: Path) -> pa.Table:
    """Rows of `models`. Raises InputError for a row without a name, and for a model described twice."""
    load_table(scratch, "models", path, MODEL_COLUMNS, ("model",))
    wrong = scratch.execute(
        "SELECT max(row), model FROM models GROUP BY model HAVING model IS NULL OR count(*) > 1 ORDER BY 1"
    ).fetchone()
    if wrong is not None:
        reason = "no model" if wrong[1] is None else f"model {wrong[1]} is described twice"
        raise InputError(f"{path}, row {wrong[0]}: {reason}")
    return scratch.execute("SELECT * EXCLUDE row FROM models").to_arrow_table()

"""`import predictions`: logits or answers made elsewhere, into the warehouse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import duckdb
import pyarrow as pa

from rlfocal.base.errors import InputError
from rlfocal.base.request import Option
from rlfocal.exchange.imports.gathered import tracked
from rlfocal.exchange.imports.reading import load_table
from rlfocal.exchange.imports.rows import (
    DOCS,
    KEYS,
    SCORES,
    AllowMissing,
    Importer,
    OnProgress,
    Source,
    count,
)
from warehouse.writing import MODEL_COLUMNS


@Importer
def import_predictions(
    docs: Annotated[
        str | Path,
        Option("benchmark, task, doc_id, label [, question, choices, gold, split].", metavar="FILE"),
    ],
    scores: Annotated[
        str | Path,
        Option(
            "benchmark, task, doc_id, model, and choice_logprobs or answer [, pass, text].", metavar="FILE"
        ),
    ],
    models: Annotated[
        str | Path | None, Option("model [, family, price, price_input, price_output, ...].", metavar="FILE")
    ] = None,
    *,
    allow_missing: AllowMissing = False,
    on_progress: OnProgress = None,
) -> Source:
    """Import per-choice scores or answers (Parquet, CSV or JSONL). All or nothing.

    Without a split, the first 80 % of each task are train. Importing the same files again changes nothing.
    """
    paths = {"docs": Path(docs), "scores": Path(scores)}
    return _Files(
        "predictions",
        str(scores),
        allow_missing,
        settings={table: path.name for table, path in paths.items()},
        paths=paths,
        described_in=None if models is None else Path(models),
        on_progress=on_progress,
    )


@dataclass(kw_only=True)
class _Files(Source):
    """A file for each of the tables."""

    paths: dict[str, Path]
    described_in: Path | None
    """The file that describes the models."""
    on_progress: OnProgress

    def load(self, scratch: duckdb.DuckDBPyConnection) -> None:
        given = [("docs", DOCS, tuple(KEYS)), ("scores", SCORES, (*KEYS, "model"))]
        for table, columns, required in tracked(given, self.on_progress):
            load_table(scratch, table, self.paths[table], columns, required)
        # An empty cell of a spreadsheet is no answer, whatever the format makes of it.
        scratch.execute("UPDATE scores SET answer = NULL WHERE regexp_full_match(answer, '[\\s\\p{Z}]*')")
        for table, path in self.paths.items():
            if not count(scratch, f"SELECT count(*) FROM {table}"):
                raise InputError(f"{path} has no rows")
        if self.described_in is not None:
            self.models = _read_models(scratch, self.described_in)

    def place(self, row: int, table: str) -> str:
        return f"{self.paths[table]}, row {row}"


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

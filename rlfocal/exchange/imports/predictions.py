"""`import predictions`: logits or answers made elsewhere, into the warehouse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from sys import float_info
from typing import Literal

import duckdb
import pyarrow as pa

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.graded import tracked
from rlfocal.exchange.imports.reading import load_table
from rlfocal.exchange.imports.rows import (
    DOCS,
    KEYS,
    SCORES,
    Importer,
    OnProgress,
    Source,
    count,
)
from warehouse.answers import Rule
from warehouse.writing import MODEL_COLUMNS

Comparison = Literal["default", "exact", "numeric", "text"]
Scale = Literal["log", "probability"] | None
_LIST = r"""\s*\[\s*([''"]).*[''"]\s*,?\s*\]\s*"""
_LIKE_PROBABILITIES = """
SELECT
    min(row), benchmark, model,
    bool_and(abs(list_sum(choice_logprobs) - 1) <= 0.01 OR abs(list_sum(choice_logprobs) - 100) <= 1)
FROM scores WHERE len(choice_logprobs) > 0 GROUP BY benchmark, model
HAVING bool_and(list_min(choice_logprobs) >= 0) AND max(list_max(choice_logprobs)) > 0
    AND (bool_and(list_max(choice_logprobs) <= 1) OR bool_and(abs(list_sum(choice_logprobs) - 100) <= 1))
ORDER BY 4 DESC, 1 LIMIT 1
"""


@Importer
def import_predictions(
    docs: str | Path,
    scores: str | Path,
    models: str | Path | None = None,
    *,
    comparison: Comparison = "default",
    scale: Scale = None,
    allow_missing: bool = False,
    on_progress: OnProgress = None,
) -> Source:
    """Import per-choice scores or answers (Parquet, CSV or JSONL, packed or not). All or nothing.

    `rlfocal import predictions --help` lists the columns of `docs`, `scores` and `models`.
    Without a split, the first 80 % of each task are train. Importing the same files again changes nothing.
    """
    paths = {"docs": Path(docs), "scores": Path(scores)}
    return _Files(
        "predictions",
        str(scores),
        allow_missing,
        settings={table: path.name for table, path in paths.items()},
        rule=Rule(comparison),
        paths=paths,
        scale=scale,
        described_in=None if models is None else Path(models),
        on_progress=on_progress,
    )


@dataclass(kw_only=True)
class _Files(Source):
    """A file for each of the tables."""

    paths: dict[str, Path]
    scale: Scale
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
        if self.rule is Rule.DEFAULT:
            self._check_gold_lists(scratch)
        self._scale_scores(scratch)
        if self.described_in is not None:
            self.models = _read_models(scratch, self.described_in)

    def place(self, row: int, table: str) -> str:
        return f"{self.paths[table]}, row {row}"

    def _check_gold_lists(self, scratch: duckdb.DuckDBPyConnection) -> None:
        """Raises InputError for the print of a list of texts, which no answer equals."""
        listed = scratch.execute(
            rf"""SELECT row, gold FROM docs WHERE label IS NULL AND regexp_full_match(gold, '{_LIST}')
            ORDER BY row LIMIT 1"""
        ).fetchone()
        if listed is not None:
            raise InputError(
                f"{self.place(listed[0], 'docs')}: gold {listed[1]!r} is a list of texts; give one text a "
                "row, or compare answers as they stand with --comparison exact"
            )

    def _scale_scores(self, scratch: duckdb.DuckDBPyConnection) -> None:
        """Makes probabilities log-probs. Raises InputError for scores that add up as probabilities do and are
        not said to be any; what lies between 0 and 1 and does not add up is taken, with a note."""
        if self.scale == "probability":
            wrong = scratch.execute(
                "SELECT row, choice_logprobs FROM scores WHERE list_min(choice_logprobs) < 0 "
                "OR list_max(choice_logprobs) > 1 ORDER BY row LIMIT 1"
            ).fetchone()
            if wrong is not None:
                where = self.place(wrong[0], "scores")
                raise InputError(f"{where}: {wrong[1]} are not all probabilities, from 0 to 1")
            logs = f"list_transform(choice_logprobs, lambda p: ln(greatest(p, {float_info.min})))"
            scratch.execute(f"UPDATE scores SET choice_logprobs = {logs}")
        elif self.scale is None:
            likely = scratch.execute(_LIKE_PROBABILITIES).fetchone()
            if likely is None:
                return
            row, benchmark, model, add_up = likely
            about = f"all scores of {model} on {benchmark}"
            if not add_up:
                self.notes.append(
                    f"{about} lie between 0 and 1; taken as log-probs: --scale probability says otherwise"
                )
                return
            raise InputError(
                f"{self.place(row, 'scores')}: {about} add up to 1, or 100, as probabilities do; say what "
                "they are: --scale probability takes the logarithms of probabilities from 0 to 1, and "
                "--scale log takes scores as they are"
            )


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

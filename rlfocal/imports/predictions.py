"""`import predictions`: logits or answers made elsewhere, into the warehouse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import rlfocal
from rlfocal.errors import InputError
from rlfocal.extraction.answers import normalise
from rlfocal.imports.files import load_table
from warehouse import Warehouse, writing
from warehouse.scripts import script

_KEYS = {"benchmark": "VARCHAR", "task": "VARCHAR", "doc_id": "BIGINT"}
_DOCS = _KEYS | {
    "label": "BIGINT",
    "question": "VARCHAR",
    "choices": "VARCHAR[]",
    "gold": "VARCHAR",
    "split": "VARCHAR",
}
_SCORES = _KEYS | {"model": "VARCHAR", "choice_logprobs": "DOUBLE[]", "answer": "VARCHAR", "pass": "BIGINT"}


@dataclass(frozen=True)
class ImportReport:
    """What an import took, left and wrote. A partition is one model on one task."""

    benchmarks: tuple[str, ...]
    models: tuple[str, ...]
    n_docs: int
    n_scores: int
    n_written: int
    """Partitions written."""
    n_unchanged: int
    """Partitions that the warehouse already held as they are."""
    n_unscored: int
    """Described documents that no model scored: left out."""
    missing: tuple[tuple[str, str, int], ...]
    """(benchmark, model, documents it has no row for), admitted by allow_missing."""

    def __str__(self) -> str:
        taken = (
            f"{self.n_scores:,} scores of {len(self.models)} models on {self.n_docs:,} documents "
            f"({', '.join(self.benchmarks)})"
        )
        written = f"{self.n_written:,} partitions written, {self.n_unchanged:,} already there"
        lines = [f"{taken}: {written if self.n_written else 'nothing new, nothing written'}"]
        if self.n_unscored:
            lines.append(f"left out: {self.n_unscored:,} documents that no model scored")
        lines += [f"gap: {model} lacks {n:,} documents of {name}" for name, model, n in self.missing]
        return "\n".join(lines)


@dataclass(frozen=True)
class Predictions:
    """Checked rows, ready to be written."""

    scratch: duckdb.DuckDBPyConnection
    files: dict[str, str]
    allow_missing: bool

    def write(self, warehouse: Warehouse) -> ImportReport:
        """Commits the partitions that the warehouse lacks, in one transaction."""
        new = _new_partitions(self.scratch, warehouse)
        if new:
            _write(self.scratch, warehouse, new, self.files, allow_missing=self.allow_missing)
        return _report(self.scratch, len(new))


def import_predictions(
    warehouse: Warehouse, docs_path: str | Path, scores_path: str | Path, *, allow_missing: bool = False
) -> ImportReport:
    """Imports a DOCS and a SCORES file (Parquet, CSV or JSONL) in one transaction; done again, a no-op.

    Raises InputError with file, row and reason, and writes nothing, where a row is wrong, a document is not
    the one stored under its number, or models cover different documents (unless `allow_missing`, which
    records the gap).
    """
    with read_predictions(docs_path, scores_path, allow_missing=allow_missing) as predictions:
        return predictions.write(warehouse)


@contextmanager
def read_predictions(
    docs_path: str | Path, scores_path: str | Path, *, allow_missing: bool = False
) -> Iterator[Predictions]:
    """Reads and checks the files alone, so that no warehouse need exist before they are known to be right."""
    docs_path, scores_path = Path(docs_path), Path(scores_path)
    with closing(duckdb.connect()) as scratch:
        load_table(scratch, "docs", docs_path, _DOCS, ("benchmark", "task", "doc_id"))
        load_table(scratch, "scores", scores_path, _SCORES, ("benchmark", "task", "doc_id", "model"))
        _check(scratch, {"docs": docs_path, "scores": scores_path})
        _canonical_answers(scratch)
        scratch.execute(script("imports/prepare"))
        if not allow_missing:
            _check_coverage(scratch, docs_path, scores_path)
        yield Predictions(scratch, {"docs": docs_path.name, "scores": scores_path.name}, allow_missing)


def _check(scratch: duckdb.DuckDBPyConnection, paths: dict[str, Path]) -> None:
    for table, path in paths.items():
        if not _count(scratch, f"SELECT count(*) FROM {table}"):
            raise InputError(f"{path} has no rows")
    fault = scratch.execute(script("imports/faults")).fetchone()
    if fault is not None:
        raise InputError(f"{paths[fault[0]]}, row {fault[1]}: {fault[2]}")


def _canonical_answers(scratch: duckdb.DuckDBPyConnection) -> None:
    given = [
        a
        for (a,) in scratch.execute("SELECT DISTINCT answer FROM scores WHERE answer IS NOT NULL").fetchall()
    ]
    canonical = pa.table(
        {
            "answer": pa.array(given, pa.string()),
            "canonical": pa.array([normalise(a) for a in given], pa.string()),
        }
    )
    scratch.register("normalised", canonical)
    scratch.execute("CREATE TEMP TABLE canonical AS FROM normalised")


def _check_coverage(scratch: duckdb.DuckDBPyConnection, docs_path: Path, scores_path: Path) -> None:
    gap = scratch.execute(
        "SELECT model, benchmark, count(*), min_by({task: task, doc_id: doc_id, row: row}, row) FROM gaps "
        "GROUP BY ALL ORDER BY ALL LIMIT 1"
    ).fetchone()
    if gap is not None:
        model, benchmark, n, first = gap
        document = f"document {first['doc_id']} of {benchmark}/{first['task']}"
        raise InputError(
            f"{scores_path}: model {model} has no row for {document} ({docs_path}, row {first['row']}), "
            f"which others have; {n} such documents in all. "
            "Add them, or record the gap with --allow-missing"
        )


def _new_partitions(scratch: duckdb.DuckDBPyConnection, warehouse: Warehouse) -> list[dict[str, Any]]:
    known = warehouse.fingerprints()
    partitions = scratch.execute("FROM partitions ORDER BY ALL").to_arrow_table().to_pylist()
    return [p for p in partitions if known.get((p["model"], p["benchmark"], p["task"])) != p["fingerprint"]]


def _write(
    scratch: duckdb.DuckDBPyConnection,
    warehouse: Warehouse,
    new: list[dict[str, Any]],
    files: dict[str, str],
    *,
    allow_missing: bool,
) -> None:
    scratch.register("new", pa.Table.from_pylist(new))
    scratch.execute("CREATE TEMP TABLE wanted AS SELECT benchmark, task, model FROM new")
    docs = scratch.execute(
        "SELECT * EXCLUDE row FROM documents SEMI JOIN wanted USING (benchmark, task) "
        "ORDER BY benchmark, task, doc_id"
    ).to_arrow_table()
    answers = {
        b for (b,) in scratch.execute("SELECT DISTINCT benchmark FROM docs WHERE label IS NULL").fetchall()
    }
    message = f"import predictions of {len({p['model'] for p in new})} models"
    with warehouse.transaction(message):
        writing.put_docs(warehouse.connection, docs)
        writing.name_models(warehouse.connection, {p["model"] for p in new})
        for name in ("choice_rows", "answer_rows"):
            chosen = [p for p in new if (p["benchmark"] in answers) == (name == "answer_rows")]
            if chosen:
                rows = scratch.execute(script(f"imports/{name}")).to_arrow_table()
                writing.put_partitions(warehouse.connection, rows, [_record(p, files) for p in chosen])
        if not allow_missing:
            _check_stored(warehouse, new)


def _record(partition: dict[str, Any], files: dict[str, str]) -> dict[str, Any]:
    return {
        "model": partition["model"],
        "benchmark": partition["benchmark"],
        "task": partition["task"],
        "fingerprint": partition["fingerprint"],
        "backend": "import",
        "settings": {"source": "predictions", "missing": partition["missing"], **files},
        "versions": {"rlfocal": rlfocal.__version__},
        "n_docs": partition["n_docs"],
    }


def _check_stored(warehouse: Warehouse, new: list[dict[str, Any]]) -> None:
    """Raises InputError where a task has become longer than what a stored model answered of it."""
    warehouse.connection.register("imported", pa.Table.from_pylist(new))
    uneven = warehouse.connection.execute(script("imports/uneven_partition")).fetchone()
    warehouse.connection.unregister("imported")
    if uneven is not None:
        raise InputError(
            "{0}/{1} has {4} documents now, but model {2} in the warehouse covers {3} of them. Import the "
            "same documents for every model, or record the gap with --allow-missing".format(*uneven)
        )


def _report(scratch: duckdb.DuckDBPyConnection, n_written: int) -> ImportReport:
    missing = scratch.execute(
        "SELECT benchmark, model, count(*) FROM gaps GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    return ImportReport(
        benchmarks=_names(scratch, "benchmark"),
        models=_names(scratch, "model"),
        n_docs=_count(scratch, "SELECT count(*) FROM documents"),
        n_scores=_count(scratch, "SELECT count(*) FROM scores"),
        n_written=n_written,
        n_unchanged=_count(scratch, "SELECT count(*) FROM partitions") - n_written,
        n_unscored=_count(scratch, "SELECT (SELECT count(*) FROM docs) - (SELECT count(*) FROM documents)"),
        missing=tuple((benchmark, model, n) for benchmark, model, n in missing),
    )


def _names(scratch: duckdb.DuckDBPyConnection, column: str) -> tuple[str, ...]:
    return tuple(n for (n,) in scratch.execute(f"SELECT DISTINCT {column} FROM scores ORDER BY 1").fetchall())


def _count(scratch: duckdb.DuckDBPyConnection, sql: str) -> int:
    row = scratch.execute(sql).fetchone()
    return int(row[0]) if row else 0

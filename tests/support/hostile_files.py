"""Damaged files of every kind, and what an import of them has to do."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import reject
from hypothesis import strategies as st

from rlfocal.exchange.imports.predictions import import_predictions
from support.fuzzing import changed, ends_well, spliced
from support.prediction_files import choice_docs, choice_scores
from warehouse import Warehouse, open_warehouse
from warehouse.corrections import remove_model

JSON_PIECES = [
    '"',
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\\ud800",
    "\\u0000",
    "1e999",
    "NaN",
    "9" * 5000,
    "null",
    "\n",
]


CSV_PIECES = ['"', '""', ",", "\n", "\r", ";", "\0", "nan", "1e400", "[", "]", "\t", "é", "\ufeff"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """A warehouse that holds something, for all examples: what one of them broke, a later one would show."""
    folder = tmp_path_factory.mktemp("stored")
    docs = write(folder / "docs.jsonl", [row | {"benchmark": "stored"} for row in choice_docs()])
    scores = write(folder / "scores.jsonl", [row | {"benchmark": "stored"} for row in choice_scores()])
    with open_warehouse(folder / "warehouse") as warehouse:
        import_predictions(warehouse, docs, scores)
        yield warehouse


def dumped(value: Any) -> str:
    """Rows as JSONL."""
    return "".join(json.dumps(row) + "\n" for row in (value if isinstance(value, list) else [value]))


def write(path: Path, rows: Any) -> Path:
    return write_bytes(path, dumped(rows).encode())


def write_bytes(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def lines(rows: list[dict[str, Any]]) -> st.SearchStrategy[bytes]:
    """JSONL of rows with faults, of their values or of their text."""
    text = st.one_of(changed(rows).map(dumped), spliced(dumped(rows), JSON_PIECES))
    return text.map(lambda t: t.encode("utf-8", "surrogatepass"))


def parquet(rows: list[dict[str, Any]]) -> st.SearchStrategy[bytes]:
    def packed(value: Any) -> bytes:
        sink = io.BytesIO()
        try:
            pyarrow.parquet.write_table(pa.Table.from_pylist(value), sink)
        # Not every value fits into one table, and then there is no such file.
        except Exception:
            reject()
        return sink.getvalue()

    return changed(rows).map(packed)


def csv(rows: list[dict[str, Any]]) -> st.SearchStrategy[bytes]:
    cells = [[json.dumps(v) if isinstance(v, list) else str(v) for v in row.values()] for row in rows]
    quoted = [",".join('"' + c.replace('"', '""') + '"' for c in row) for row in [list(rows[0]), *cells]]
    text = spliced("\n".join(quoted) + "\n", CSV_PIECES)
    return text.map(lambda t: t.encode("utf-8", "surrogatepass"))


def refused_or_taken(warehouse: Warehouse, bring: Any) -> None:
    """What was taken is removed again; what was refused has changed nothing."""
    before, held = warehouse.snapshot(), warehouse.fingerprints()
    taken = False
    with ends_well():
        bring()
        taken = True
    if not taken:
        assert warehouse.snapshot() == before
        return
    for model in {model for model, *_ in warehouse.fingerprints()} - {model for model, *_ in held}:
        remove_model(warehouse, model)

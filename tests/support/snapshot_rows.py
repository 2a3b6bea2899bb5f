"""Shared by tests: snapshot rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from support.rows import answer_rows, choice_rows, docs, extraction
from warehouse import Warehouse

OTHER = {"benchmark": "answers"}


def put(warehouse: Warehouse, scores: list[list[float]], model: str = "m", **settings: Any) -> int:
    record = extraction(model, n_docs=len(scores)) | settings
    warehouse.put_partition(docs(len(scores)), choice_rows(scores, model), record)
    return warehouse.snapshot()


def put_answers(warehouse: Warehouse, passes: list[list[str | None]], texts: list[str]) -> int:
    given = docs(len(passes)).drop_columns(["choices", "label"])
    rows = answer_rows(passes)
    for name, value in OTHER.items():
        given = given.set_column(given.column_names.index(name), name, pa.array([value] * len(given)))
        rows = rows.set_column(rows.column_names.index(name), name, pa.array([value] * len(rows)))
    warehouse.put_partition(
        given, rows.append_column("text", pa.array(texts)), extraction(n_docs=len(passes)) | OTHER
    )
    return warehouse.snapshot()

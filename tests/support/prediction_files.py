"""Rows for `import predictions`, and files of rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

Row = dict[str, Any]
Rows = list[Row]


def choice_docs(n: int = 5, task: str = "t", **more: Any) -> Rows:
    return [
        {
            "benchmark": "b",
            "task": task,
            "doc_id": i,
            "label": i % 3,
            "choices": ["no", "yes, really", "ça"],
            "question": f'line one\nof question {i}, "quoted"',
            **more,
        }
        for i in range(n)
    ]


def choice_scores(n: int = 5, task: str = "t", models: tuple[str, ...] = ("x", "y")) -> Rows:
    return [
        {
            "benchmark": "b",
            "task": task,
            "doc_id": i,
            "model": m,
            "choice_logprobs": [-1.5, -float(i % 2), -0.25],
        }
        for m in models
        for i in range(n)
    ]


def dumped(value: Any) -> str:
    """Rows as JSONL."""
    return "".join(json.dumps(row) + "\n" for row in (value if isinstance(value, list) else [value]))


def write(path: Path, rows: Rows) -> Path:
    """A file of the kind that its name ends in; lists are JSON in CSV."""
    if path.suffix == ".jsonl":
        return write_bytes(path, dumped(rows).encode())
    names = dict.fromkeys(name for row in rows for name in row)
    rows = [{name: row.get(name) for name in names} for row in rows]
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        flat = [{k: json.dumps(v) if isinstance(v, list) else v for k, v in row.items()} for row in rows]
        pyarrow.csv.write_csv(pa.Table.from_pylist(flat), path)
    return path


def write_bytes(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path

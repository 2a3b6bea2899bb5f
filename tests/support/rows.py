"""Rows of a warehouse, and functions that put them there."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from warehouse import Warehouse


def docs(n: int, labels: list[int] | None = None, n_train: int | None = None) -> pa.Table:
    train = n * 8 // 10 if n_train is None else n_train
    return pa.table(
        {
            "benchmark": ["b"] * n,
            "task": ["t"] * n,
            "doc_id": list(range(n)),
            "doc_hash": [f"hash{i}" for i in range(n)],
            "question": [f"question {i}" for i in range(n)],
            "choices": [["yes", "no", "maybe"]] * n,
            "label": labels or [0] * n,
            "gold": ["yes"] * n,
            "split": ["train" if i < train else "test" for i in range(n)],
        }
    )


def choice_rows(logprobs: list[list[float]], model: str = "m") -> pa.Table:
    flat = [(i, c, x) for i, scores in enumerate(logprobs) for c, x in enumerate(scores)]
    i, c, x = zip(*flat, strict=True)
    same = {"benchmark": ["b"] * len(flat), "task": ["t"] * len(flat), "model": [model] * len(flat)}
    return pa.table({**same, "doc_id": i, "choice": c, "logprob": x})


def answer_rows(passes: list[list[str | None]], model: str = "m") -> pa.Table:
    flat = [(i, p, a) for i, given in enumerate(passes) for p, a in enumerate(given)]
    i, p, a = zip(*flat, strict=True)
    same = {"benchmark": ["b"] * len(flat), "task": ["t"] * len(flat), "model": [model] * len(flat)}
    return pa.table({**same, "doc_id": i, "pass": p, "answer": pa.array(a, pa.string())})


def extraction(model: str = "m", fingerprint: str = "f", n_docs: int = 2) -> dict[str, Any]:
    return {
        "model": model,
        "benchmark": "b",
        "task": "t",
        "fingerprint": fingerprint,
        "backend": "hf",
        "settings": {"dtype": "float32"},
        "versions": {"torch": "2"},
        "n_docs": n_docs,
        "seconds": 1.5,
    }


SCORES = [[-1.0, -2.0, -3.0], [-3.0, -1.0, -2.0]]
THREE = [*SCORES, [-2.0, -3.0, -1.0]]
OTHER = {"benchmark": "answers"}


def put(warehouse: Warehouse, scores: list[list[float]], model: str = "m", **settings: Any) -> int:
    record = extraction(model, n_docs=len(scores)) | settings
    warehouse.put_partition(docs(len(scores)), choice_rows(scores, model), record)
    return warehouse.snapshot()


def put_shifted(warehouse: Warehouse, model: str, shift: float = 0.0, n: int = 40) -> int:
    """Puts `SCORES` of n documents, each choice's moved by `shift` times its number; returns the snapshot."""
    scores = [[s + shift * c for c, s in enumerate(row)] for row in SCORES * (n // 2)]
    return put(warehouse, scores, model, fingerprint=f"{shift}")


def set_all(table: pa.Table, **values: Any) -> pa.Table:
    """The table with one value in all rows of these columns, which it may lack."""
    for name, value in values.items():
        if name in table.column_names:
            table = table.drop_columns([name])
        table = table.append_column(name, pa.array([value] * len(table)))
    return table


def put_answers(warehouse: Warehouse, passes: list[list[str | None]], texts: list[str]) -> int:
    given = set_all(docs(len(passes)).drop_columns(["choices", "label"]), **OTHER)
    rows = set_all(answer_rows(passes), **OTHER).append_column("text", pa.array(texts))
    warehouse.put_partition(given, rows, extraction(n_docs=len(passes)) | OTHER)
    return warehouse.snapshot()


def put_extractions(warehouse: Warehouse) -> None:
    """A record of every partition that has answers, as an extraction keeps it."""
    with warehouse.transaction("fill"):
        warehouse.connection.execute(
            "INSERT INTO extractions BY NAME SELECT 'made' AS extraction_id, model, benchmark, task, "
            "count(DISTINCT doc_id) AS n_docs FROM choice_logprobs GROUP BY ALL"
        )


def put_choices(
    warehouse: Warehouse, rights: dict[str, list[bool]], label: int = 0, benchmark: str = "b"
) -> None:
    """One task of two choices, all with one label; every second document is train."""
    n = len(next(iter(rights.values())))
    keys = {"benchmark": [benchmark] * n, "task": ["t"] * n, "doc_id": list(range(n))}
    splits = {"label": pa.array([label] * n, pa.int32()), "split": ["train", "test"] * (n // 2)}
    with warehouse.transaction("fill"):
        warehouse.append("docs", pa.table(keys | splits))
        warehouse.append("models", pa.table({"model": list(rights)}))
        for model, right in rights.items():
            for choice in (0, 1):
                scores = [0.0 if (choice == 0) == r else -1.0 for r in right]
                row = {"model": [model] * n, "choice": [choice] * n, "logprob": scores}
                warehouse.append("choice_logprobs", pa.table(keys | row))


def rename(warehouse: Warehouse, old: str, new: str) -> None:
    """Renames a model as earlier versions did: what it answered, past runs, and a row that tells."""
    renamed = f"list_sort(list_transform({{}}, lambda m: CASE WHEN m = '{old}' THEN '{new}' ELSE m END))"
    with warehouse.transaction(f"rename {old} to {new}"):
        for table in ("models", "choice_logprobs", "answer_passes", "extractions"):
            warehouse.connection.execute(f"UPDATE {table} SET model = '{new}' WHERE model = '{old}'")
        warehouse.connection.execute(
            f"UPDATE evaluations SET models = {renamed.format('models')}, "
            f"method = CASE WHEN method = 'single:{old}' THEN 'single:{new}' ELSE method END"
        )
        warehouse.connection.execute(f"UPDATE decisions SET pool = {renamed.format('pool')}")
        warehouse.connection.execute("INSERT INTO renames VALUES (?, ?, now())", [old, new])

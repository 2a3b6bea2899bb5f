"""Shared by tests: stored choices."""

from __future__ import annotations

import pyarrow as pa

from warehouse import Warehouse


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

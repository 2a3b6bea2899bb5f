"""Shared by tests: rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


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

"""Rows for `import predictions`."""

from __future__ import annotations

from typing import Any

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

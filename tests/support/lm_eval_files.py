"""Sample rows as lm-eval logs them."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


DATE = "2026-01-02T03-04-05.678901"


def choice_row(number: int, **more: Any) -> Row:
    choices = more.pop("choices", ["no", "yes, really", "ça"])
    preamble = more.pop("preamble", "A preamble.")
    logprobs = more.pop("logprobs", [-1.5, -float(number % 2), -0.25])
    return {
        "doc_id": number,
        "doc": {"question": f"question {number}"},
        "target": str(number % 3),
        "arguments": {
            f"gen_args_{i}": {"arg_0": f"{preamble}\n\nquestion {number}", "arg_1": f" {choice}"}
            for i, choice in enumerate(choices)
        },
        "resps": [[[str(x), str(x == max(logprobs))]] for x in logprobs],
        "filter": "none",
        "doc_hash": f"hash {number}",
        **more,
    }


def answer_row(doc_id: int, *texts: str, target: str = "so\n#### 1,234", **more: Any) -> Row:
    return {
        "doc_id": doc_id,
        "doc": {"question": f"question {doc_id}"},
        "target": target,
        "arguments": {"gen_args_0": {"arg_0": f"question {doc_id}", "arg_1": {"until": ["\n"]}}},
        "resps": [list(texts)],
        "filter": "strict",
        "doc_hash": f"hash {doc_id}",
        "exact_match": 0.0,
        **more,
    }

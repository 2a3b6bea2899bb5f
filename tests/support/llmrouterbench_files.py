"""Files in the format of LLMRouterBench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]


TIME = "20251203_101112"
QUESTIONS = ["2 + 2?", "3 * 6?", "A prime above 7?", "The capital of France?", "1 / 0?"]
GOLDS = ["4", "18", "11", "Paris", "undefined"]


def record(i: int, prediction: Any, score: float | None, **more: Any) -> Row:
    return {
        "index": i + 1,
        "origin_query": QUESTIONS[i],
        "prompt": f"Question: {QUESTIONS[i]}\nAnswer:",
        "prompt_tokens": 10 + i,
        "completion_tokens": 5 * i,
        "cost": 0.001 * i,
        "score": score,
        "prediction": prediction,
        "ground_truth": GOLDS[i],
        "raw_output": f"I say {prediction}.",
        "extra_fields": {},
        **more,
    }


def result(records: list[Row], **more: Any) -> Row:
    scores = [r["score"] for r in records if isinstance(r["score"], int | float)]
    return {
        "performance": sum(scores) / max(1, len(scores)),
        "time_taken": 1.5,
        "counts": len(records),
        "records": records,
        **more,
    }


def write(folder: Path, model: str, content: Any, place: str = "aime/hybrid", time: str = TIME) -> Path:
    dataset, split = place.split("/")
    path = folder / "results" / "bench" / place / model / f"{dataset}-{split}-{model}-{time}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return path


MIXED = [
    record(0, "four", 1.0),  # a judge knows that it is 4
    record(1, "18.0", 1.0),
    record(2, "12", 0.0),
    record(3, "paris", 0.0),  # it says Paris, and the judge says no
    record(4, "", 0.0, raw_output=""),
]

"""Files in the format of Every Eval Ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def line(sample_id: str, said: str, right: bool, **more: Any) -> Row:
    return {
        "schema_version": "0.3.0",
        "evaluation_id": "gsm8k/org/m/1770000000",
        "model_id": "org/m",
        "evaluation_name": "gsm8k/strict-match",
        "sample_id": sample_id,
        "interaction_type": "single_turn",
        "input": {"raw": f"Question {sample_id}?", "reference": ["18"]},
        "output": {"raw": [f"So it is {said}."]},
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": said,
                "extraction_method": "regex",
                "is_terminal": True,
            }
        ],
        "evaluation": {"score": float(right), "is_correct": right},
        "token_usage": {"input_tokens": 90, "output_tokens": 7, "total_tokens": 97},
    } | more


def write(path: Path, lines: list[Row]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    return path


FOREIGN = [line("q10", "18", True), line("q9", "eighteen", True), line("q8", "17", False)]

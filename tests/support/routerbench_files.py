"""Tables in the format of RouterBench."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

Row = dict[str, Any]


MODELS = ("gpt-4", "WizardLM/WizardLM-13B-V1.2")


def row(sample_id: str, scores: tuple[Any, Any], responses: tuple[str, str], **more: Any) -> Row:
    found: Row = {
        "sample_id": sample_id,
        "prompt": f"['Answer with a letter.', \"It's {sample_id}?\"]",
        "eval_name": sample_id.split(".")[0],
    }
    for model, score, response in zip(MODELS, scores, responses, strict=True):
        found |= {model: score, f"{model}|model_response": f"[{response!r}]", f"{model}|total_cost": 0.25}
    return found | {"oracle_model_to_route_to": MODELS[0]} | more


ROWS = [
    row("mmlu-law.val.10", (1.0, 0.0), ("B", "A) because")),
    row("mmlu-law.val.9", (1.0, 1.0), ("C.", "So the answer is (C).")),
    row("mmlu-law.val.8", (0.0, 0.0), ("A", "D")),
    row("grade-school-math.dev.0", (1.0, 0.0), ("3 * 6 = 18.", "It is 17")),
    row("grade-school-math.dev.1", (1.0, 0.0), ("so $1,234 it is", "1234")),
    row("mbpp.dev.0", (1.0, 1.0), ("return 1", "return 0 + 1")),
    row("mbpp.dev.1", (0.0, 0.0), ("", "pass")),
]


def write(path: Path, rows: list[Row]) -> Path:
    names = list(dict.fromkeys(name for given in rows for name in given))
    if path.suffix == ".parquet":
        table = pa.Table.from_pylist([{name: given.get(name) for name in names} for given in rows])
        pyarrow.parquet.write_table(table, path)
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
    return path

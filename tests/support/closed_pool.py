"""A pool of models that one chat service runs, and tasks of questions whose right letter is A."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml


def write_closed_pool(
    folder: Path,
    questions: Mapping[str, Sequence[str]],
    models: Sequence[Mapping[str, Any]],
    *,
    kind: str = "choices",
    **benchmark: Any,
) -> Path:
    """A pool's file; `questions` by task, `models` as entries, and `benchmark` is said of the benchmark."""
    is_choice = kind == "choices"
    for task, some in questions.items():
        file = folder / f"{task}.jsonl"
        rows = ({"question": question, "label": 0, "gold": "A"} for question in some)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        config = {
            "task": f"asked_{task}",
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(file)}},
            "test_split": "test",
            "output_type": "multiple_choice" if is_choice else "generate_until",
            "doc_to_text": "{{question}}",
            "doc_to_target": "{{label}}" if is_choice else "{{gold}}",
            "metadata": {"version": 1.0},
        }
        config |= {"doc_to_choice": list("ABC")} if is_choice else {"generation_kwargs": {"until": ["\n"]}}
        (folder / f"asked_{task}.yaml").write_text(yaml.safe_dump(config))
    named = {task: f"asked_{task}" for task in questions}
    asked = {"name": "letters", "kind": kind, "tasks": named, "include_path": str(folder)}
    asked |= {"chat_template": True} | benchmark
    path = folder / "pool.yaml"
    path.write_text(yaml.safe_dump({"name": "closed", "benchmarks": [asked], "models": list(models)}))
    return path

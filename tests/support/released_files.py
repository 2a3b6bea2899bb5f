"""Files as the paper's authors released them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np


def write_letters(folder: Path, model: str, task: str, scores: list[list[float]], labels: str) -> Path:
    (folder / model).mkdir(parents=True, exist_ok=True)
    path = folder / model / f"{task}.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["", "prediction", "label"])
        writer.writerows(
            [i, str(row), label] for i, (row, label) in enumerate(zip(scores, labels, strict=True))
        )
    return path


def write_runs(folder: Path, model: str, split: str, answers: Any, number: int | None = None) -> Path:
    target = folder / model / split
    target.mkdir(parents=True, exist_ok=True)
    path = target / f"run_{len(answers) if number is None else number}_predictions.npy"
    np.save(path, np.asarray(answers, float))
    return path


def write_questions(folder: Path, split: str, golds: list[str]) -> None:
    rows = [{"question": f"{split} {i}?", "answer": f"so\n#### {gold}"} for i, gold in enumerate(golds)]
    (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

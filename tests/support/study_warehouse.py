"""A small benchmark for studies."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from warehouse import Warehouse, open_warehouse

SKILL = {"a": 0.75, "b": 0.65, "c": 0.55, "d": 0.4}


@pytest.fixture(scope="session")
def study_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four models on two tasks of 100 documents with three choices, 80 of them train; to copy."""
    folder = tmp_path_factory.mktemp("studies") / "warehouse"
    rng = np.random.default_rng(0)
    with open_warehouse(folder) as opened, opened.transaction("fill"):
        opened.append("models", pa.table({"model": list(SKILL), "price": [1.0, 2.0, 3.0, 4.0]}))
        for task in ("s", "t"):
            n = 100
            keys = {"benchmark": ["b"] * n, "task": [task] * n, "doc_id": list(range(n))}
            labels = rng.integers(0, 3, n)
            split = ["train"] * 80 + ["test"] * 20
            opened.append("docs", pa.table(keys | {"label": pa.array(labels, pa.int32()), "split": split}))
            for model, skill in SKILL.items():
                right = rng.random(n) < skill
                given = np.where(right, labels, (labels + rng.integers(1, 3, n)) % 3)
                for choice in range(3):
                    scores = np.where(given == choice, 1.0, rng.random(n) * 0.5)
                    row = {"model": [model] * n, "choice": [choice] * n, "logprob": scores}
                    opened.append("choice_logprobs", pa.table(keys | row))
    return folder


@pytest.fixture
def studied(study_template: Path, tmp_path: Path) -> Iterator[Warehouse]:
    shutil.copytree(study_template, tmp_path / "own")
    with open_warehouse(tmp_path / "own") as warehouse:
        yield warehouse

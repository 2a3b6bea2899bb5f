"""Names from files become table values and parts of file names: none may leave a directory."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rlfocal.base.errors import InputError
from rlfocal.pool import load_entry, load_pool

HOSTILE = [
    "../x",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "..",
    ".hidden",
    "-option",
    "~root",
    "nul\0byte",
    "line\nbreak",
    "trailing\n",
    "x" * 97,
    "x" * 100_000,
    "ünïcode",
    "ｆｕｌｌ",
    "a\u202eb",
    "a b",
    "$HOME",
    "",
]


def entry(name: str) -> dict[str, object]:
    return {"model": name, "hf_repo": "rlfocal-lab/lab-phi", "params_b": 0.001}


def benchmark(name: str, task: str) -> dict[str, object]:
    tasks = {task: "lab_gpqa"}
    return {"name": name, "kind": "choices", "tasks": tasks, "include_path": "package:lab/tasks"}


def write(path: Path, value: object) -> Path:
    path.write_text(yaml.safe_dump(value), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", HOSTILE)
def test_pools_and_entries_refuse_them(name: str, tmp_path: Path) -> None:
    harmless = {"name": "p", "benchmarks": [benchmark("b", "t")], "models": [entry("m")]}
    for changed in (
        {"name": name},
        {"models": [entry(name)]},
        {"benchmarks": [benchmark(name, "t")]},
        {"benchmarks": [benchmark("b", name)]},
    ):
        with pytest.raises(InputError, match=r"pool\.yaml") as caught:
            load_pool(str(write(tmp_path / "pool.yaml", harmless | changed)))
        assert len(str(caught.value)) < 1000
    with pytest.raises(InputError, match=r"entry\.yaml: model"):
        load_entry(write(tmp_path / "entry.yaml", entry(name)))

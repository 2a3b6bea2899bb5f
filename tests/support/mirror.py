"""A mirror for tests: MMLU, BBH and GSM8K from the shared questions; MuSR and GPQA are generated."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rlfocal.extraction.mirror import write_config
from rlfocal.pool import Benchmark, load_benchmarks

REVISION = "test"
MUSR = {"murder_mysteries": (250, 2), "object_placements": (256, 5), "team_allocation": (250, 3)}
GPQA_SIZE = 448
MMLU_SPLITS = {"test": "test", "validation": "val", "dev": "dev"}


def make_mirror(
    folder: Path,
    shared: Path | None,
    *,
    mmlu: Iterable[str] | None = None,
    bbh: Iterable[str] | None = None,
    gsm8k: tuple[int, int] | None = None,
) -> Path:
    """Fills `folder` with the five benchmarks' data sets and returns it.

    `shared` is the folder that holds data/questions; without it there are only MuSR and GPQA. `mmlu`,
    `bbh` and `gsm8k` restrict those to some subjects, some tasks and some rows of train and test.
    """
    if shared is not None:
        questions = shared / "data" / "questions"
        write_mmlu(folder, questions, mmlu)
        write_bbh(folder, questions, bbh)
        write_gsm8k(folder, questions, gsm8k)
    write_musr(folder)
    write_gpqa(folder)
    return folder


def write_mmlu(folder: Path, questions: Path, subjects: Iterable[str] | None = None) -> None:
    tables = {split: pq.read_table(questions / f"mmlu_{name}.parquet") for split, name in MMLU_SPLITS.items()}
    for subject in sorted(subjects or set(tables["test"]["subject"].to_pylist())):
        splits = {
            split: table.filter(pc.equal(table["subject"], subject)).drop_columns("row")
            for split, table in tables.items()
        }
        write_config(folder, "cais/mmlu", subject, splits, REVISION)


def write_bbh(folder: Path, questions: Path, tasks: Iterable[str] | None = None) -> None:
    table = pq.read_table(questions / "bbh.parquet")
    for task in sorted(tasks or set(table["task"].to_pylist())):
        rows = table.filter(pc.equal(table["task"], task)).select(["input", "target"])
        write_config(folder, "SaylorTwift/bbh", task, {"test": rows}, REVISION)


def write_gsm8k(folder: Path, questions: Path, rows: tuple[int, int] | None = None) -> None:
    """`rows`: only the first so many of train and of test."""
    splits = {}
    for split, first in zip(("train", "test"), rows or (None, None), strict=True):
        splits[split] = pq.read_table(questions / f"gsm8k_{split}.parquet").slice(0, first)
    write_config(folder, "openai/gsm8k", "main", splits, REVISION)


def write_musr(folder: Path) -> None:
    """Invented stories in MuSR's columns, splits, sizes and numbers of choices."""
    rng = random.Random("musr")
    splits = {}
    for split, (size, choices) in MUSR.items():
        rows = []
        for i in range(size):
            names = [f"suspect {rng.randrange(10**6)}" for _ in range(choices)]
            index = rng.randrange(choices)
            rows.append(
                {
                    "narrative": f"Story {i} of {split}. " + " ".join(f"{n} was there." for n in names),
                    "question": "Who is the most likely?",
                    "choices": repr(names),
                    "answer_index": index,
                    "answer_choice": names[index],
                }
            )
        splits[split] = pa.Table.from_pylist(rows)
    write_config(folder, "TAUR-Lab/MuSR", "default", splits, REVISION)


def write_gpqa(folder: Path, rows: list[dict[str, str]] | None = None) -> None:
    """Invented sums in the columns of GPQA that its task reads."""
    splits = {"train": pa.Table.from_pylist(gpqa_rows() if rows is None else rows)}
    write_config(folder, "Idavidrein/gpqa", "gpqa_main", splits, REVISION)


def gpqa_rows(size: int = GPQA_SIZE) -> list[dict[str, str]]:
    rng = random.Random("gpqa")
    rows = []
    for i in range(size):
        a, b = rng.randrange(100, 1000), rng.randrange(100, 1000)
        rows.append(
            {
                "Record ID": f"rec{i:014d}",
                "Question": f"A sample holds {a} and another {b} particles. How many together? (case {i})",
                "Correct Answer": f"{a + b} particles\n",
                "Incorrect Answer 1": f"{a + b + 1} particles",
                "Incorrect Answer 2": f"{a + b - 1} particles",
                "Incorrect Answer 3": f"{a * b} [title]particles",
                "Subdomain": "Counting",
                "High-level domain": "Physics",
            }
        )
    return rows


def some(name: str, *tasks: str, **changes: Any) -> Benchmark:
    """A registered benchmark, restricted to some of its tasks."""
    benchmark = load_benchmarks()[name]
    chosen = {task: benchmark.tasks[task] for task in tasks or benchmark.tasks}
    return benchmark.model_copy(update={"tasks": chosen, **changes})

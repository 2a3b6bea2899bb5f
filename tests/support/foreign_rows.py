"""A warehouse to which another program writes, past our own code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from warehouse import open_warehouse, writing
from warehouse.alignment import prompt_hash

MODELS = tuple(f"m{at}" for at in range(6))
N_DOCS = 4


def fill(path: Path, n_tasks: int) -> None:
    """Tasks of four documents, answered by six models; a run for each task.

    Two tasks in three have three choices, the others three passes.
    """
    tasks = [{"benchmark": benchmark_of(at), "task": f"t{at}"} for at in range(n_tasks)]
    places: list[dict[str, Any]] = [task | {"doc_id": doc_id} for task in tasks for doc_id in range(N_DOCS)]
    prompts = [place | {"model": "*", "prompt": f"p{place['doc_id']}"} for place in places]
    docs = [
        place
        | {"doc_hash": f"h{place['doc_id']}", "question": f"q{place['doc_id']}", "gold": "1", "split": "test"}
        | ({"choices": ["1", "b", "c"], "label": 0} if place["benchmark"] == "b" else {})
        | {"confidential": False, "prompt_hash": prompt_hash(prompt["prompt"], None, None)}
        for place, prompt in zip(places, prompts, strict=True)
    ]
    given = [place | {"model": model} for place in places for model in MODELS]
    choices = [
        row | {"choice": choice, "n_chars": 1, "logprob": -1.0 - choice - row["doc_id"] / 7}
        for row in given
        for choice in range(3)
        if row["benchmark"] == "b"
    ]
    answers = [
        row | {"pass": at, "text": f"It is {at}.", "answer": str(at)}
        for row in given
        for at in range(3)
        if row["benchmark"] == "a"
    ]
    records = [
        task | {"model": model, "fingerprint": "f", "n_docs": N_DOCS} for task in tasks for model in MODELS
    ]
    runs = [
        {"run_id": f"r{at}", "benchmark": "b", "task": task, "method": "x", "n": N_DOCS, "accuracy": 0.5}
        for at in range(n_tasks)
        for task in ("*", "t0")
    ]
    decisions = [
        {"run_id": f"r{at}", "benchmark": "b", "task": "t0", "doc_id": doc_id, "correct": doc_id < 2}
        for at in range(n_tasks)
        for doc_id in range(N_DOCS)
    ]
    history = [
        {"run_id": f"r{at}", "benchmark": "b", "task": "*", "phase": "joint", "episode": episode}
        for at in range(n_tasks)
        for episode in range(2)
    ]
    with open_warehouse(path) as warehouse, warehouse.transaction("fill"):
        writing.put_docs(warehouse.connection, pa.Table.from_pylist(docs))
        for benchmark, rows in (("b", choices), ("a", answers)):
            of = [record for record in records if record["benchmark"] == benchmark]
            if of:
                writing.put_partitions(warehouse.connection, pa.Table.from_pylist(rows), of)
        for table, written in {
            "prompts": prompts,
            "evaluations": runs,
            "decisions": decisions,
            "training_history": history,
        }.items():
            warehouse.append(table, pa.Table.from_pylist(written))
        writing.digest_runs(warehouse.connection, "true")


def benchmark_of(task: int) -> str:
    return "a" if task % 3 == 2 else "b"

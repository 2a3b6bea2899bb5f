"""`import lm-eval`: the samples that lm-eval's --log_samples wrote, into the warehouse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.gathered import Gathered, OnProgress, importer, refusing, tracked
from rlfocal.exchange.imports.reading.logs import Log, find_logs
from rlfocal.exchange.imports.reading.samples import LoggedSample, UnsupportedTaskError, read_rows, sample
from rlfocal.exchange.imports.rows import CheckedRows
from rlfocal.extraction.answers import extract_answer
from rlfocal.extraction.rows import PROMPTS
from rlfocal.pool import Benchmark, load_benchmarks
from warehouse.prompts import prompt_hash
from warehouse.store import PartitionKey

_COMPARED, _PROMPT = ("doc_hash", "choices", "label", "gold"), ("prompt", "continuations")


@contextmanager
def read_lm_eval(
    paths: Sequence[str | Path],
    *,
    model: str | None = None,
    benchmark: str | None = None,
    allow_missing: bool = False,
    kind: str = "lm-eval",
    on_progress: OnProgress | None = None,
) -> Iterator[CheckedRows]:
    """Reads and checks folders (searched whole) or files of samples, before any warehouse is created.

    `model` and `benchmark` name them; else the results file and rlfocal's benchmarks do (a task in none of
    those is a benchmark of its own). Raises InputError with file, line and reason if a line is wrong, if
    documents differ between models, or if models cover different ones (unless `allow_missing`).
    """
    logs, left = find_logs(paths, model)
    taken, title = _Taken(), ", ".join(map(str, paths))
    registered = _benchmarks_by_task()
    for log in tracked(logs, on_progress):
        place = _place(log.task, registered, benchmark)
        try:
            # Whole, before any of it counts: a task is left out as one.
            samples = list(_samples(log))
            if samples and all(logged.document.get("label") == -1 for _, logged in samples):
                raise UnsupportedTaskError("no document's target is one of its choices")
        except UnsupportedTaskError as reason:
            left.append(f"{log.path} ({log.task}: {reason})")
            continue
        if not samples:
            raise InputError(f"{log.path} has no rows")
        taken.add(log, place, samples)
    about = {"details": taken.details, "facts": taken.facts, "prompts": taken.prompts()}
    about |= {"canonical": extract_answer}
    with taken.check(kind, title, left=left, allow_missing=allow_missing, **about) as checked:
        yield checked


import_lm_eval = importer(read_lm_eval)


class _Place(NamedTuple):
    """Where a task's documents belong."""

    benchmark: str
    task: str
    confidential: bool
    train_docs: int | None
    about: dict[str, str | None]
    """What is known of the benchmark: columns of `benchmarks`."""


class _Taken(Gathered):
    """Rows gathered from logs."""

    def __init__(self) -> None:
        super().__init__()
        self.details: dict[PartitionKey, dict[str, Any]] = {}
        self.facts: dict[str, list[dict[str, Any]]] = {"benchmarks": [], "tasks": []}

    def add(self, log: Log, place: _Place, samples: Sequence[tuple[int, LoggedSample]]) -> None:
        self.details[PartitionKey(log.model, place.benchmark, place.task)] = log.details
        about = {"benchmark": place.benchmark}
        self.facts["benchmarks"].append(about | place.about)
        self.facts["tasks"].append(about | {"task": place.task} | log.facts)
        where = f"{log.path}, {_unit(log.path)}"
        for number, logged in samples:
            keys = {
                "row": self.row(where, number),
                "benchmark": place.benchmark,
                "task": place.task,
                "doc_id": logged.doc_id,
            }
            asked = _prompt_columns(logged) if log.asks_all_alike else {}
            self._add_document(
                {**keys, **logged.document, **_document_columns(place, logged.doc_id), **asked}
            )
            self.scores += [{**keys, "model": log.model, **score} for score in logged.scores]

    def prompts(self) -> pa.Table:
        """Rows of `prompts`, where they are the same for all models."""
        rows = [{**doc, "model": "*"} for doc in self.docs if "prompt" in doc]
        return pa.Table.from_pylist(rows, schema=PROMPTS)

    def _add_document(self, doc: dict[str, Any]) -> None:
        earlier = self.known.get((doc["benchmark"], doc["task"], doc["doc_id"]), doc)
        # A chat template's prompt is shared by no other model.
        compared = _COMPARED + (_PROMPT if "prompt" in earlier and "prompt" in doc else ())
        known = self.describe(doc, compared)
        known |= doc | known


def _samples(log: Log) -> Iterator[tuple[int, LoggedSample]]:
    for number, row in read_rows(log.path):
        with refusing(f"{log.path}, {_unit(log.path)} {number}: not a sample of lm-eval's log"):
            logged = sample(row, log.config)
        yield number, logged


def _unit(path: Path) -> str:
    return "line" if path.suffix == ".jsonl" else "row"


def _benchmarks_by_task() -> dict[str, tuple[Benchmark, str]]:
    """lm-eval's task names, with the benchmark and its name for the task; variants (@) are not guessed."""
    return {
        name: (benchmark, task)
        for benchmark in load_benchmarks().values()
        if "@" not in benchmark.name
        for task, name in benchmark.tasks.items()
    }


def _place(task: str, registered: dict[str, tuple[Benchmark, str]], benchmark: str | None) -> _Place:
    if task in registered:
        known, own = registered[task]
        about = known.model_dump(include={"category", "licence"})
        return _Place(benchmark or known.name, own, known.confidential, known.train_docs, about)
    # The authors of GPQA ask that none of its subsets is published.
    return _Place(benchmark or task, task, "gpqa" in task, None, {})


def _prompt_columns(logged: LoggedSample) -> dict[str, Any]:
    return {
        "prompt": logged.prompt,
        "continuations": list(logged.continuations) or None,
        "prompt_hash": prompt_hash(logged.prompt, None, logged.continuations),
    }


def _document_columns(place: _Place, doc_id: int) -> dict[str, Any]:
    split = None if place.train_docs is None else "train" if doc_id < place.train_docs else "test"
    return {"confidential": place.confidential, "split": split}

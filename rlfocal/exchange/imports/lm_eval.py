"""`import lm-eval`: the samples that lm-eval's --log_samples wrote, into the warehouse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.reading.logs import Log, find_logs
from rlfocal.exchange.imports.reading.samples import LoggedSample, UnsupportedTaskError, read_rows, sample
from rlfocal.exchange.imports.rows import CheckedRows, Gathered, ImportReport, Source, check_rows
from rlfocal.extraction.answers import extract_answer
from rlfocal.extraction.rows import PROMPTS
from rlfocal.pool import Benchmark, load_benchmarks
from warehouse import Warehouse
from warehouse.memory import memory_settings
from warehouse.prompts import prompt_hash
from warehouse.store import PartitionKey

_COMPARED = ("doc_hash", "choices", "label", "gold", "prompt", "continuations")


def import_lm_eval(
    warehouse: Warehouse,
    paths: Sequence[str | Path],
    *,
    model: str | None = None,
    benchmark: str | None = None,
    allow_missing: bool = False,
) -> ImportReport:
    """Imports folders (searched whole) or files of samples in one transaction; repeating it is a no-op.

    `model` and `benchmark` name them; else the results file and rlfocal's benchmarks do (a task in none of
    those is a benchmark of its own). Raises InputError with file, line and reason, and writes nothing, if a
    line is wrong, if documents differ between models or from the warehouse, or if models cover different ones
    (unless `allow_missing`).
    """
    with read_lm_eval(paths, model=model, benchmark=benchmark, allow_missing=allow_missing) as checked:
        return checked.write(warehouse)


@contextmanager
def read_lm_eval(
    paths: Sequence[str | Path],
    *,
    model: str | None = None,
    benchmark: str | None = None,
    allow_missing: bool = False,
    kind: str = "lm-eval",
    on_progress: Callable[[float], None] | None = None,
) -> Iterator[CheckedRows]:
    """Reads and checks the logs, before any warehouse is created.

    `on_progress` gets the share of logs that have been read.
    """
    logs, left = find_logs(paths, model)
    taken, title = _Taken(), ", ".join(map(str, paths))
    registered = _registered()
    for at, log in enumerate(logs):
        if on_progress is not None:
            on_progress(at / len(logs))
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
    if not taken.scores:
        raise InputError(f"{title}: nothing to import; " + "; ".join(left))
    with closing(duckdb.connect(config=memory_settings())) as scratch:
        taken.load(scratch)
        source = Source(
            kind=kind,
            title=title,
            place=lambda _, row: taken.place(row),
            canonical=extract_answer,
            details=taken.details,
            facts=taken.facts,
            left=tuple(left),
            prompts=taken.prompts(),
        )
        yield check_rows(scratch, source, allow_missing=allow_missing)


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
        self._known: dict[tuple[str, str, int], dict[str, Any]] = {}

    def add(self, log: Log, place: _Place, samples: Sequence[tuple[int, LoggedSample]]) -> None:
        self.details[PartitionKey(log.model, place.benchmark, place.task)] = log.details
        about = {"benchmark": place.benchmark}
        self.facts["benchmarks"].append(about | place.about)
        self.facts["tasks"].append(about | {"task": place.task} | log.facts)
        where = f"{log.path}, {_counted(log.path)}"
        for number, logged in samples:
            keys = {
                "row": self.row(where, number),
                "benchmark": place.benchmark,
                "task": place.task,
                "doc_id": logged.doc_id,
            }
            asked = _asked(logged) if log.asks_all_alike else {}
            self._describe({**keys, **logged.document, **_described(place, logged.doc_id), **asked})
            self.scores += [{**keys, "model": log.model, **score} for score in logged.scores]

    def prompts(self) -> pa.Table:
        """Rows of `prompts`, where they are the same for all models."""
        rows = [{**doc, "model": "*"} for doc in self.docs if "prompt" in doc]
        return pa.Table.from_pylist(rows, schema=PROMPTS)

    def _describe(self, doc: dict[str, Any]) -> None:
        key = doc["benchmark"], doc["task"], doc["doc_id"]
        known = self._known.setdefault(key, doc)
        if known is doc:
            self.docs.append(doc)
            return
        if "prompt" not in known or "prompt" not in doc:  # a chat template's, which no other model shares
            known |= doc | known
            doc = known | doc
        for name in _COMPARED:
            if known.get(name) != doc.get(name):
                change = f"{name} was {str(known.get(name))[:60]!r}, is {str(doc.get(name))[:60]!r}"
                if name in ("prompt", "continuations"):
                    change = "another prompt (template, few-shot examples or system prompt)"
                raise InputError(
                    f"{self.place(doc['row'])}: document {key[2]} of {key[0]}/{key[1]} differs from "
                    f"{self.place(known['row'])}: {change}. Models are compared on the same documents only: "
                    f"import them under another name, such as --benchmark {key[0]}@v2"
                )


def _samples(log: Log) -> Iterator[tuple[int, LoggedSample]]:
    for number, row in read_rows(log.path):
        try:
            yield number, sample(row, log.config)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(
                f"{log.path}, {_counted(log.path)} {number}: not a sample of lm-eval's log ({reason})"
            ) from None


def _counted(path: Path) -> str:
    return "line" if path.suffix == ".jsonl" else "row"


def _registered() -> dict[str, tuple[Benchmark, str]]:
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


def _asked(logged: LoggedSample) -> dict[str, Any]:
    return {
        "prompt": logged.prompt,
        "continuations": list(logged.continuations) or None,
        "prompt_hash": prompt_hash(logged.prompt, None, logged.continuations),
    }


def _described(place: _Place, doc_id: int) -> dict[str, Any]:
    split = None if place.train_docs is None else "train" if doc_id < place.train_docs else "test"
    return {"confidential": place.confidential, "split": split}

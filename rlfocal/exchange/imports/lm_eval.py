"""`import lm-eval`: the samples that lm-eval's --log_samples wrote, into the warehouse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pyarrow as pa

from rlfocal.base.errors import InputError
from rlfocal.base.request import Option
from rlfocal.exchange.imports.gathered import Gathered, refusing, tracked
from rlfocal.exchange.imports.reading.logs import Log, find_logs
from rlfocal.exchange.imports.reading.samples import LoggedSample, UnsupportedTaskError, read_rows, sample
from rlfocal.exchange.imports.rows import AllowMissing, Importer, OnProgress, named
from rlfocal.extraction.answers import extract_answer
from rlfocal.extraction.rows import PROMPTS
from rlfocal.pool import Benchmark, load_benchmarks
from warehouse.alignment import prompt_hash
from warehouse.store import PartitionKey

_COMPARED, _PROMPT = ("doc_hash", "choices", "label", "gold"), ("prompt", "continuations")
LoggedModel = Annotated[str | None, Option("The model's name.", default="the results file's model_name")]
LoggedBenchmark = Annotated[
    str | None, Option("The benchmark's name.", default="the one lm-eval's task belongs to")
]


@Importer
def import_lm_eval(
    paths: Annotated[
        Sequence[str | Path],
        Option("Folders (searched whole) or files of samples_*.jsonl.", is_repeated=True),
    ],
    *,
    model: LoggedModel = None,
    benchmark: LoggedBenchmark = None,
    allow_missing: AllowMissing = False,
    on_progress: OnProgress = None,
) -> Gathered:
    """Import what lm-eval wrote with `--log_samples --output_path`. All or nothing.

    Choices come with their log-likelihoods, generated texts with the answers read from them. Importing the
    same logs again changes nothing; of several runs of one task the latest counts.
    """
    logs, left = find_logs(paths, model)
    rows = Gathered("lm-eval", named(paths), allow_missing, left, canonical=extract_answer)
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
        _add(rows, log, place, samples)
    shared = [{**doc, "model": "*"} for doc in rows.docs if "prompt" in doc]
    rows.prompts = pa.Table.from_pylist(shared, schema=PROMPTS)
    return rows


class _Place(NamedTuple):
    """Where a task's documents belong."""

    benchmark: str
    task: str
    confidential: bool
    train_docs: int | None
    about: dict[str, str | None]
    """What is known of the benchmark: columns of `benchmarks`."""


def _add(rows: Gathered, log: Log, place: _Place, samples: Sequence[tuple[int, LoggedSample]]) -> None:
    rows.details[PartitionKey(log.model, place.benchmark, place.task)] = log.details
    about = {"benchmark": place.benchmark}
    rows.facts["benchmarks"].append(about | place.about)
    rows.facts["tasks"].append(about | {"task": place.task} | log.facts)
    for number, logged in samples:
        keys = {
            "row": rows.row(f"{log.path}, {_unit(log.path)}", number),
            "benchmark": place.benchmark,
            "task": place.task,
            "doc_id": logged.doc_id,
        }
        asked = _prompt_columns(logged) if log.asks_all_alike else {}
        document = {**keys, **logged.document, **_document_columns(place, logged.doc_id), **asked}
        earlier = rows.known.get((place.benchmark, place.task, logged.doc_id), document)
        # A chat template's prompt is shared by no other model.
        compared = _COMPARED + (_PROMPT if "prompt" in earlier and "prompt" in document else ())
        known = rows.describe(document, compared)
        known |= document | known
        rows.scores += [{**keys, "model": log.model, **score} for score in logged.scores]


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

"""Implements `import lm-eval`, which reads samples that lm-eval wrote with --log_samples, also those of the
Open LLM Leaderboard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.graded import GradedAnswer, GradedRows, refuse_bad_row, report_progress
from rlfocal.exchange.imports.graded import forms as forms_of
from rlfocal.exchange.imports.reading import Pairs, read_pairs
from rlfocal.exchange.imports.reading.logs import Log, find_logs, local_path
from rlfocal.exchange.imports.reading.samples import (
    GRADE_METRICS,
    LoggedAnswer,
    LoggedSample,
    UnsupportedTaskError,
    name_row,
    read_rows,
    sample,
)
from rlfocal.exchange.imports.rows import Importer
from rlfocal.exchange.imports.source import OnProgress, Split
from rlfocal.extraction.answers import extract_answer, extract_text
from rlfocal.extraction.rows import PROMPT_SCHEMA
from rlfocal.pool import Benchmark, load_benchmarks
from warehouse.alignment import prompt_hash
from warehouse.comparison import is_number
from warehouse.store import PartitionKey

_DOCUMENT_COLUMNS, _PROMPT_COLUMNS = (
    ("doc_hash", "choices", "label", "gold"),
    ("prompt", "messages", "continuations"),
)


@Importer
def import_lm_eval(
    paths: Sequence[str | Path],
    *,
    model: str | None = None,
    names: Pairs = None,
    benchmark: str | None = None,
    split: Split = "hash",
    allow_missing: bool = False,
    on_progress: OnProgress = None,
) -> GradedRows:
    """Imports the samples that lm-eval wrote with `--log_samples --output_path`, all or nothing.

    `paths` are folders, files of samples, or hub ids. `model` and `benchmark` are names in place of those in
    the logs. `names` maps single models' names in the logs to rlfocal's. Choices have their log-likelihoods,
    generated texts their grade. Importing the same logs again changes nothing. Of several runs of one task,
    the latest counts.
    """
    logs, left = find_logs([local_path(path) for path in paths], model, read_pairs("--name", names))
    rows = GradedRows(
        "lm-eval", ", ".join(map(str, paths)), allow_missing, left, in_order=split == "first", are_logs=True
    )
    registered = _index_benchmarks()
    for log in report_progress(logs, on_progress):
        place = _place(log.task, registered, benchmark)
        try:
            # Whole, before any of it counts: a task is left out as one.
            samples, filters = _read_samples(log)
            if samples and all(logged.document.get("label") == -1 for _, logged in samples):
                raise UnsupportedTaskError("no document's target is one of its choices")
        except UnsupportedTaskError as reason:
            left.append(f"{log.path} ({log.task}: {reason})")
            continue
        if not samples:
            raise InputError(f"{log.path} has no rows")
        _add(rows, log, place, samples)
        if len(filters) > 1 and samples[0][1].answer:
            others = ", ".join(filters[1:])
            note = f"{place.benchmark}/{place.task} is graded by the filter {filters[0]}, not {others}"
            rows.notes += [note] * (note not in rows.notes)
    shared = [{**doc, "model": "*"} for doc in rows.docs if "prompt_hash" in doc]
    rows.prompts = pa.Table.from_pylist(shared, schema=PROMPT_SCHEMA)
    return rows


class _Place(NamedTuple):
    """The benchmark, task and split that a log's documents belong to."""

    benchmark: str
    task: str
    confidential: bool
    train_docs: int | None
    about: dict[str, str | None]
    """Those columns of the table `benchmarks` that are known: category and licence."""


def _add(rows: GradedRows, log: Log, place: _Place, samples: Sequence[tuple[int, LoggedSample]]) -> None:
    rows.details[PartitionKey(log.model, place.benchmark, place.task)] = log.details
    about = {"benchmark": place.benchmark}
    rows.facts["benchmarks"].append(about | place.about)
    rows.facts["tasks"].append(about | {"task": place.task} | log.facts)
    for number, logged in samples:
        row = rows.row(name_row(log.path), number)
        keys = {
            "row": row,
            "benchmark": place.benchmark,
            "task": place.task,
            "doc_id": logged.doc_id,
        }
        asked = _make_prompt_columns(logged) if log.asks_all_alike else {}
        document = {**keys, **logged.document, **_make_document_columns(place, logged.doc_id), **asked}
        earlier = rows.rows_by_document.get((place.benchmark, place.task, logged.doc_id), document)
        # A chat template's prompt is shared by no other model.
        both = "prompt_hash" in earlier and "prompt_hash" in document
        described = rows.describe(document, _DOCUMENT_COLUMNS + (_PROMPT_COLUMNS if both else ()))
        described |= document | described
        rows.scores += [{**keys, "model": log.model, **score} for score in logged.scores]
        for answer in _grade_texts(log.model, logged):
            rows.grade(described, row, answer)


def _grade_texts(model: str, logged: LoggedSample) -> list[GradedAnswer]:
    """A model's answers to one document, as the log grades them.

    For several texts, the log grades one answer that its filter made of all. If their most frequent answer
    has that grade, each text is an answer. Otherwise one answer stands for all texts.
    """
    if (logged_answer := logged.answer) is None:
        return []
    right, gold = bool(logged_answer.right), logged.document["gold"]
    if len(logged_answer.texts) == 1:
        return [GradedAnswer(model, _read_forms(logged_answer, gold), right, logged_answer.texts[0])]
    given = [
        _read_forms(LoggedAnswer((text,), None, None, logged_answer.is_comparable), gold)
        for text in logged_answer.texts
    ]
    counted = Counter(forms[0] for forms in given if forms)
    if (max(counted, key=lambda form: counted[form], default=None) == gold) != right:
        return [
            GradedAnswer(
                model,
                forms_of(logged_answer.filtered_answer),
                right,
                logged_answer.filtered_answer or logged_answer.texts[0],
            )
        ]
    answers = enumerate(zip(given, logged_answer.texts, strict=True))
    return [
        GradedAnswer(model, forms, forms[:1] == (gold,), text, number) for number, (forms, text) in answers
    ]


def _read_forms(logged_answer: LoggedAnswer, gold: str) -> tuple[str, ...]:
    """The canonical forms of a generated text. If the gold is a number, it is the text's number; otherwise
    the answer that the log's filter found, or that rlfocal's rules find."""
    [text] = logged_answer.texts
    if not logged_answer.is_comparable:
        return ()
    if is_number(gold):
        return forms_of(extract_answer(text), logged_answer.filtered_answer)
    return forms_of(
        (None if logged_answer.filtered_answer == text else logged_answer.filtered_answer)
        or extract_text(text)
    )


def _read_samples(log: Log) -> tuple[list[tuple[int, LoggedSample]], list[str]]:
    """A log's samples with their row numbers, and its filters. Raises UnsupportedTaskError for a task without
    grades."""
    rows, filters = read_rows(log.path)
    samples = []
    for number, row in rows:
        with refuse_bad_row(f"{name_row(log.path)} {number}: not a sample of lm-eval's log"):
            samples.append((number, sample(row, log.config)))
    metrics = Counter(logged.metric for _, logged in samples)
    kinds = {logged.answer is None for _, logged in samples if logged.metric}
    usual = max(metrics, key=lambda name: metrics[name], default=None)
    for number, logged in samples:
        if logged.metric != usual or len(kinds) > 1:
            raise InputError(
                f"{name_row(log.path)} {number}: it is graded by {logged.metric or 'nothing'}, others by "
                f"{usual or 'nothing'}; write the log again"
            )
        if logged.answer and logged.answer.right is None:
            raise UnsupportedTaskError(f"{usual} is between 0 and 1, neither right nor wrong")
    if usual is None and any("label" not in logged.document for _, logged in samples):
        raise UnsupportedTaskError(f"generated texts have no grade ({', '.join(GRADE_METRICS)})")
    return samples, filters


def _index_benchmarks() -> dict[str, tuple[Benchmark, str]]:
    """The benchmark and its own name for the task, by lm-eval's name of the task. Variants (names with @) are
    left out."""
    return {
        name: (benchmark, task)
        for benchmark in load_benchmarks().values()
        if "@" not in benchmark.name
        for task, name in benchmark.tasks.items()
    }


def _place(task: str, registered: dict[str, tuple[Benchmark, str]], benchmark: str | None) -> _Place:
    if task in registered:
        registered_benchmark, own = registered[task]
        about = registered_benchmark.model_dump(include={"category", "licence"})
        return _Place(
            benchmark or registered_benchmark.name,
            own,
            registered_benchmark.confidential,
            registered_benchmark.train_docs,
            about,
        )
    # The authors of GPQA ask that none of its subsets is published.
    return _Place(benchmark or task, task, "gpqa" in task, None, {})


def _make_prompt_columns(logged: LoggedSample) -> dict[str, Any]:
    text, messages = (logged.prompt, None) if isinstance(logged.prompt, str) else (None, logged.prompt)
    return {
        "prompt": text,
        "messages": messages and [{"role": role, "content": content} for role, content in messages],
        "continuations": list(logged.continuations) or None,
        "prompt_hash": prompt_hash(text, messages, logged.continuations),
    }


def _make_document_columns(place: _Place, doc_id: int) -> dict[str, Any]:
    split = None if place.train_docs is None else "train" if doc_id < place.train_docs else "test"
    return {"confidential": place.confidential, "split": split}

"""Makes the warehouse's rows of one partition, which is one model's answers to one task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from rlfocal.extraction.answers import extract_answer, extract_text
from rlfocal.extraction.engine import ChoiceScore, Document, Sample, Trace
from rlfocal.extraction.tasks import TaskDocuments
from warehouse.comparison import Rule

UNCONDITIONAL_COLUMN = "unconditional_logprob"
_KEY_FIELDS = [("benchmark", pa.string()), ("task", pa.string()), ("doc_id", pa.int64())]
_SHARED_FIELDS = [*_KEY_FIELDS, ("model", pa.string())]
DOC_SCHEMA = pa.schema(
    [
        *_KEY_FIELDS,
        ("doc_hash", pa.string()),
        ("question", pa.string()),
        ("choices", pa.list_(pa.string())),
        ("label", pa.int32()),
        ("gold", pa.string()),
        ("split", pa.string()),
        ("confidential", pa.bool_()),
        ("prompt_hash", pa.string()),
    ]
)
PROMPT_SCHEMA = pa.schema(
    [
        *_SHARED_FIELDS,
        ("prompt", pa.string()),
        ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("continuations", pa.list_(pa.string())),
    ]
)
CHOICE_SCHEMA = pa.schema(
    [
        *_SHARED_FIELDS,
        ("choice", pa.int32()),
        ("token_ids", pa.list_(pa.int32())),
        ("token_logprobs", pa.list_(pa.float32())),
        ("logprob", pa.float64()),
        ("n_tokens", pa.int32()),
        ("n_chars", pa.int32()),
        ("n_bytes", pa.int32()),
        ("is_greedy", pa.bool_()),
        ("n_prompt_tokens", pa.int32()),
        ("truncated", pa.bool_()),
        (UNCONDITIONAL_COLUMN, pa.float64()),
        ("covered_mass", pa.float64()),
        ("unanswered", pa.string()),
    ]
)
PASS_SCHEMA = pa.schema(
    [
        *_SHARED_FIELDS,
        ("pass", pa.int32()),
        ("text", pa.string()),
        ("answer", pa.string()),
        ("finish_reason", pa.string()),
        ("n_tokens", pa.int32()),
        ("n_prompt_tokens", pa.int32()),
        ("unanswered", pa.string()),
    ]
)

TRACE_SCHEMA = pa.schema(
    [
        *_SHARED_FIELDS,
        ("trace", pa.int32()),
        ("text", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
        ("n_tokens", pa.int32()),
        ("finish_reason", pa.string()),
        ("cut_by_budget", pa.bool_()),
        ("token_logprobs", pa.list_(pa.list_(pa.float32()))),
    ]
)
SHARED_COLUMNS = tuple(name for name, _ in _SHARED_FIELDS)
"""The columns that identify a document and a model. They come first in the tables of answers."""


def _shared_cells(task: TaskDocuments, document: Document, model: str | None = None) -> dict[str, Any]:
    """The cells of SHARED_COLUMNS for a document and a model; without a model, those for the document."""
    cells = {"benchmark": task.benchmark, "task": task.task, "doc_id": document.doc_id}
    return cells if model is None else cells | {"model": model}


def doc_rows(task: TaskDocuments) -> pa.Table:
    """Rows of `docs`, one per document."""
    rows = [
        _shared_cells(task, document)
        | {
            "doc_hash": document.doc_hash,
            "question": document.question,
            "choices": list(document.choices) or None,
            "label": document.label,
            "gold": document.gold,
            "split": split,
            "confidential": task.confidential,
            "prompt_hash": document.prompt_hash,
        }
        for document, split in zip(task.documents, task.splits, strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=DOC_SCHEMA)


def prompt_rows(task: TaskDocuments, model: str, texts: Sequence[str]) -> pa.Table:
    """Rows of `prompts`. A prompt is stored once for all models; a chat also as this model reads it, from
    `texts`. A text is "" if only a service knows how the model reads the chat."""
    rows = []
    for document, text in zip(task.documents, texts, strict=True):
        about = _shared_cells(task, document)
        continuations = list(document.continuations) or None
        if document.messages is None:
            rows.append(about | {"model": "*", "prompt": document.context, "continuations": continuations})
            continue
        messages = [{"role": role, "content": content} for role, content in document.messages]
        rows.append(about | {"model": "*", "messages": messages, "continuations": continuations})
        if text:
            rows.append(about | {"model": model, "prompt": text})
    return pa.Table.from_pylist(rows, schema=PROMPT_SCHEMA)


def choice_rows(
    task: TaskDocuments, model: str, documents: Sequence[Document], scores: Sequence[Sequence[ChoiceScore]]
) -> pa.Table:
    """Rows of `choice_logprobs` for some documents of the task, one per choice. Lengths are those of the
    choice's text, as in lm-eval's acc_norm. Unconditional log-probs are left null."""
    rows = [
        _shared_cells(task, document, model)
        | {
            "choice": index,
            "token_ids": None if score.is_partial else score.token_ids,
            "token_logprobs": None if score.is_partial else score.token_logprobs,
            "logprob": sum(score.token_logprobs),
            "n_tokens": score.n_generated if score.is_partial else len(score.token_ids),
            "n_chars": len(choice),
            "n_bytes": len(choice.encode()),
            "is_greedy": score.is_greedy,
            "n_prompt_tokens": score.n_prompt_tokens,
            "truncated": score.truncated,
            "covered_mass": score.covered_mass,
            "unanswered": score.unanswered and str(score.unanswered),
        }
        for document, scored in zip(documents, scores, strict=True)
        for index, (choice, score) in enumerate(zip(document.choices, scored, strict=True))
    ]
    return pa.Table.from_pylist(rows, schema=CHOICE_SCHEMA)


def pass_rows(
    task: TaskDocuments, model: str, documents: Sequence[Document], samples: Sequence[Sequence[Sample]]
) -> pa.Table:
    """Rows of `answer_passes` for some documents of the task, one per sampled text."""
    rows = [
        _shared_cells(task, document, model)
        | {
            "pass": index,
            "text": sample.text,
            "answer": None if sample.unanswered else _read_answer(sample.text, task, document.given_gold),
            "finish_reason": sample.finish_reason,
            "n_tokens": sample.n_tokens,
            "n_prompt_tokens": sample.n_prompt_tokens,
            "unanswered": sample.unanswered and str(sample.unanswered),
        }
        for document, sampled in zip(documents, samples, strict=True)
        for index, sample in enumerate(sampled)
    ]
    return pa.Table.from_pylist(rows, schema=PASS_SCHEMA)


def _read_answer(text: str, task: TaskDocuments, gold: str | None = None) -> str | None:
    """The answer in a generated text, in the canonical form in which it is compared with the gold answer."""
    return _read_by_rule(text, task.rule, None if task.is_numeric else gold, is_numeric=task.is_numeric)


@lru_cache(maxsize=1024)  # a document's passes often give the same text
def _read_by_rule(text: str, rule: Rule, gold: str | None, *, is_numeric: bool) -> str | None:
    return rule.canonical(extract_answer(text) if is_numeric else extract_text(text, rule, gold))


def thought_rows(
    task: TaskDocuments,
    model: str,
    documents: Sequence[Document],
    scores: Sequence[Sequence[Sequence[ChoiceScore]]],
) -> pa.Table:
    """Rows of `choice_logprobs` for documents whose choices were scored after each of several traces."""
    rows = choice_rows(task, model, documents, [after_traces[0] for after_traces in scores])
    greedy = [all(s.is_greedy for s in choice) for traces in scores for choice in zip(*traces, strict=True)]
    means = [logprob for traces in scores for logprob in mean_logprobs(traces)]
    for name, values in (
        ("token_logprobs", pa.nulls(len(rows), CHOICE_SCHEMA.field("token_logprobs").type)),
        ("logprob", pa.array(means, pa.float64())),
        ("is_greedy", pa.array(greedy, pa.bool_())),
    ):
        rows = rows.set_column(rows.column_names.index(name), name, values)
    return rows


def mean_logprobs(scores: Sequence[Sequence[ChoiceScore]]) -> list[float]:
    """The log-prob of each choice. `scores` (traces, choices) are its scores after each of several traces.

    The softmax of the result is the mean over traces of each trace's own softmax. So every trace has the same
    weight, however long the choices are. The total probability of the choices is the geometric mean over
    traces, at most 1. With one trace, the log-probs are its own.
    """
    logprobs = np.array([[sum(score.token_logprobs) for score in trace] for trace in scores])
    mass = np.logaddexp.reduce(logprobs, axis=1, keepdims=True)
    mixture = np.logaddexp.reduce(logprobs - mass, axis=0) - np.log(len(scores))
    return [float(value) for value in mixture + min(float(mass.mean()), 0.0)]


def trace_rows(
    task: TaskDocuments,
    model: str,
    documents: Sequence[Document],
    traces: Sequence[Sequence[Trace]],
    scores: Sequence[Sequence[Sequence[ChoiceScore]]] | None,
) -> pa.Table:
    """Rows of `traces` for some documents of the task. `scores` are the scores of the choices after each
    trace."""
    rows = [
        _shared_cells(task, document, model)
        | {
            "trace": index,
            "text": trace.text,
            "token_ids": trace.token_ids,
            "n_tokens": trace.n_tokens,
            "finish_reason": trace.finish_reason,
            "cut_by_budget": trace.finish_reason == "length",
            "token_logprobs": None if scores is None else [s.token_logprobs for s in scores[number][index]],
        }
        for number, (document, own) in enumerate(zip(documents, traces, strict=True))
        for index, trace in enumerate(own)
    ]
    return pa.Table.from_pylist(rows, schema=TRACE_SCHEMA)


def probe_rows(
    facts: Mapping[str, Any], probabilities: Mapping[int, float], rows: pa.Table, traces: pa.Table | None
) -> list[dict[str, Any]]:
    """Rows of `probe_answers`, one per document: the common `facts`, and the document's rows of other tables.
    `probabilities` has, by doc_id, the probability with which the document was drawn."""
    name = "choices" if "choice" in rows.column_names else "passes"
    answers, thought = _group_by_document(rows), {} if traces is None else _group_by_document(traces)
    return [
        {**facts, "doc_id": i, "probability": drawn, name: answers[i], "traces": thought.get(i)}
        for i, drawn in probabilities.items()
    ]


def _group_by_document(rows: pa.Table) -> dict[int, list[dict[str, Any]]]:
    of_document: dict[int, list[dict[str, Any]]] = {}
    for row in rows.to_pylist():
        own = {name: value for name, value in row.items() if name not in SHARED_COLUMNS}
        of_document.setdefault(row["doc_id"], []).append(own)
    return of_document


def rows_of_probe(answers: Sequence[Mapping[str, Any]], name: str, schema: pa.Schema) -> pa.Table:
    """Rows of a table with this schema, unpacked from the column `name` of rows of `probe_answers`."""
    rows = [
        {shared: answer[shared] for shared in SHARED_COLUMNS} | row
        for answer in answers
        for row in answer[name] or ()
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def documents_of_choices(documents: Sequence[Document]) -> list[Document]:
    """One document for each different continuation of the documents, with an empty prompt, in a fixed order.

    lm-eval's empty prompt is the token that begins a text or, if the tokenizer has none, the one that ends
    it.
    """
    texts = sorted({continuation for document in documents for continuation in document.continuations})
    return [
        Document(
            doc_id=number,
            doc_hash="",
            question="",
            label=None,
            gold="",
            choices=(text,),
            context="",
            continuations=(text,),
        )
        for number, text in enumerate(texts)
    ]


def add_unconditional(rows: pa.Table, unconditional: pa.Table, documents: Sequence[Document]) -> pa.Table:
    """The `rows` of `choice_logprobs`, with the log-prob of each choice after an empty prompt.
    `unconditional` has the rows of `documents_of_choices(documents)`, one per continuation."""
    texts = [document.continuations[0] for document in documents_of_choices(documents)]
    places = zip(unconditional["doc_id"].to_pylist(), unconditional["logprob"].to_pylist(), strict=True)
    of_text = {texts[place]: logprob for place, logprob in places}
    continuations = {document.doc_id: document.continuations for document in documents}
    asked = zip(rows["doc_id"].to_pylist(), rows["choice"].to_pylist(), strict=True)
    values = [of_text[continuations[doc_id][choice]] for doc_id, choice in asked]
    column = rows.column_names.index(UNCONDITIONAL_COLUMN)
    return rows.set_column(column, UNCONDITIONAL_COLUMN, pa.array(values, pa.float64()))

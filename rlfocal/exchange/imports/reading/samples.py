"""Reads single samples of lm-eval's --log_samples: the document, and the model's response."""

from __future__ import annotations

import json
from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.graded import UNKNOWN_GOLD, is_right
from rlfocal.exchange.imports.reading import Row, first_line, open_plain, plain_suffix, read_json, read_jsonl
from rlfocal.extraction.answers import extract_answer
from warehouse.comparison import normalise

GRADE_METRICS = ("exact_match", "em", "prompt_level_strict_acc", "acc")
"""Metrics that grade each document as right or wrong. The first one that a row has is its grade."""
_SCORE_ROUNDING = 1e-3
Messages = tuple[tuple[str, str], ...]


class UnsupportedTaskError(Exception):
    """The error of a task with neither scored choices nor graded answers. Its message says what the task
    has."""


class LoggedAnswer(NamedTuple):
    """The texts that a model wrote for a document, and their grade in the log."""

    texts: tuple[str, ...]
    filtered_answer: str | None
    """The answer that lm-eval's filter found in the texts; None if it found nothing."""
    right: bool | None
    """Whether the log grades the answer as right; None for a grade between right and wrong."""
    is_comparable: bool
    """Whether the grade is one of the answer, which other answers can equal, and not of the text's form."""


class LoggedSample(NamedTuple):
    """The row of a log for one document: columns of the tables `docs` and `scores`, without the keys."""

    doc_id: int
    document: dict[str, Any]
    scores: list[dict[str, Any]]
    """Columns of `scores` with the log-probs of the choices; empty for generated texts."""
    answer: LoggedAnswer | None
    """The generated texts with their grade; None for choices."""
    metric: str | None
    """The metric that grades the row; None if none does."""
    prompt: str | Messages
    """The prompt as the model read it, or the messages of a chat."""
    continuations: tuple[str, ...]
    """The text of each choice as it follows the prompt, with its leading delimiter; empty for free
    answers."""


def read_rows(path: Path) -> tuple[list[tuple[int, Row]], list[str]]:
    """The numbered rows of a file for one filter, and the names of all filters, the chosen one first.

    Rows are lines of JSONL, items of a JSON list or rows of Parquet, numbered from 1. lm-eval writes every
    document once per filter, with the same response. A flexible filter is preferred, because a strict one
    grades an answer's form. Otherwise the first filter is chosen. Raises InputError for a broken line or
    file, and for a document that not every filter has.
    """
    read = {".parquet": _read_parquet_rows, ".json": _read_json_rows}.get(plain_suffix(path), read_jsonl)
    documents: dict[str, dict[str, int]] = {}
    kept: list[tuple[int, Row]] = []
    chosen = ""
    for number, row in read(path):
        name = str(row.get("filter"))[:60]
        documents.setdefault(name, {})[str(row.get("doc_id"))[:60]] = number
        if not kept or ("flexible" in name and "flexible" not in chosen):
            kept, chosen = [], name
        if name == chosen:
            kept.append((number, row))
    for name, numbers in documents.items():
        for other in documents.values():
            for doc_id in other.keys() - numbers.keys():
                raise InputError(
                    f"{name_row(path)} {other[doc_id]}: document {doc_id} has no row of the filter {name!r}, "
                    "which others have; write the log again"
                )
    return kept, [chosen, *(name for name in documents if name != chosen)]


def name_row(path: Path) -> str:
    """The words that precede a row's number in messages, such as "FILE, line"."""
    return f"{path}, {'line' if plain_suffix(path) == '.jsonl' else 'row'}"


def sample(row: Row, config: Row) -> LoggedSample:
    """The sample in a row of a log. `config` is the task's part of the run's results file.

    Raises UnsupportedTaskError for a task that cannot be imported. Raises ValueError, KeyError or the like
    for a row that is no sample of lm-eval.
    """
    doc_id = row["doc_id"]
    if not isinstance(doc_id, int) or isinstance(doc_id, bool) or abs(doc_id) >= 2**63:
        raise ValueError(f"doc_id {doc_id!r} is not a whole number")
    arguments = [_read_list(given, "arg_") for given in _read_list(row["arguments"], "gen_args_")]
    responses = row["resps"]
    if not isinstance(responses, list) or len(arguments) != len(responses):
        raise ValueError(f"the row has {len(responses)} resps for {len(arguments)} requests")
    doc = row.get("doc") or {}
    doc_hash = row.get("doc_hash")
    if not isinstance(doc_hash, str | None) or not isinstance(doc, Mapping):
        raise ValueError(f"doc_hash {doc_hash!r:.60} is not text, or doc {doc!r:.60} no object")
    if len(arguments[0]) == 1:
        raise UnsupportedTaskError("the task has neither choices nor generated answers")
    prompt = read_prompt(arguments[0][0])
    common = {"doc_hash": doc_hash, "question": _render_question(config.get("doc_to_text"), doc, prompt)}
    if isinstance(arguments[0][1], Mapping):
        if len(arguments) > 1:
            raise UnsupportedTaskError(
                "the task has several generated texts a document, from several prompts"
            )
        metric = _find_metric(row)
        answer, document = (
            None if metric is None else _read_answer(row, metric, responses[0]),
            {"gold": _read_gold(row)},
        )
        return LoggedSample(doc_id, common | document, [], answer, metric, prompt, ())
    if len(arguments) < 2 or any(len(each) != 2 for each in arguments):
        raise UnsupportedTaskError("the task has neither choices nor generated answers")
    document, scores = _read_choices(row, doc, arguments, responses, config)
    continuations = tuple(str(each) for _, each in arguments[: len(document["choices"])])
    metric = None if row.get("acc") is None else "acc"
    return LoggedSample(doc_id, common | document, scores, None, metric, prompt, continuations)


def read_prompt(value: Any) -> str | Messages:
    """A prompt's text, or the (role, text) of a chat's messages, which lm-eval logs as JSON in a list of one.
    Raises ValueError for anything else."""
    single = value[0] if isinstance(value, list) and len(value) == 1 else value
    listed = single if isinstance(single, list) else value
    if isinstance(single, str):
        listed = _parse_json(single) if single.lstrip().startswith("[{") else None
    if isinstance(listed, list) and listed and all(isinstance(m, Mapping) and "role" in m for m in listed):
        return tuple((str(message["role"]), _read_content(message.get("content"))) for message in listed)
    if not isinstance(single, str):
        raise ValueError(f"the prompt {value!r:.60} is neither text nor a chat's messages")
    return single


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read_content(value: Any) -> str:
    """The text of a message, joined if it comes in parts."""
    parts = value if isinstance(value, list) else [value]
    return "".join(part if isinstance(part, str) else str((part or {}).get("text", "")) for part in parts)


def _read_choices(
    row: Row,
    doc: Row,
    arguments: Sequence[Sequence[Any]],
    responses: Sequence[Any],
    config: Row,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    # Requests beyond the choices are unconditional repetitions for acc_mutual_info.
    n = len(arguments)
    if n % 2 == 0 and arguments[0][0] and not any(context for context, _ in arguments[n // 2 :]):
        n //= 2
    if any(context != arguments[0][0] for context, _ in arguments[:n]):
        raise UnsupportedTaskError("the task has one prompt per choice")
    if wrong := [each for _, each in arguments[:n] if not isinstance(each, str)]:
        raise ValueError(f"the choice {wrong[0]!r:.60} is not text")
    # Chats have no delimiter between the prompt and a choice, so it may be missing.
    delimiter = str(config.get("target_delimiter", " "))
    choices = [continuation.removeprefix(delimiter) for _, continuation in arguments[:n]]
    scored = [response[0] for response in responses[:n]]
    logprobs = [_read_logprob(logprob) for logprob, _ in scored]
    greedy = [{"True": True, "False": False}[str(is_greedy)] for _, is_greedy in scored]
    label = _read_label(row, doc, choices, logprobs, config)
    gold = choices[label] if label >= 0 else _read_target(row)
    document = {"label": label, "choices": choices, "gold": gold}
    return document, [{"choice_logprobs": logprobs, "is_greedy": greedy}]


def _read_logprob(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"the log-prob {value!r:.60} is not a number")
    if (number := float(value)) > _SCORE_ROUNDING:
        raise ValueError(f"the log-prob {value!r:.60} is above 0")
    return number


def _read_label(row: Row, doc: Row, choices: Sequence[str], logprobs: Sequence[float], config: Row) -> int:
    """The index of the right choice; -1 if the target is no choice. A log writes an index and a text alike,
    so the grade may have to decide."""
    target = _read_target(row)
    as_index = int(target) if target.isdecimal() and int(target) < len(choices) else -1
    as_text = choices.index(target) if target in choices else -1
    field = config.get("doc_to_target")
    is_text = isinstance(field, str) and isinstance(doc.get(field), str)
    candidates = [as_text, as_index] if is_text else [as_index, as_text]
    labels = [label for label in candidates if label >= 0] or [-1]
    if "acc" not in row or row["acc"] is None:
        return labels[0]
    if is_right(row["acc"]) is None:
        raise UnsupportedTaskError("the task's choices are not graded by the likeliest one")
    predicted = max(range(len(choices)), key=lambda i: logprobs[i])
    for label in labels:
        if (predicted == label) == (float(row["acc"]) == 1):
            return label
    if target.startswith("["):
        raise UnsupportedTaskError("the task has several correct choices")
    raise ValueError(
        f"acc is {row['acc']}, but the most likely choice is {choices[predicted]!r} and the target {target!r}"
    )


def _find_metric(row: Row) -> str | None:
    """The metric that grades a generated answer: the first of GRADE_METRICS in the row, else the row's only
    metric."""
    named = next((name for name in GRADE_METRICS if row.get(name) is not None), None)
    metrics = row.get("metrics")
    alone = metrics[0] if isinstance(metrics, list) and len(metrics) == 1 else None
    return named or (alone if isinstance(alone, str) and row.get(alone) is not None else None)


def _read_answer(row: Row, metric: str, response: Any) -> LoggedAnswer:
    if not isinstance(response, list) or not response or not all(isinstance(t, str | None) for t in response):
        raise ValueError(f"resps {response!r:.60} are not a list of texts")
    filtered = row.get("filtered_resps")
    for _ in range(2):
        filtered = filtered[0] if isinstance(filtered, list) and len(filtered) == 1 else filtered
    text_found = filtered if isinstance(filtered, str) and filtered.strip("[] ") != "invalid" else None
    is_comparable = metric in GRADE_METRICS and metric != "prompt_level_strict_acc"
    return LoggedAnswer(
        tuple(text or "" for text in response), text_found, is_right(row[metric]), is_comparable
    )


def _read_gold(row: Row) -> str:
    """The canonical gold answer. If the target has several aliases, it is the first."""
    target = _read_target(row)
    if target.startswith("["):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            aliases = literal_eval(target)
            target = aliases[0] if aliases and all(isinstance(each, str) for each in aliases) else target
    gold = extract_answer(target) if "####" in target else normalise(target)
    return gold or UNKNOWN_GOLD


def _read_target(row: Row) -> str:
    target = row["target"]
    if isinstance(target, bool) or not isinstance(target, str | int | float | list):
        raise ValueError(f"target {target!r:.60} is not text")
    return str(target)


def _read_list(value: Any, prefix: str) -> list[Any]:
    """The items of a list. lm-eval may have stored it as fields `arg_0`, `arg_1`, ..., so that each file has
    one schema."""
    if not isinstance(value, Mapping):
        return list(value)
    names = sorted((name for name in value if name.startswith(prefix)), key=lambda n: int(n[len(prefix) :]))
    return [value[name] for name in names if value[name] is not None]


def _render_question(template: Any, doc: Row, prompt: str | Messages) -> str:
    """The document's own part of the prompt, by the task's template. If that fails, it is the whole prompt,
    or its last message."""
    read = prompt if isinstance(prompt, str) else "\n".join(content for _, content in prompt)
    if isinstance(template, str):
        own = doc[template] if template in doc else _render(template, doc)
        if isinstance(own, str) and own.strip() and own.strip() in read:
            return own
    return prompt if isinstance(prompt, str) else prompt[-1][1]


def _render(template: str, doc: Row) -> str | None:
    try:
        return str(_compile(template).render(**doc))
    # A template can fail in any way that its filters can.
    except Exception:
        return None


@cache
def _compile(template: str) -> Any:
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # The template comes with somebody's log: it may format a document, and do nothing else.
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(template)


def _read_json_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Yields the numbered rows of a .json file of earlier versions of lm-eval, which is one JSON list or
    JSONL."""
    with open_plain(path) as file:
        is_list = file.read(64).lstrip().startswith(b"[")
    if not is_list:
        yield from read_jsonl(path)
        return
    for number, row in enumerate(read_json(path, "write the log again"), 1):
        if not isinstance(row, dict):
            raise InputError(f"{path}, row {number}: not a JSON object: {str(row)[:60]}")
        yield number, row


def _read_parquet_rows(path: Path) -> Iterator[tuple[int, Row]]:
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1000):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable Parquet file: {first_line(error)}") from None

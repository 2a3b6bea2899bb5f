"""One sample of lm-eval's --log_samples: its document, and the model's response."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.reading import Row, first_line, read_json, read_jsonl
from rlfocal.extraction.answers import extract_answer
from warehouse.answers import normalise


class UnsupportedTaskError(Exception):
    """The task is neither scored choices nor graded answers; says what it is."""


class LoggedSample(NamedTuple):
    """Columns of the tables `docs` and `scores` of an import, without the keys."""

    doc_id: int
    document: dict[str, Any]
    scores: list[dict[str, Any]]
    prompt: str
    """As the model read it."""
    continuations: tuple[str, ...]
    """What follows the prompt, one a choice, each with its leading delimiter; empty for answers."""


def read_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Numbered rows of a JSONL file (its lines, from 1), a JSON list or a Parquet file, one filter's only.

    lm-eval writes every document once per filter; the model's response is the same in each.
    Raises InputError for a broken line or file.
    """
    chosen = None
    read = {".parquet": _parquet, ".json": _json}.get(path.suffix, read_jsonl)
    for number, row in read(path):
        chosen = row.get("filter") if chosen is None else chosen
        if row.get("filter", chosen) == chosen:
            yield number, row


def sample(row: Row, config: Row) -> LoggedSample:
    """Reads a row; `config` is what the run's results file says of the task.

    Raises UnsupportedTaskError, or ValueError, KeyError, ... if the row is not a sample of lm-eval."""
    doc_id = row["doc_id"]
    if not isinstance(doc_id, int) or isinstance(doc_id, bool) or abs(doc_id) >= 2**63:
        raise ValueError(f"doc_id {doc_id!r} is not a whole number")
    arguments = [_list(given, "arg_") for given in _list(row["arguments"], "gen_args_")]
    responses = row["resps"]
    if len(arguments) != len(responses):
        raise ValueError(f"{len(responses)} resps for {len(arguments)} requests")
    doc = row.get("doc") or {}
    doc_hash = row.get("doc_hash")
    if not isinstance(doc_hash, str | None):
        raise ValueError(f"doc_hash {doc_hash!r:.60} is not text")
    prompt = str(arguments[0][0])
    common = {
        "doc_hash": doc_hash,
        "question": _question(config.get("doc_to_text"), doc, prompt),
    }
    if len(arguments[0]) == 2 and isinstance(arguments[0][1], Mapping):
        document, scores = _answers(row, responses)
        continuations: tuple[str, ...] = ()
    elif len(arguments) > 1 and all(len(each) == 2 for each in arguments):
        document, scores = _choices(row, doc, arguments, responses, config)
        continuations = tuple(str(each) for _, each in arguments[: len(document["choices"])])
    else:
        raise UnsupportedTaskError("neither choices nor generated answers")
    return LoggedSample(doc_id, common | document, scores, prompt, continuations)


def _choices(
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
    if len({context for context, _ in arguments[:n]}) > 1:
        raise UnsupportedTaskError("one prompt per choice")
    # Chats have no delimiter between the prompt and a choice, so it may be missing.
    delimiter = str(config.get("target_delimiter", " "))
    choices = [str(continuation).removeprefix(delimiter) for _, continuation in arguments[:n]]
    scored = [response[0] for response in responses[:n]]
    if any(isinstance(logprob, bool) for logprob, _ in scored):
        raise ValueError(f"resps {scored!r:.60} hold a boolean for a log-prob")
    logprobs = [float(logprob) for logprob, _ in scored]
    label = _label(row, doc, choices, logprobs, config)
    gold = choices[label] if label >= 0 else str(row["target"])
    document = {"label": label, "choices": choices, "gold": gold}
    is_greedy = [str(greedy) == "True" for _, greedy in scored]
    return document, [{"choice_logprobs": logprobs, "is_greedy": is_greedy}]


def _label(row: Row, doc: Row, choices: Sequence[str], logprobs: Sequence[float], config: Row) -> int:
    """The right choice; -1 where the target is none of them. On disk an index and a text look alike."""
    target = str(row["target"])
    as_index = int(target) if target.isdecimal() and int(target) < len(choices) else -1
    as_text = choices.index(target) if target in choices else -1
    field = config.get("doc_to_target")
    is_text = isinstance(field, str) and isinstance(doc.get(field), str)
    candidates = [as_text, as_index] if is_text else [as_index, as_text]
    found = [label for label in candidates if label >= 0] or [-1]
    if "acc" not in row or row["acc"] is None:
        return found[0]
    if float(row["acc"]) not in (0, 1):
        raise UnsupportedTaskError("choices that are not graded by the most likely one")
    predicted = max(range(len(choices)), key=lambda i: logprobs[i])
    for label in found:
        if (predicted == label) == (float(row["acc"]) == 1):
            return label
    if target.startswith("["):
        raise UnsupportedTaskError("several correct choices")
    raise ValueError(
        f"acc is {row['acc']}, but the most likely choice is {choices[predicted]!r} and the target {target!r}"
    )


def _answers(row: Row, responses: Sequence[Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    target = str(row["target"])
    if "exact_match" not in row:
        raise UnsupportedTaskError("generated texts that are not graded by exact_match")
    if target.startswith("["):
        raise UnsupportedTaskError("several correct answers")
    gold = extract_answer(target) if "####" in target else normalise(target)
    if gold is None:
        raise UnsupportedTaskError(f"no gold answer in {target!r:.80}")
    texts = [str(text) for text in responses[0]]
    return {"gold": gold}, [{"pass": i, "answer": text} for i, text in enumerate(texts)]


def _list(given: Any, prefix: str) -> list[Any]:
    """lm-eval names the items of a list (`arg_0`, `arg_1`, ...) so that each file has one schema."""
    if not isinstance(given, Mapping):
        return list(given)
    names = sorted((name for name in given if name.startswith(prefix)), key=lambda n: int(n[len(prefix) :]))
    return [given[name] for name in names if given[name] is not None]


def _question(template: Any, doc: Row, prompt: str) -> str:
    """The document's own part of the prompt, as the task's template has it; the prompt where that fails."""
    if isinstance(template, str):
        own = doc[template] if template in doc else _render(template, doc)
        if isinstance(own, str) and own.strip() and own.strip() in prompt:
            return own
    return prompt


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


def _json(path: Path) -> Iterator[tuple[int, Row]]:
    """Before it wrote JSONL, lm-eval wrote one list, or lines under the name of JSON."""
    with path.open("rb") as file:
        is_list = file.read(64).lstrip().startswith(b"[")
    if not is_list:
        yield from read_jsonl(path)
        return
    for number, row in enumerate(read_json(path, "write the log again"), 1):
        if not isinstance(row, dict):
            raise InputError(f"{path}, row {number}: not a JSON object: {str(row)[:60]}")
        yield number, row


def _parquet(path: Path) -> Iterator[tuple[int, Row]]:
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1000):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{path} is not a readable Parquet file: {first_line(error)}") from None

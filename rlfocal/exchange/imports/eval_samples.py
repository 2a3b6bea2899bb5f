"""One instance-level result of Every Eval Ever: its document, the model's answer and its grade."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlfocal.exchange.imports.graded import GradedAnswer, forms, token_count

Row = Mapping[str, Any]
LIBRARY = "rlfocal"
"""The eval_library of our own exports."""


@dataclass(frozen=True)
class EvalSample:
    """A line."""

    path: Path
    line: int
    benchmark: str
    task: str
    sample_id: str
    metric: str | None
    """Its evaluation_result_id."""
    score: float
    right: bool | None
    """None if the score is neither 0 nor 1."""
    document: dict[str, Any]
    """Columns of the table `docs`, without the keys."""
    answer: GradedAnswer | list[dict[str, Any]]
    """Of our own exports, the columns of the table `scores`, without the keys."""


def eval_sample(row: Row, aggregate: Row, path: Path, line: int, benchmark: str | None) -> EvalSample:
    """Reads a line. Raises KeyError, TypeError or ValueError if it is not as the schema says."""
    model_id, name = _text(row, "model_id"), _text(row, "evaluation_name")
    collection = _text(row, "evaluation_id").partition(f"/{model_id}/")[0].partition("/")[0]
    evaluation = row["evaluation"]
    score, right = evaluation["score"], evaluation["is_correct"]
    if not isinstance(right, bool):
        raise TypeError(f"is_correct {right!r:.60} is neither true nor false")
    if not isinstance(score, int | float):
        raise TypeError(f"score {score!r:.60} is not a number")
    grade = bool(score) if score in (0, 1) else None
    if grade is not None and grade != right:
        raise ValueError(f"score {score} and is_correct {str(right).lower()} contradict each other")
    metric = row.get("evaluation_result_id")
    is_own = (aggregate.get("eval_library") or {}).get("name") == LIBRARY
    details = dict(row.get("metadata") or {}) if is_own else {}
    model = str(aggregate["model_info"]["name"]) if is_own else model_id
    document, answer = _own(row, details, model) if is_own else _foreign(row, model, right)
    return EvalSample(
        path=path,
        line=line,
        benchmark=benchmark or (details["benchmark"] if is_own else collection),
        task=details["task"] if is_own else _task(name),
        sample_id=_text(row, "sample_id"),
        metric=None if metric is None else str(metric),
        score=score,
        right=grade,
        document=document,
        answer=answer,
    )


def _text(row: Row, name: str) -> str:
    value = row[name]
    if not isinstance(value, str) or not value:
        raise TypeError(f"{name} {value!r:.60} is not text")
    return value


def _task(name: str) -> str:
    """Files are named after tasks: `gsm8k/strict-match` becomes `gsm8k-strict-match`."""
    return name.strip().lstrip(".").replace("/", "-").replace("\\", "-").replace("..", "-")


def _references(row: Row) -> list[str]:
    """Before 0.2.2 there was one, as text."""
    given = row["input"]["reference"]
    if not isinstance(given, str | list):
        raise TypeError(f"reference {given!r:.60} is not a list")
    return [given] if isinstance(given, str) else [str(one) for one in given]


def _foreign(row: Row, model: str, right: bool) -> tuple[dict[str, Any], GradedAnswer]:
    """The first of several reference answers stands for all; the grade considers them all."""
    references = [text for text in _references(row) if text.strip()]
    output = row.get("output") or {}
    texts = [str(text) for text in output.get("raw") or ()]
    final = [item for item in row["answer_attribution"] if item.get("is_terminal")]
    extracted = [str(item["extracted_value"]) for item in final[-1:]]
    usage = row.get("token_usage") or {}
    answer = GradedAnswer(
        model=model,
        said=forms(*extracted, *texts[:1]),
        right=right,
        text=next(iter(texts + extracted), None),
        n_tokens=token_count("output_tokens", usage.get("output_tokens")),
        n_prompt_tokens=token_count("input_tokens", usage.get("input_tokens")),
    )
    return {"question": str(row["input"]["raw"]), "gold": references[0] if references else None}, answer


def _own(row: Row, details: Mapping[str, str], model: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The document and the scores of our own export, which has log-probs or every sampled answer."""
    document: dict[str, Any] = {
        "doc_hash": details["doc_hash"],
        "split": details["split"],
        "question": row["input"]["raw"] or None,
        "gold": details.get("gold"),
    }
    if "choice_logprobs" in details:
        document |= {"label": int(details["label"]), "choices": row["input"].get("choices")}
        logprobs = list(map(float, json.loads(details["choice_logprobs"])))
        return document, [{"model": model, "choice_logprobs": logprobs}]
    answers, texts = json.loads(details["answers"]), row["output"]["raw"]
    if len(answers) != len(texts):
        raise ValueError(f"{len(answers)} answers for {len(texts)} texts")
    return document, [
        {"model": model, "pass": i, "answer": answer, "text": text or None}
        for i, (answer, text) in enumerate(zip(answers, texts, strict=True))
    ]

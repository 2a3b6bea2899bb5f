"""Answers as models write them: a corpus with sources, and lm-eval's own filters as its oracle."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import lm_eval
import pytest
import yaml
from lm_eval.api.metrics import exact_match_hf_evaluate
from lm_eval.filters.extraction import RegexFilter
from lm_eval.tasks.drop.utils import get_metrics
from lm_eval.tasks.hendrycks_math.utils import is_equiv, last_boxed_only_string, remove_boxed

from rlfocal.extraction.answers import extract_answer, extract_text
from warehouse.comparison import normalise

Grader = Callable[[str, str], bool | None]
"""Whether a text is right, given the gold answer; None where nothing is found in it."""
READ = {"number": extract_answer, "text": extract_text}
ROWS = [json.loads(line) for line in Path(__file__).with_name("answer_styles.jsonl").read_text().splitlines()]


@cache
def task(path: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((Path(lm_eval.__file__).parent / "tasks" / path).read_text())
    return read


def exactly(path: str, said: str, gold: str) -> bool:
    metric = task(path)["metric_list"][0]
    options = ("regexes_to_ignore", "ignore_case", "ignore_punctuation")
    found = exact_match_hf_evaluate(
        [said], [gold], **{name: metric[name] for name in options if name in metric}
    )
    return bool(found["exact_match"])


def by_regex(path: str, name: str) -> Grader:
    """The task's own filter, and its own metric."""
    [steps] = (entry["filter"] for entry in task(path)["filter_list"] if entry["name"] == name)
    settings = {key: value for key, value in steps[0].items() if key != "function"}

    def grade(text: str, gold: str) -> bool | None:
        [[said]] = RegexFilter(**settings).apply([[text]], [{}])
        return None if said == "[invalid]" else exactly(path, said, gold)

    return grade


def in_box(text: str, gold: str) -> bool | None:
    """Hendrycks' rule for what is right, on his rule for where it stands."""
    box = last_boxed_only_string(text)
    try:
        return None if box is None else is_equiv(remove_boxed(box), gold)
    except AssertionError:  # lm-eval's finds \fbox{} and cannot open it
        return None


def verbatim(text: str, gold: str) -> bool:
    path = "triviaqa/default.yaml"
    for stop in task(path)["generation_kwargs"]["until"]:
        text = text.split(stop)[0]
    return exactly(path, text.strip(), gold)


def drop(text: str, gold: str) -> bool:
    return bool(get_metrics([text.split(".")[0]], (gold,))[0])  # "." is the task's stop string


GSM8K, COT, BBH = "gsm8k/gsm8k.yaml", "gsm8k/gsm8k-cot.yaml", "bbh/cot_fewshot/_cot_fewshot_template_yaml"
GRADERS: dict[str, dict[str, Grader]] = {
    "gsm8k": {name: by_regex(GSM8K, name) for name in ("strict-match", "flexible-extract")},
    "gsm8k_cot": {name: by_regex(COT, name) for name in ("strict-match", "flexible-extract")},
    "math": {"boxed": in_box},
    "bbh": {"get-answer": by_regex(BBH, "get-answer")},
    "triviaqa": {"exact_match": verbatim},
    "drop": {"em": drop},
    "none": {},
}


def name_row(row: dict[str, Any]) -> str:
    return f"{row['source']}: {row['text'][-40:]!r}"


@pytest.mark.parametrize("row", ROWS, ids=name_row)
def test_the_answer_of_each_style_is_found(row: dict[str, Any]) -> None:
    gold = normalise(row["gold"])
    said = READ[row["reads"]](row["text"])
    assert said == row.get("says", gold)
    assert (said == gold) is row["right"]


@pytest.mark.parametrize("row", ROWS, ids=name_row)
def test_lm_evals_own_filters_grade_alike_except_where_a_reason_is_given(row: dict[str, Any]) -> None:
    is_right = READ[row["reads"]](row["text"]) == normalise(row["gold"])
    grades = {name: grade(row["text"], row["gold"]) for name, grade in GRADERS[row["benchmark"]].items()}
    others = {name for name, grade in grades.items() if grade is not None and grade != is_right}
    assert others == set(row.get("differs", {}))

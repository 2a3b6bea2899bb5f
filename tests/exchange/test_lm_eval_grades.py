"""lm-eval's aggregates of graded tasks are ours on its imported logs; filters and metrics are its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.lm_eval_files import log_with_lm_eval

from rlfocal.exchange.imports.lm_eval import import_lm_eval
from warehouse import Warehouse

N = 12
DECLARED = {
    "bbh": ("bbh/cot_fewshot/_cot_fewshot_template_yaml", "filter_list", "metric_list"),
    "gpqa": ("gpqa/cot_zeroshot/_gpqa_cot_zeroshot_yaml", "filter_list", "metric_list"),
    "gsm8k": ("gsm8k/gsm8k.yaml", "filter_list", "metric_list"),
    "mmlu_pro": ("mmlu_pro/_default_template_yaml", "filter_list", "metric_list"),
    "triviaqa": ("triviaqa/default.yaml", "filter_list", "metric_list", "doc_to_target"),
}
"""Tasks of lm-eval whose definition is taken as it stands, and which parts of it."""
GRADERS = """
from lm_eval.tasks.drop.utils import process_results as drop
from lm_eval.tasks.hendrycks_math.utils import process_results as math

def two_levels(doc, results):
    return {**math(doc, results), "math_verify": 1}

def instructions(doc, results):
    kept = [",", "x"][len(results[0]) % 2] not in results[0]
    return {
        "prompt_level_strict_acc": kept, "inst_level_strict_acc": [kept, True],
        "prompt_level_loose_acc": True, "inst_level_loose_acc": [True, True],
    }

def share(items):
    flat = [item for kept in items for item in kept]
    return sum(flat) / len(flat)
"""
LETTERS = ["B", "C", "A", "D"]
REPLIES: dict[str, tuple[list[str], list[str]]] = {
    "bbh": (
        ["(B)", "valid", "Yes", "5"],
        [
            "There are 2, so the answer is {}.",
            "the answer is 3 or {}",
            "I think {}",
            "so 1: the answer is {}.",
        ],
    ),
    "gpqa": (
        ["(B)", "(C)", "(A)", "(D)"],
        ["First (A) is wrong. The answer is {}.", "Not (A), but {}", "5", "It is {} of 4."],
    ),
    "gsm8k": (
        ["so\n#### 12", "so\n#### 1,234", "so\n#### 3.5", "so\n#### -7"],
        ["3 + 4\n#### 12", "The result is 1,234 and not 7.", "3.50 dollars\n#### 3.5", "It is minus seven."],
    ),
    "mmlu_pro": (LETTERS, ["There are 2. The answer is ({}).", "answer is {}", "{}, I guess", "5"]),
    "triviaqa": (["Paris", "U.S.", "The Beatles", "7"], ["{}", " PARIS ", "Beatles!", "seven"]),
    "drop": (["Ann", "7", "two dogs", "May"], ["Ann", "the 7", "dogs", "{}"]),
    "math": (
        ["\\boxed{\\frac{1}{2}}", "\\boxed{x^2}"],
        ["so $\\frac12$ holds", "thus $x^2$", "5", "$x^{2}$"],
    ),
}
"""By task: gold answers, and the texts that a model says in turn ({}: the gold answer)."""


def declared(name: str) -> dict[str, Any]:
    import lm_eval

    loader = type("Loader", (yaml.SafeLoader,), {})
    loader.add_constructor("!function", lambda *_: None)  # type: ignore[attr-defined]
    path, *keys = DECLARED[name]
    whole = yaml.load((Path(lm_eval.__file__).parent / "tasks" / path).read_text(), loader)
    return {key: whole[key] for key in keys}


def documents(name: str) -> Iterator[dict[str, Any]]:
    golds, texts = REPLIES[name]
    for number in range(N):
        gold, text = golds[number % len(golds)], texts[(number // 2) % len(texts)]
        doc: dict[str, Any] = {
            "question": f"Which, {number}?",
            "answer": gold,
            "reply": text.replace("{}", gold),
        }
        if name == "triviaqa":
            doc["answer"] = {"aliases": [f"no. {number}", gold, gold.lower()]}
        if name == "drop":
            doc["answers"] = [[gold], [f"{gold} of {number}"]]
        yield doc | {
            "solution": f"so ${gold}$",
            "target": gold,
            "problem": doc["question"],
            "choices": list("wxyz"),
        }


def task(folder: Path, name: str, docs: Iterable[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """The definition of a task with a data set of its own."""
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    return {
        "task": f"like_{name}",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(path)}},
        "test_split": "test",
        "doc_to_text": "{{question}}",
        **more,
    }


def generated(folder: Path, name: str, **more: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {"output_type": "generate_until", "doc_to_target": "{{answer}}"}
    usual |= {"generation_kwargs": {"until": ["Q:"]}}
    return task(folder, name, documents(more.pop("like", name)), **usual | more)


def chosen(folder: Path, name: str, *metrics: str) -> dict[str, Any]:
    docs = [{"question": f"Q{n}", "choices": ["no", "yes, all of it", "é"], "label": n % 3} for n in range(N)]
    own = {"output_type": "multiple_choice", "doc_to_choice": "{{choices}}", "doc_to_target": "{{label}}"}
    return task(folder, name, docs, **own, metric_list=[{"metric": metric} for metric in metrics])


def write_tasks(folder: Path) -> list[str]:
    (folder / "graders.py").write_text(GRADERS)
    mean = {"aggregation": "mean", "higher_is_better": True}
    levels = ("prompt_level_strict_acc", "prompt_level_loose_acc")
    listed = ("inst_level_strict_acc", "inst_level_loose_acc")
    tasks = [
        *(generated(folder, name, **declared(name)) for name in DECLARED),
        generated(
            folder, "math", process_results="!graders.math",
            metric_list=[{"metric": "exact_match", **mean}],
        ),
        generated(
            folder, "minerva", like="math", process_results="!graders.two_levels",
            metric_list=[{"metric": name, **mean} for name in ("exact_match", "math_verify")],
        ),
        generated(
            folder, "drop", process_results="!graders.drop", doc_to_target="{{answers|join(',')}}",
            metric_list=[{"metric": name, **mean} for name in ("em", "f1")],
        ),
        generated(
            folder, "ifeval", like="gpqa", process_results="!graders.instructions", doc_to_target=0,
            metric_list=[{"metric": name, **mean} for name in levels]
            + [{"metric": name, **mean, "aggregation": "!graders.share"} for name in listed],
        ),
        chosen(folder, "mmlu", "acc", "acc_norm"),
        chosen(folder, "bbh_choices", "acc_norm"),
    ]  # fmt: skip
    for about in tasks:
        text = yaml.safe_dump(about).replace("'!graders.", "!function 'graders.")
        (folder / f"{about['task']}.yaml").write_text(text)
    return [about["task"] for about in tasks]


AGGREGATES = {
    "bbh": "exact_match,get-answer",
    "gpqa": "exact_match,flexible-extract",
    "gsm8k": "exact_match,flexible-extract",
    "mmlu_pro": "exact_match,custom-extract",
    "triviaqa": "exact_match,remove_whitespace",
    "math": "exact_match,none",
    "minerva": "exact_match,none",
    "drop": "em,none",
    "ifeval": "prompt_level_strict_acc,none",
    "mmlu": "acc,none",
}


@pytest.mark.slow
def test_aggregates_are_lm_evals(tmp_path: Path, warehouse: Warehouse) -> None:
    """None is all right or all wrong."""
    names = write_tasks(tmp_path)
    _, results = log_with_lm_eval(tmp_path / "out", tmp_path, names, "canned", itemgetter("reply"))
    report = import_lm_eval(warehouse, [tmp_path / "out"], model="canned")
    assert report.left == ()
    ours = dict(warehouse.rows("SELECT task, accuracy FROM accuracy"))
    for name, aggregate in AGGREGATES.items():
        assert ours[f"like_{name}"] == pytest.approx(results[f"like_{name}"][aggregate], abs=1e-12), name
        assert 0 < ours[f"like_{name}"] < 1, name
    norm = dict(warehouse.rows("SELECT task, acc_norm FROM accuracy_norm"))
    for name in ("mmlu", "bbh_choices"):
        assert norm[f"like_{name}"] == pytest.approx(results[f"like_{name}"]["acc_norm,none"], abs=1e-12)
    assert {note.split(" ")[0] for note in report.notes if "filter" in note} == {
        "like_gpqa/like_gpqa",
        "like_gsm8k/like_gsm8k",
    }
    compared = dict(warehouse.rows("SELECT benchmark, comparison FROM benchmarks"))
    assert compared["like_mmlu"] is None
    assert compared["like_mmlu_pro"] == "default"
    assert compared["like_triviaqa"] == compared["like_ifeval"] == "source"

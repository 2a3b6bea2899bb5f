"""`import every-eval-ever`: answers that anybody graded, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from support.every_eval_ever_files import FOREIGN, Row, line, write

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.every_eval_ever import import_every_eval_ever
from warehouse import Warehouse

SCHEMAS = Path(__file__).parent / "every_eval_ever"


def test_foreign_answers_are_as_right_as_they_say(warehouse: Warehouse, tmp_path: Path) -> None:
    schema = json.loads((SCHEMAS / "instance_level_eval.schema.json").read_text())
    for each in FOREIGN:
        Draft202012Validator(schema).validate(each)
    write(tmp_path / "a_samples.jsonl", FOREIGN)
    other = [each | {"model_id": "org/n", "evaluation_id": "gsm8k/org/n/177"} for each in FOREIGN]
    write(
        tmp_path / "b_samples.jsonl",
        [each | {"evaluation": {"score": 0, "is_correct": False}} for each in other],
    )
    report = import_every_eval_ever(warehouse, [tmp_path])
    assert (report.benchmarks, report.models) == (("gsm8k",), ("org/m", "org/n"))
    assert warehouse.rows("SELECT task, model, accuracy FROM accuracy ORDER BY model") == [
        ("gsm8k-strict-match", "org/m", 2 / 3),
        ("gsm8k-strict-match", "org/n", 0.0),
    ]
    assert warehouse.rows("SELECT doc_id, question, gold FROM docs ORDER BY doc_id") == [
        (i, f"Question q{i + 8}?", "18") for i in range(3)
    ]
    assert warehouse.rows(
        "SELECT answer, text, n_tokens FROM answer_passes WHERE model = 'org/m' ORDER BY doc_id"
    ) == [("17", "So it is 17.", 7), ("18", "So it is eighteen.", 7), ("18", "So it is 18.", 7)]


def test_several_attempts_are_passes(warehouse: Warehouse, tmp_path: Path) -> None:
    path = write(
        tmp_path / "a_samples.jsonl", [line("1", "18", True), line("1", "3", False), line("1", "3", False)]
    )
    import_every_eval_ever(warehouse, [path])
    assert warehouse.rows("SELECT doc_id, pass, answer FROM answer_passes ORDER BY pass") == [
        (1, 0, "18"),
        (1, 1, "3"),
        (1, 2, "3"),
    ]


def test_one_metric_counts(warehouse: Warehouse, tmp_path: Path) -> None:
    lines = [
        line(str(i), "18", right, evaluation_result_id=metric)
        for metric, right in (("acc,none", True), ("acc_norm,none", False))
        for i in range(2)
    ]
    path = write(tmp_path / "a_samples.jsonl", lines)
    with pytest.raises(
        InputError, match=r"several results an answer \(acc,none, acc_norm,none\); .*--metric"
    ):
        import_every_eval_ever(warehouse, [path])
    import_every_eval_ever(warehouse, [path], metric="acc_norm,none", benchmark="norm")
    import_every_eval_ever(warehouse, [path], metric="acc,none", benchmark="plain")
    assert warehouse.rows("SELECT benchmark, n, accuracy FROM accuracy ORDER BY ALL") == [
        ("norm", 2, 0.0),
        ("plain", 2, 1.0),
    ]


def test_conversations_and_fractions(warehouse: Warehouse, tmp_path: Path) -> None:
    agent = line("1", "18", True, interaction_type="agentic", output=None, evaluation_name="agent")
    graded = line("1", "18", False, evaluation_name="essay", evaluation={"score": 0.5, "is_correct": False})
    report = import_every_eval_ever(warehouse, [write(tmp_path / "a_samples.jsonl", [agent, graded])])
    assert report.left == ("gsm8k/essay (1 score other than 0 and 1, such as 0.5: neither right nor wrong)",)
    assert warehouse.rows("SELECT task, text, correct FROM answer_passes JOIN predictions USING (task)") == [
        ("agent", "18", True)
    ]


WRONG = {
    "another version": (
        FOREIGN[0] | {"schema_version": "1.0.0"},
        r"line 1: schema_version '1.0.0', but 0.2 and",
    ),
    "no grade": ({k: v for k, v in FOREIGN[0].items() if k != "evaluation"}, r"line 1: .*no 'evaluation'"),
    "a contradiction": (
        line("1", "18", True, evaluation={"score": 0, "is_correct": True}),
        r"score 0 .*contradict",
    ),
    "a grade in words": (
        line("1", "18", True, evaluation={"score": 1, "is_correct": "yes"}),
        r"neither true nor",
    ),
    "a score in words": (
        line("1", "18", True, evaluation={"score": "1", "is_correct": True}),
        r"not a number",
    ),
    "no input": (line("1", "18", True, input={"raw": "q"}), r"no 'reference'"),
    "negative tokens": (
        line("1", "1", True, token_usage={"output_tokens": -1}),
        r"-1 is not a count of tokens",
    ),
    "a number as id": (FOREIGN[0] | {"sample_id": 1}, r"sample_id 1 is not text"),
    "another question": (
        line("q9", "18", True, input={"raw": "?", "reference": ["18"]}),
        r"document 1 .*differs",
    ),
    "fewer documents": (
        line("q9", "18", True, model_id="org/n", evaluation_id="gsm8k/org/n/1"),
        r"no row for",
    ),
}


@pytest.mark.parametrize(("last", "reason"), WRONG.values(), ids=WRONG)
def test_bad_lines_are_refused(unwritten: Warehouse, tmp_path: Path, last: Row, reason: str) -> None:
    write(tmp_path / "a_samples.jsonl", [last])
    write(tmp_path / "b_samples.jsonl", FOREIGN)
    before = unwritten.snapshot()
    with pytest.raises(InputError, match=reason):
        import_every_eval_ever(unwritten, [tmp_path])
    assert unwritten.snapshot() == before

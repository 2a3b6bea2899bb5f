"""The answer parser is a table of cases; the public GSM8K answers are its corpus."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlfocal.extraction.answers import extract_answer, extract_text
from rlfocal.extraction.engine import Document, Sample
from rlfocal.extraction.rows import pass_rows
from rlfocal.extraction.tasks import TaskDocuments
from warehouse.answers import is_number, normalise

SOLUTIONS = [
    ("He has 3 + 4 = 7.\n#### 7", "7"),
    ("#### 1,234.00", "1234"),
    ("#### $1,234,567", "1234567"),
    ("#### -5", "-5"),
    ("####-5", "-5"),
    ("#### -$5.50", "-5.5"),
    ("#### $-5.50", "-5.5"),
    ("#### 1e3", "1000"),
    ("#### 1.5E-2", "0.015"),
    ("#### .5", "0.5"),
    ("#### 18 dollars", "18"),
    ("#### 50%", "50"),
    ("#### 18.", "18"),
    ("#### The answer is 18.", "18"),
    ("#### 3 * 6 = 18", "18"),
    ("#### 18\n#### 19", "18"),
    ("####\n18", "18"),
    ("#### Blue  Whale!", "blue whale"),
    ("5 apples ####", "5"),
    ("#### **", None),
    ("The answer is 18.", "18"),
    ("The answer is **1,000**", "1000"),
    ("\\boxed{42}", "42"),
    ("x=5", "5"),
    ("So 12-5", "5"),
    ("So 12 - 5 = 7 apples", "7"),
    ("It fell to -7 degrees", "-7"),
    ("It fell to \N{MINUS SIGN}7 degrees", "-7"),
    ("1, 2, 3", "3"),
    ("about 2 million", "2000000"),
    ("3.50", "3.5"),
    ("it costs $0.75.", "0.75"),
    ("no number here", None),
    ("", None),
    ("1e999999999", "999999999"),
    ("9" * 60, "9." + "9" * 59 + "e59"),
]

TEXTS = [
    ("Paris", "paris"),
    ("  Paris.\n\n", "paris"),
    ("It lies on the Seine.\nThe answer is: **Paris**", "paris"),
    ("The answer is Lyon. No,\nthe answer is Paris.", "paris"),
    ("ANSWER: Paris\nI am sure.", "paris"),
    ("Let me think.\nParis", "paris"),
    ("Of 3 cities,\n#### Paris, of course\nAnswer: Lyon", "paris, of course"),
    ("Answer: ", "answer"),
    ("#### \nAnswer: Paris", "paris"),
    ("The answer is 18.0 eggs", "18"),
    ("It has several answers", "it has several answers"),
    ("...\n", None),
    ("", None),
]

EQUAL = [
    ["18", "18.0", "$18", " 18 ", "18.", "+18", "18.000", "018", "1.8e1", "18 eggs", "(18)", "18%"],
    ["1234", "1,234", "1,234.00", "$1,234", "1.234e3", "1234 km/h"],
    ["-5", "-5.0", "-$5", "$-5", "\N{MINUS SIGN}5", "-5 degrees"],
    ["0", "-0", "0.00", "0e5"],
    ["0.5", ".5", "0.50", "5e-1", "5E-1"],
    ["2000000", "2 million", "$2 million", "2,000,000"],
    ["blue whale", "Blue Whale", "  blue\twhale.", '"BLUE WHALE"'],
    [
        "caf\N{LATIN SMALL LETTER E WITH ACUTE}",
        "Cafe\N{COMBINING ACUTE ACCENT}",
        "CAFE\N{COMBINING ACUTE ACCENT}",
    ],
    ["don't know", "Don\N{RIGHT SINGLE QUOTATION MARK}t know."],
]
DIFFERENT = ["18", "10 am", "10 pm", "10", "3/4", "3", "10:30", "1,2", "2 million", "2", "12", "2 dozen"]


@pytest.mark.parametrize(("text", "answer"), SOLUTIONS)
def test_solution(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


@pytest.mark.parametrize(("text", "answer"), TEXTS)
def test_text(text: str, answer: str | None) -> None:
    assert extract_text(text) == answer


@pytest.mark.parametrize(
    ("answer", "is_one"), [("18", True), ("-0.5", True), ("9.9e59", True), ("18 mm", False), ("b12", False)]
)
def test_numbers_and_texts_are_distinguished(answer: str, is_one: bool) -> None:
    assert is_number(answer) is is_one


@pytest.mark.parametrize(
    ("is_numeric", "answers"),
    [(True, ["18", None]), (False, ["so 18 it is", "paris"])],
)
def test_texts_are_answers_where_a_gold_answer_is_one(is_numeric: bool, answers: list[str | None]) -> None:
    documents = tuple(Document(i, "", "", None, "18", (), "", ()) for i in range(2))
    task = TaskDocuments("b", "t", "1", documents, ("test", "test"), None, 2, "", is_numeric=is_numeric)
    samples = [[Sample("So 18 it is.", 5, "stop", 7)], [Sample("Paris", 1, "stop", 7)]]
    assert pass_rows(task, "m", documents, samples)["answer"].to_pylist() == answers


@pytest.mark.parametrize("spellings", EQUAL)
def test_equal_answers_become_one_string(spellings: list[str]) -> None:
    assert {normalise(s) for s in spellings} == {spellings[0]}


def test_different_answers_stay_different() -> None:
    assert len({normalise(a) for a in DIFFERENT}) == len(DIFFERENT)


@pytest.mark.parametrize("nothing", [None, "", "  ", "...", '""'])
def test_nothing_is_none(nothing: str | None) -> None:
    assert normalise(nothing) is None


@given(st.text(max_size=40) | st.text("0123456789.,-+$e% ()a", max_size=12))
@example("..5.0")
@example("1e-41")
def test_normalise_is_idempotent(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**12), max_value=10**12))
def test_numbers_keep_their_value(number: Decimal) -> None:
    spelled = normalise(f"{number:,f}")
    assert spelled is not None
    assert Decimal(spelled) == number
    assert extract_answer(f"so it is ${number:f} in all") == spelled


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_public_gold_answer_parses(shared: Path, split: str) -> None:
    solutions = pq.read_table(shared / f"data/questions/gsm8k_{split}.parquet")["answer"].to_pylist()
    for solution in solutions:
        stated = solution.rsplit("####", 1)[1].strip().replace(",", "")
        assert extract_answer(solution) == str(Decimal(stated)), solution

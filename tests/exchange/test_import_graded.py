"""Answers with a grade are exactly as right as the grade says, and equal where their words are."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlfocal.base.errors import InputError
from rlfocal.exchange.imports.gathered import Gathered, natural
from rlfocal.exchange.imports.graded import UNKNOWN, GradedAnswer, GradedRows, forms, is_right
from rlfocal.exchange.imports.rows import check_rows
from warehouse.answers import normalise

WORDS = st.sampled_from(
    ["a", "B", "18", "18.0", "$18", "no", "", "()", "ç", UNKNOWN, "Unknown right answer."]
)
ANSWERS = st.lists(
    st.tuples(st.lists(WORDS, max_size=2), st.booleans()).map(
        lambda pair: GradedAnswer("", forms(*pair[0]), pair[1])
    ),
    min_size=1,
    max_size=6,
)


def settled(gold: str | None, answers: list[GradedAnswer]) -> tuple[str | None, list[str | None], GradedRows]:
    """The gold answer, and what is stored of each, in the form they are compared in."""
    rows = GradedRows("test", "", allow_missing=False)
    document = {"benchmark": "b", "task": "t", "doc_id": 0, "question": "q", "gold": gold}
    for i, answer in enumerate(answers):
        named = GradedAnswer(f"m{i}", answer.said, answer.right, attempt=answer.attempt)
        rows.add("f, row", i + 1, document, named)
    rows.settle()
    return normalise(rows.docs[0]["gold"]), [normalise(score["answer"]) for score in rows.scores], rows


@given(gold=st.none() | WORDS, answers=ANSWERS)
def test_correctness_follows_the_grade(gold: str | None, answers: list[GradedAnswer]) -> None:
    canonical, stored, rows = settled(gold, answers)
    assert canonical is not None
    assert [answer == canonical for answer in stored] == [answer.right for answer in answers]
    if normalise(gold) is not None:
        assert canonical == normalise(gold)
    for answer, kept in zip(answers, stored, strict=True):
        if not answer.right:
            assert kept is None or kept in answer.said
        if not answer.right and answer.said and answer.said[0] != canonical:
            assert kept == answer.said[0]
    with duckdb.connect() as scratch:
        Gathered.load(rows, scratch)
        check_rows(scratch, rows)


@given(answers=ANSWERS)
def test_the_order_of_models_decides_nothing(answers: list[GradedAnswer]) -> None:
    assert settled(None, answers)[0] == settled(None, answers[::-1])[0]


def test_without_a_gold_answer_the_most_frequent_right_answer_is_gold() -> None:
    said = [(("b",), True), (("a",), True), (("b",), True), (("c",), False), (("b",), False), ((), True)]
    gold, stored, rows = settled(None, [GradedAnswer("", words, right) for words, right in said])
    assert (gold, stored) == ("b", ["b", "b", "b", "c", None, "b"])
    assert rows.notes == [
        "1 document without a gold answer: what most models graded right say stands for it",
        "1 answer graded wrong though it reads like the gold answer: stored as wrong",
    ]
    assert settled(None, [GradedAnswer("", ("a",), False)])[0] == UNKNOWN
    assert settled(None, [GradedAnswer("", (words,), True) for words in "ba"])[0] == "a"


def test_the_other_words_of_a_wrong_answer_are_kept() -> None:
    """It was graded wrong, so something about it was: the whole text tells it from the gold answer."""
    gold, stored, rows = settled(
        "18", [GradedAnswer("", ("18", "18 or 19"), False), GradedAnswer("", ("x",), True)]
    )
    assert (gold, stored) == ("18", ["18 or 19", "18"])
    assert rows.notes[0] == (
        "1 answer graded right in other words than the gold answer's: stored as the gold answer"
    )


def test_other_documents_are_refused() -> None:
    rows = GradedRows("test", "", allow_missing=False)
    document = {"benchmark": "b", "task": "t", "doc_id": 3, "question": "q", "gold": "1"}
    rows.add("x.json, record", 4, document, GradedAnswer("m", ("1",), True))
    with pytest.raises(
        InputError, match=r"y.json, record 4: document 3 of b/t differs from x.json, record 4: gold"
    ):
        rows.add("y.json, record", 4, document | {"gold": "2"}, GradedAnswer("n", ("1",), True))


@pytest.mark.parametrize(
    ("score", "right"), [(1, True), (0.0, False), (True, True), (0.5, None), (1e-9, None)]
)
def test_scores(score: float, right: bool | None) -> None:
    assert is_right(score) is right


@pytest.mark.parametrize("score", [2, -0.1, float("nan"), float("inf"), "1", None, [1]])
def test_what_is_no_score(score: object) -> None:
    with pytest.raises(ValueError, match="is not a number from 0 to 1"):
        is_right(score)


def test_natural_order() -> None:
    assert sorted(["a.10", "a.9", "a", "b.1", "a.9.x"], key=natural) == ["a", "a.9", "a.9.x", "a.10", "b.1"]

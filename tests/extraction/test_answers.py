"""Numbers come back as themselves, thoughts never count, stored forms stay, and no text takes for ever."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from rlfocal.extraction.answers import extract_answer, extract_text
from rlfocal.extraction.engine import Document, Sample
from rlfocal.extraction.rows import pass_rows
from rlfocal.extraction.tasks import TaskDocuments
from warehouse.comparison import is_number, normalise

READERS = (extract_answer, extract_text)


class Style(NamedTuple):
    """How a number is written: `template` has an N for it."""

    template: str
    separator: str = ""
    point: str = "."
    zero: str = "0"
    minus: str = "-"

    def write(self, sign: str, whole: str, part: str) -> str:
        number = f"{int(whole):,}".replace(",", self.separator) + (self.point + part if part else "")
        other = {ord("0") + digit: chr(ord(self.zero) + digit) for digit in range(10)}
        return self.template.replace("N", (self.minus if sign else "") + number.translate(other))


STYLES = {
    "plain": Style("N"),
    "commas": Style("N", ","),
    "LaTeX commas": Style("$N$", "{,}"),
    "LaTeX commas and kerns": Style("$N$", ",\\!"),
    "LaTeX spaces": Style("\\(N\\)", "\\,"),
    "spaces": Style("N", " "),
    "spaces and a decimal comma": Style("N Euro", " ", ","),
    "thin spaces": Style("N kg", "\u2009"),
    "narrow no-break spaces": Style("N €", "\u202f", ","),
    "apostrophes": Style("N", "'"),
    "boxed": Style("\\boxed{N}"),
    "boxed, with a unit": Style("\\boxed{N \\text{ cm}}", "{,}"),
    "boxed dollars": Style("\\boxed{\\$N}", "{,}"),
    "bold": Style("**N**"),
    "percent": Style("N\\%"),
    "a code": Style("USD N", ","),
    "a sign before": Style("€N", ","),
    "a sign behind": Style("N €"),
    "full width": Style("N", "", "．", "０"),
    "Arabic": Style("N", "٬", "٫", "٠"),
    "Devanagari": Style("N", zero="०"),
    "Unicode's minus": Style("N", minus="−"),
}
POWERS = ["N \\times 10^{E}", "N × 10^E", "N*10^{E}", "$N\\cdot10^{ E }$", "NeE"]
FRACTIONS = ["N/D", "\\frac{N}{D}", "\\dfrac{ N }{ D }", "$\\tfrac{N}{D}$", "\\boxed{\\frac{N}{D}}"]
FRAMES = ["N", "so it is N", "#### N", "The answer is N.", "**Answer:** N\n\nChecked twice.", "答案是N。"]


numbers = given(
    sign=st.sampled_from(["", "-"]),
    whole=st.integers(1, 10**8).map(str),
    part=st.just("") | st.integers(0, 99).map("{:02}".format),
    frame=st.sampled_from(FRAMES),
)


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
@numbers
def test_a_number_comes_back_as_itself(style: Style, sign: str, whole: str, part: str, frame: str) -> None:
    written, number = style.write(sign, whole, part), normalise(f"{sign}{whole}.{part or 0}")
    assert number is not None
    assert Decimal(number) == Decimal(f"{sign}{whole}.{part or 0}")
    assert extract_answer(frame.replace("N", written)) == number
    # Alone, "1,50" may be a list.
    if style.point != "," or not part or int(whole) > 999:
        assert normalise(written) == number


@pytest.mark.parametrize("template", [*POWERS, *FRACTIONS])
@numbers
def test_powers_of_ten_and_fractions_are_numbers(
    template: str, sign: str, whole: str, part: str, frame: str
) -> None:
    places = len(part)
    written = template.replace("N", sign + whole + part).replace("D", str(10**places))
    number = normalise(f"{sign}{whole}.{part or 0}")
    assert extract_answer(frame.replace("N", written.replace("E", str(-places)))) == number


# The steps of a solution and its answer as chats show them; below, how each step is laid out.
MARKINGS = {
    "#### n": "STEPS\n#### GOLD",
    "#### n, and more": "STEPS\n#### GOLD\n\nThis took 3 steps.",
    "#### n, and another question": "STEPS\n#### GOLD\n\nQuestion: What is 3 + 4?\nAnswer: 7\n#### 7",
    "#### n, and another turn": "STEPS\n#### GOLD<|im_end|>\n<|im_start|>user\nAnd 7?",
    "the answer is n": "STEPS\nThe answer is GOLD.",
    "the answer first": "The answer is GOLD.\nSTEPS",
    "boxed": "STEPS\n\n$$\\boxed{GOLD}$$",
    "boxed first": "\\boxed{GOLD}\n\nSTEPS",
    "bold": "STEPS\nSo it is **GOLD** in 7 days.",
    "thought": "<think>STEPS\n#### 7</think>\n\nIt is GOLD.",
}
SHAPES: dict[str, Callable[[int, str], str]] = {
    "bullets": lambda i, step: f"- {step}",
    "numbered": lambda i, step: f"{i}. {step}",
    "bold numbers": lambda i, step: f"**{i}.** {step}",
    "bold headings": lambda i, step: f"**Step {i}:** {step}\n",
    "headings": lambda i, step: f"#### Step {i}:\n{step}\n",
    "numbered headings": lambda i, step: f"#### {i}. Count\n{step}\n",
    "LaTeX": lambda i, step: step.replace("*", "\\times").replace("$", "\\$"),
    "LaTeX commas": lambda i, step: step.replace(",", "{,}"),
    "displayed": lambda i, step: f"\\[\n{step}\n\\]",
}


@pytest.fixture(scope="module")
def solutions(shared: Path) -> list[tuple[list[str], str]]:
    """The steps of every public GSM8K solution of the test split, and its answer."""
    texts = pq.read_table(shared / "data/questions/gsm8k_test.parquet")["answer"].to_pylist()
    parts = (re.sub("<<.*?>>", "", text).split("\n####") for text in texts)
    return [([line for line in body.split("\n") if line.strip()], gold.strip()) for body, gold in parts]


@pytest.mark.parametrize("marking", MARKINGS.values(), ids=MARKINGS)
def test_a_marked_answer_is_found_in_every_public_solution(
    solutions: list[tuple[list[str], str]], marking: str
) -> None:
    shown = ((marking.replace("GOLD", gold).replace("STEPS", "\n".join(s)), gold) for s, gold in solutions)
    assert [gold for text, gold in shown if extract_answer(text) != normalise(gold)] == []


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_how_steps_are_laid_out_changes_no_answer(
    solutions: list[tuple[list[str], str]], shape: Callable[[int, str], str]
) -> None:
    plain = [extract_answer("\n".join(steps)) for steps, _ in solutions]
    shaped = ("\n".join(shape(i, step) for i, step in enumerate(steps, 1)) for steps, _ in solutions)
    assert list(map(extract_answer, shaped)) == plain
    right = [found == normalise(gold) for found, (_, gold) in zip(plain, solutions, strict=True)]
    assert sum(right) / len(right) > 0.95  # a few solutions end in another number than their answer


BLOCKS = ["<think>{}</think>", "<thinking>{}</thinking>", "[THINK]{}[/THINK]", "◁think▷{}◁/think▷"]
BLOCKS += ["{}</think>"]
BLOCKS += ["<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>"]
OPENINGS = ["<think>", "<reasoning>", "[THINK]", "<|channel|>analysis<|message|>"]
THOUGHTS = ["#### 72", "\\boxed{72", "The answer is 72.", "**72**", "<think>", "\n", "Question: "]
THOUGHTS += ["and 72 or so"]
THOUGHTS += ["</s>"]
SPOKEN = ["#### 18", "It is 18.", "\\boxed{18}", "The answer is 18, of 9 eggs.", "Paris", "Answer: (B)"]
SPOKEN += ["", "I pass."]


@given(
    block=st.sampled_from(BLOCKS),
    thought=st.lists(st.sampled_from(THOUGHTS) | st.text(max_size=9), max_size=6).map(" ".join),
    said=st.sampled_from(SPOKEN),
)
def test_what_a_closed_block_holds_never_counts(block: str, thought: str, said: str) -> None:
    # A block without an opening of its own begins at one in the thought; an answer may stand before that.
    assume(not block.startswith("{}") or "<think>" not in thought)
    for read in READERS:
        assert read(f"{block.format(thought)}\n{said}") == read(said)


@given(
    before=st.sampled_from(["", "\n", "Let me think of 3 ways. "]),
    thought=st.lists(st.sampled_from(THOUGHTS), max_size=6).map(" ".join),
    opening=st.sampled_from(OPENINGS),
)
def test_a_text_that_ends_in_its_thoughts_has_no_answer(before: str, thought: str, opening: str) -> None:
    assert [read(before + opening + thought) for read in READERS] == [None, None]


UNITS = ["1", "{", "}", "\\", "\\!", "\\text{", "\\frac{", "\\boxed{", "\\boxed 1", "#### ", "####\n", " "]
UNITS += ["\n", "½", "answer is ", "answer:\n", "<think>", "</think>", "<|channel|>final", "**1", "**1**"]
UNITS += ["- ", "1,", "1,000,", "100 ", "1'000", "1.000.", "1/1", "1×10^", "$ ", "a ", "5 a/", "million "]
UNITS += ["1{,}000", "\nQ:", "I hope it is"]
FRAGMENTS = [*UNITS, *"$912-−–x.,'’_%°×³٣１，．٫t#()€~=。İ½ \n\u202f", "\\frac", "\\dfrac12", "\\,", "{,}"]
FRAGMENTS += ["^\\circ", "\\times", "500", "10", "10^", "^{3}", "e3", "ext{a}", "frac", "usd ", "million"]
FRAGMENTS += ["the answer is "]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join) | st.text(max_size=40))
@example("½{,}12")
@example("\\frac\\frac\\text{10^")
@example("\\te\\!xt{a}")
@example("10^\\!³")
@example("..5.0")
@example("1e-41")
def test_every_answer_is_in_canonical_form(text: str) -> None:
    for answer in (normalise(text), extract_answer(text), extract_text(text)):
        assert normalise(answer) == answer


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("unit", UNITS)
def test_a_megabyte_of_anything_is_read_in_time(unit: str) -> None:
    long = unit * (10**6 // len(unit))
    for text in (long, f"\\boxed{{5 {long}!x answer"):
        for read in (*READERS, normalise):
            assert read(text) != ""


EQUAL = {
    "18": ["18.0", "$18", " 18 ", "18.", "+18", "18.000", "018", "1.8e1", "18 eggs", "(18)", "18%"],
    "1234": ["1,234", "1,234.00", "$1,234", "1.234e3", "1234 km/h"],
    "-5": ["-5.0", "-$5", "$-5", "−5", "-5 degrees"],
    "0": ["-0", "0.00", "0e5"],
    "0.5": [".5", "0.50", "5e-1", "5E-1"],
    "2000000": ["2 million", "$2 million", "2,000,000"],
    "blue whale": ["Blue Whale", "  blue\twhale.", '"BLUE WHALE"'],
    "caf\u00e9": ["Cafe\u0301", "CAFE\u0301"],
    "don't know": ["Don’t know."],
    "-1/2": ["−1/2", "-\\frac12", "$-\\frac{1}{2}$", "\\boxed{-\\dfrac{1}{2}}", "-½", "\\frac{-1}{2}"],
    "3 1/2": ["3\\frac12", "3½", "$3\\tfrac{1}{2}$"],
    "90": ["90°", "90 degrees", "90^\\circ", "$90^{\\circ}$", "90\\degree"],
    "9500": ["9,500", "$9{,}500$", "\\$9,\\!500", "9\\,500", "9 500", "9'500", "9’500.00", "USD 9,500"],
    "0.0015": ["1.5e-3", "1.5 × 10^−3", "1.5\\times 10^{-3}", "1.5·10⁻³"],
    "paris": [
        "Paris",
        "\\text{Paris}",
        "$\\mathrm{Paris}$",
        "“Paris”",
        "「Paris」",
        "\\boxed{\\text{Paris.}}",
    ],
    "x \\frac{\\pi}{3}": ["x \\frac{\\pi}{3}", "x \\dfrac{\\pi}{3}"],
}
# Old forms of stored answers, and of golds.
STORED = ["-0.5", "1e41", "3/4", "1,2", "10:30", "2 dozen", "a, b", "1 2", "10 am", "x = 5", "don't"]
DIFFERENT = ["1/2", "-1/2", "(1, 2)", "(-1, 2)", "9 5000", "95000", "1.234.5678", "1,2", "12", "2/4"]
DIFFERENT += ["10:30", "1030"]
DIFFERENT += ["18", "10 am", "10 pm", "10", "3/4", "3", "2 million", "2", "2 dozen"]


@pytest.mark.parametrize(("form", "spellings"), [*EQUAL.items(), *((form, []) for form in STORED)])
def test_equal_answers_become_one_string(form: str, spellings: list[str]) -> None:
    assert {normalise(spelling) for spelling in (form, *spellings)} == {form}


def test_different_answers_stay_different() -> None:
    assert len({normalise(answer) for answer in DIFFERENT}) == len(DIFFERENT)
    assert {normalise(nothing) for nothing in (None, "", "  ", "...", '""')} == {None}
    assert [is_number(each) for each in ("-0.5", "9.9e59", "18 mm", "b12")] == [True, True, False, False]


SOLUTIONS = [
    ("####-5", "-5"),
    ("#### -$5.50", "-5.5"),
    ("#### $-5.50", "-5.5"),
    ("#### 18\n#### 19", "18"),
    ("####\n18", "18"),
    ("#### Blue  Whale!", "blue whale"),
    ("5 apples ####", "5"),
    ("#### **", None),
    ("x=5", "5"),
    ("So 12-5", "5"),
    ("It fell to -7 degrees", "-7"),
    ("about 2 million", "2000000"),
    ("no number here", None),
    ("1e999999999", "999999999"),
    ("9" * 60, "9." + "9" * 59 + "e59"),
]
TEXTS = [
    ("  Paris.\n\n", "paris"),
    ("The answer is Lyon. No,\nthe answer is: **Paris**", "paris"),
    ("ANSWER: Paris\nI am sure.", "paris"),
    ("Let me think.\nParis", "paris"),
    ("Of 3 cities,\n#### Paris, of course\nAnswer: Lyon", "paris, of course"),
    ("Answer: ", "answer"),
    ("#### \nAnswer: Paris", "paris"),
    ("The answer is 18.0 eggs", "18"),
    ("It has several answers", "it has several answers"),
    ("...\n", None),
]


@pytest.mark.parametrize(
    ("read", "text", "answer"),
    [*((extract_answer, *each) for each in SOLUTIONS), *((extract_text, *each) for each in TEXTS)],
)
def test_what_a_text_answers(read: Callable[[str], str | None], text: str, answer: str | None) -> None:
    assert read(text) == answer


@pytest.mark.parametrize(
    ("is_numeric", "answers"),
    [(True, ["18", None]), (False, ["so 18 it is", "paris"])],
)
def test_texts_are_answers_where_a_gold_answer_is_one(is_numeric: bool, answers: list[str | None]) -> None:
    documents = tuple(Document(i, "", "", None, "18", (), "", ()) for i in range(2))
    task = TaskDocuments("b", "t", "1", documents, ("test", "test"), None, 2, "", is_numeric=is_numeric)
    samples = [[Sample("So 18 it is.", 5, "stop", 7)], [Sample("Paris", 1, "stop", 7)]]
    assert pass_rows(task, "m", documents, samples)["answer"].to_pylist() == answers


def test_answers_of_44_real_models_keep_their_form(shared: Path) -> None:
    stored = pq.read_table(shared / "data/gsm8k44/answers.parquet")["answer"].unique().drop_null().to_pylist()
    assert len(stored) > 1000
    for answer in stored:
        form = f"{Decimal(answer).normalize() + 0:f}"
        assert (normalise(answer), normalise(form), extract_answer(answer)) == (form, form, form)

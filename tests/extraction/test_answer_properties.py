"""Numbers come back as themselves, thoughts never count, stored forms stay, and no text takes for ever."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlfocal.extraction.answers import extract_answer, extract_text
from warehouse.answers import normalise

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


# The steps of a solution and its answer as chats show them; below, steps alone.
MARKINGS: dict[str, Callable[[list[str], str], str]] = {
    "#### n": lambda steps, gold: "\n".join(steps) + f"\n#### {gold}",
    "#### n, and more": lambda steps, gold: (
        "\n".join(steps) + f"\n#### {gold}\n\nThis took {len(steps)} steps."
    ),
    "#### n, and another question": lambda steps, gold: (
        "\n".join(steps) + f"\n#### {gold}\n\nQuestion: Tom has 3 and finds 4.\nAnswer: 3 + 4 = 7\n#### 7"
    ),
    "the answer is n": lambda steps, gold: "\n".join(steps) + f"\nThe answer is {gold}.",
    "the answer first": lambda steps, gold: f"The answer is {gold}.\n" + "\n".join(steps),
    "boxed": lambda steps, gold: "\n".join(steps) + f"\n\n$$\\boxed{{{gold}}}$$",
    "boxed first": lambda steps, gold: f"\\boxed{{{gold}}}\n\n" + "\n".join(steps),
    "bold": lambda steps, gold: "\n".join(steps) + f"\nSo it is **{gold}** in 7 days.",
    "thought": lambda steps, gold: "<think>" + "\n".join(steps) + f"\n#### 7</think>\n\nIt is {gold}.",
}
SHAPES: dict[str, Callable[[list[str]], str]] = {
    "bullets": lambda steps: "\n".join(f"- {step}" for step in steps),
    "numbered": lambda steps: "\n".join(f"{i}. {step}" for i, step in enumerate(steps, 1)),
    "bold numbers": lambda steps: "\n".join(f"**{i}.** {step}" for i, step in enumerate(steps, 1)),
    "bold headings": lambda steps: "\n\n".join(f"**Step {i}:** {step}" for i, step in enumerate(steps, 1)),
    "headings": lambda steps: "\n\n".join(f"#### Step {i}:\n{step}" for i, step in enumerate(steps, 1)),
    "numbered headings": lambda steps: "\n\n".join(
        f"#### {i}. Count\n{step}" for i, step in enumerate(steps, 1)
    ),
    "LaTeX": lambda steps: "\n".join(step.replace("*", "\\times").replace("$", "\\$") for step in steps),
    "LaTeX commas": lambda steps: "\n".join(step.replace(",", "{,}") for step in steps),
    "displayed": lambda steps: "\n".join(f"\\[\n{step}\n\\]" for step in steps),
    "end of the turn": lambda steps: "\n".join(steps) + "<|im_end|>\n<|im_start|>user\nAnd 7?",
}


@pytest.fixture(scope="module")
def solutions(shared: Path) -> list[tuple[list[str], str]]:
    """The steps of every public GSM8K solution of the test split, and its answer."""
    texts = pq.read_table(shared / "data/questions/gsm8k_test.parquet")["answer"].to_pylist()
    parts = (re.sub("<<.*?>>", "", text).split("\n####") for text in texts)
    return [([line for line in body.split("\n") if line.strip()], gold.strip()) for body, gold in parts]


@pytest.mark.parametrize("marking", MARKINGS.values(), ids=MARKINGS)
def test_a_marked_answer_is_found_in_every_public_solution(
    solutions: list[tuple[list[str], str]], marking: Callable[[list[str], str], str]
) -> None:
    missed = [gold for steps, gold in solutions if extract_answer(marking(steps, gold)) != normalise(gold)]
    assert missed == []


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_how_steps_are_laid_out_changes_no_answer(
    solutions: list[tuple[list[str], str]], shape: Callable[[list[str]], str]
) -> None:
    plain = [extract_answer("\n".join(steps)) for steps, _ in solutions]
    assert [extract_answer(shape(steps)) for steps, _ in solutions] == plain
    right = [found == normalise(gold) for found, (_, gold) in zip(plain, solutions, strict=True)]
    assert sum(right) / len(right) > 0.95  # a few solutions end in another number than their answer


BLOCKS = [
    "<think>{}</think>",
    "<thinking>{}</thinking>",
    "[THINK]{}[/THINK]",
    "◁think▷{}◁/think▷",
    "{}</think>",
]
BLOCKS += ["<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>"]
THOUGHTS = [
    "#### 72",
    "\\boxed{72",
    "The answer is 72.",
    "**72**",
    "<think>",
    "\n",
    "Question: ",
    "and 72 or so",
    "</s>",
]
SPOKEN = [
    "#### 18",
    "It is 18.",
    "\\boxed{18}",
    "The answer is 18, of 9 eggs.",
    "Paris",
    "Answer: (B)",
    "",
    "I pass.",
]


@given(
    block=st.sampled_from(BLOCKS),
    thought=st.lists(st.sampled_from(THOUGHTS) | st.text(max_size=9), max_size=6).map(" ".join),
    said=st.sampled_from(SPOKEN),
)
def test_what_a_closed_block_holds_never_counts(block: str, thought: str, said: str) -> None:
    for read in READERS:
        assert read(f"{block.format(thought)}\n{said}") == read(said)


@given(
    before=st.sampled_from(["", "\n", "Let me think of 3 ways. "]),
    thought=st.lists(st.sampled_from(THOUGHTS), max_size=6).map(" ".join),
    opening=st.sampled_from(["<think>", "<reasoning>", "[THINK]", "<|channel|>analysis<|message|>"]),
)
def test_a_text_that_ends_in_its_thoughts_has_no_answer(before: str, thought: str, opening: str) -> None:
    assert [read(before + opening + thought) for read in READERS] == [None, None]


FRAGMENTS = [
    "\\text{",
    "\\frac",
    "\\dfrac12",
    "\\boxed{",
    "{",
    "}",
    "\\",
    "\\!",
    "\\,",
    "{,}",
    "^\\circ",
    "\\times",
]
FRAGMENTS += [
    *"$912-−–x.,'’_%°×³٣１，．٫t#()€~=。İ½ \n\u202f",
    "500",
    "1/2",
    "10",
    "10^",
    "^{3}",
    "e3",
    "ext{a}",
    "frac",
]
FRAGMENTS += ["####", "answer: ", "**", "usd ", "million", "<think>", "</think>", "the answer is "]


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join))
@example("½{,}12")
@example("\\frac\\frac\\text{10^")
@example("\\te\\!xt{a}")
@example("10^\\!³")
def test_every_answer_is_in_canonical_form(text: str) -> None:
    for answer in (normalise(text), extract_answer(text), extract_text(text)):
        assert normalise(answer) == answer


EQUAL = {
    "-1/2": [
        "-1/2",
        "−1/2",
        "-\\frac12",
        "$-\\frac{1}{2}$",
        "\\boxed{-\\dfrac{1}{2}}",
        "-½",
        "\\frac{-1}{2}",
    ],
    "3 1/2": ["3 1/2", "3\\frac12", "3½", "$3\\tfrac{1}{2}$"],
    "90": ["90", "90°", "90 degrees", "90^\\circ", "$90^{\\circ}$", "90\\degree"],
    "9500": [
        "9500",
        "9,500",
        "9{,}500",
        "$9{,}500$",
        "\\$9,\\!500",
        "9\\,500",
        "9 500",
        "9'500",
        "9’500.00",
        "USD 9,500",
    ],
    "0.0015": ["0.0015", "1.5e-3", "1.5 × 10^−3", "1.5\\times 10^{-3}", "1.5·10⁻³"],
    "paris": [
        "Paris",
        "\\text{Paris}",
        "$\\mathrm{Paris}$",
        "“Paris”",
        "Paris。",
        "「Paris」",
        "\\boxed{\\text{Paris.}}",
    ],
    "x \\frac{\\pi}{3": ["x \\frac{\\pi}{3}", "x \\dfrac{\\pi}{3}"],
}
DIFFERENT = [
    "1/2",
    "-1/2",
    "(1, 2)",
    "(-1, 2)",
    "9 5000",
    "95000",
    "1.234.5678",
    "1,2",
    "12",
    "2/4",
    "10:30",
    "1030",
]


@pytest.mark.parametrize("form", EQUAL)
def test_equal_answers_become_one_string(form: str) -> None:
    assert {normalise(spelling) for spelling in EQUAL[form]} == {form}


def test_different_answers_stay_different() -> None:
    assert len({normalise(answer) for answer in DIFFERENT}) == len(DIFFERENT)


# Old forms of stored answers, and of golds.
@pytest.mark.parametrize(
    "form",
    ["-0.5", "1e41", "3/4", "1,2", "10:30", "2 dozen", "a, b", "1 2", "10 am", "x = 5", "don't"],
)
def test_stored_forms_stay(form: str) -> None:
    assert normalise(form) == form


def test_answers_of_44_real_models_keep_their_form(shared: Path) -> None:
    stored = pq.read_table(shared / "data/gsm8k44/answers.parquet")["answer"].unique().drop_null().to_pylist()
    assert len(stored) > 1000
    for answer in stored:
        form = f"{Decimal(answer).normalize() + 0:f}"
        assert (normalise(answer), normalise(form), extract_answer(answer)) == (form, form, form)


UNITS = [
    "1",
    "{",
    "}",
    "\\",
    "\\!",
    "\\text{",
    "\\frac{",
    "\\boxed{",
    "\\boxed 1",
    "#### ",
    "####\n",
    " ",
    "\n",
    "½",
]
UNITS += [
    "answer is ",
    "answer:\n",
    "<think>",
    "</think>",
    "<|channel|>final",
    "**1",
    "**1**",
    "- ",
    "1,",
    "1,000,",
]
UNITS += [
    "100 ",
    "1'000",
    "1.000.",
    "1/1",
    "1×10^",
    "$ ",
    "a ",
    "5 a/",
    "million ",
    "1{,}000",
    "\nQ:",
    "I hope it is",
]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("unit", UNITS)
def test_a_megabyte_of_anything_is_read_in_time(unit: str) -> None:
    long = unit * (10**6 // len(unit))
    for text in (long, f"\\boxed{{5 {long}!x answer"):
        for read in (*READERS, normalise):
            assert read(text) != ""

"""Answers as models write them: a corpus with sources, and lm-eval's own filters as its oracle."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import lm_eval
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from lm_eval.api.metrics import exact_match_hf_evaluate
from lm_eval.filters.extraction import RegexFilter
from lm_eval.tasks.drop.utils import get_metrics
from lm_eval.tasks.hendrycks_math.utils import is_equiv, last_boxed_only_string, remove_boxed

from rlfocal.extraction.answers import extract_answer, extract_text
from warehouse.answers import normalise

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


def test_the_corpus_is_wide() -> None:
    assert len(ROWS) == len({json.dumps(row) for row in ROWS}) >= 250
    assert all(row["source"] and all(row.get("differs", {"-": "-"}).values()) for row in ROWS)


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
    for read in READ.values():
        assert read(f"{block.format(thought)}\n{said}") == read(said)


@given(
    before=st.sampled_from(["", "\n", "Let me think of 3 ways. "]),
    thought=st.lists(st.sampled_from(THOUGHTS), max_size=6).map(" ".join),
    opening=st.sampled_from(["<think>", "<reasoning>", "[THINK]", "<|channel|>analysis<|message|>"]),
)
def test_a_text_that_ends_in_its_thoughts_has_no_answer(before: str, thought: str, opening: str) -> None:
    assert [read(before + opening + thought) for read in READ.values()] == [None, None]


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


# Old forms of stored answers, and of golds.
@pytest.mark.parametrize(
    "form",
    ["-0.5", "1e41", "3/4", "1,2", "10:30", "2 dozen", "a, b", "1 2", "10 am", "x = 5", "don't"],
)
def test_stored_forms_stay(form: str) -> None:
    assert normalise(form) == form


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
        for read in (*READ.values(), normalise):
            assert read(text) != ""

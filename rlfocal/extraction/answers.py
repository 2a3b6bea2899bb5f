"""Finds the answer in a generated text, by the rules of docs/extraction.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from warehouse.comparison import (
    CURRENCY_SIGNS,
    MINUS_SIGNS,
    NUMBER,
    Rule,
    canonical_number,
    decimal,
    drop_grouping,
    is_number,
    normalise,
    to_plain_text,
)

_REASONING_TAG = r"(?:[a-z]{2,4}:)?(?:think(?:ing)?|thoughts?|reason(?:ing)?|scratchpad|reflection|analysis)"
REASONING_START = re.compile(
    rf"(?i)<{_REASONING_TAG}(?:\s[^<>]{{0,80}})?>|\[think\]|◁think▷|<\|(?:begin_of_thought|start_thinking)\|>|<unused94>"
    r"|<\|channel\|>\s*(?:analysis|commentary)\b|<\|channel>thought\b|(?-i:\Aanalysis(?=[A-Z]))"
)
REASONING_END = re.compile(
    rf"(?i)</{_REASONING_TAG}\s*>|\[/think\]|◁/think▷|<\|(?:end_of_thought|end_thinking|begin_of_solution|start_response)\|>"
    r"|<\|channel\|>\s*final\b[^\n]{0,40}?<\|message\|>|assistantfinal|<channel\|>|<unused95>|<(?:final_)?answer>"
    r"|\bhere is my response:"
)
ANSWER_END = re.compile(
    r"(?i)</(?:final_)?answer>|</s>|<end_of_turn>|<eos>|<｜end▁of▁sentence｜>"
    r"|<\|(?:(?:im_)?end|eo[tm]_id|return|endoftext|end_of_[a-z]+|end_response)\|>"
)
MARKED_ANSWER = re.compile(r"(?m)(?P<start>^[ \t>*_]*)?#{4,}\s*(?P<line>.*)")
HEADING = re.compile(
    r"(?i)\W*(?:(?:step|part|case|phase|stage)\b|[0-9]+[.):][*_]*\s+\S|(?:solution|explanation|calculations?"
    r"|reasoning|analysis|conclusion|summary|(?:final\s+)?answer)\W*$)"
)
BOXED_ANSWER = re.compile(r"\\(?:boxed|fbox)\s*(?:\{(?!\s*\})|(?=[-+]?[$\\]?[0-9]|\\[dt]?frac))")
STATED_ANSWER = re.compile(
    r"(?im:(?<![/\w])answer\b(?:\s+to\s+(?:the|this|your)\s+(?:question|problem))?[*_\"'\s]*"
    r"(?:\b(?:is|equals|(?:w|sh)ould be)\b|[:：=])|^[#*_ \t]*(?:final\s+)?answer[*_: \t]*\n"
    r"|答案[^\d\n:：]{0,10}?[:：是为])"
)
ANSWER_MARK = re.compile(rf"#{{4,}}|\\boxed|{STATED_ANSWER.pattern}")
NEXT_QUESTION = re.compile(r"(?im)^[ \t]*(?:question|problem|q)[ \t]*:")
BOLD_TEXT = re.compile(r"(?<!\w)\*\*(?=\S)([^*\n]+)(?<=\S)\*\*")
NUMBERING = re.compile(r"^\W*[0-9]+[.):][*_]*\s+(?=\S)")
BULLET = re.compile(r"(?m)^[ \t]*[-+*•–][ \t]+")
DECIMAL_COMMA = re.compile(r"(?<![0-9.,])([0-9]+),([0-9]{1,2})(?![0-9]|[.,][0-9])")
ANSWER_VALUE = re.compile(
    rf"""(?ix)(?P<before>(?:(?<![\w)])[-−–])?\ ?[{CURRENCY_SIGNS}]?\ ?(?:(?<=[{CURRENCY_SIGNS}])[-−–])?)
    (?:(?P<units>[0-9]{{1,6}})\s)?(?<![0-9./])(?P<above>[0-9]{{1,15}})\s?/\s?(?P<below>0{{0,9}}[1-9][0-9]{{0,8}})
    (?![0-9]|[./][0-9])|{NUMBER.pattern}"""
)
LEAD_IN = re.compile(r"(?:\W|approximately\b|about\b|roughly\b|exactly\b|only\b|just\b|[A-Z]{2,3}\b|Rs\b)*")
CONTINUATION = re.compile(
    r"\s*(?:[-+*/×÷^·−x]|times\b|plus\b|minus\b|(?:divided|multiplied)\s+by\b|or\b|to\b|and\b)\s*[$€£(]*[0-9]"
)


def extract_answer(text: str) -> str | None:
    """The normalised number that a generated solution gives as its answer; None if it gives none.

    A fraction becomes a decimal if that is exact. Where a solution ends in "####" and words, those words are
    its answer.

    >>> extract_answer("She pays 3 * $6 = $18.\\n#### $18.00")
    '18'
    >>> extract_answer("so there are 1,234 eggs.")
    '1234'
    """
    return next(filter(None, _find_named_numbers(text)), None)


def _find_named_numbers(text: str) -> Iterator[str | None]:
    """Yields the numbers that a solution may give as its answer, the likeliest first. It yields None for a
    place, such as the line after "####", that holds no number."""
    speech = strip_reasoning(text)
    shown = _clean_text(speech)
    marks, last = _find_marked_lines(shown)
    yield from map(_number, marks)
    yield _number(last, direct=False)
    yield normalise(last) if shown.rstrip().endswith(last.rstrip()) else None
    yield _number(_clean_text(read_boxed(speech)), direct=False)
    for line in _find_stated_lines(shown):
        yield _number(re.split(r"[.!?](?:\s|$)|。", line, maxsplit=1)[0])
    for line in (NUMBERING.sub("", line) for line in reversed(shown.splitlines())):
        yield from map(_number, reversed(BOLD_TEXT.findall(line)))
        yield from map(_read_value, [*ANSWER_VALUE.finditer(line)][-1:])


def extract_text(text: str, rule: Rule = Rule.DEFAULT, gold: str | None = None) -> str | None:
    """The canonical answer of a generated text, which need not be a number; None where the text has no
    answer.

    A unit that the gold answer does not have stays in the answer.

    >>> extract_text("They met in France. So the answer is **Paris**.")
    'paris'
    >>> extract_text("Paris\\n")
    'paris'
    >>> extract_text("It prints **[(4, 1)]**.", Rule.EXACT)
    '[(4, 1)]'
    """
    speech = strip_reasoning(text)
    shown = to_plain_text(speech) if rule is Rule.DEFAULT else speech
    _, last = _find_marked_lines(shown)
    for line in (
        *_find_stated_lines(last),
        last,
        read_boxed(speech),
        *_find_stated_lines(shown),
        *reversed(shown.splitlines()),
    ):
        for candidate in (*reversed(BOLD_TEXT.findall(line)), re.sub(r"I hope it is correct\W*$", "", line)):
            if line.strip() and (answer := rule.canonical(candidate, gold)):
                return answer
    return None


def strip_reasoning(text: str) -> str:
    """The text after a model's reasoning, up to the end of its turn or the next question.

    Where the text is all reasoning, the result is "". Where nothing follows the reasoning, it is the text
    before the reasoning, if an answer is marked there.
    """
    start = max((mark.end() for mark in REASONING_END.finditer(text)), default=0)
    speech, *thought = REASONING_START.split(text[start:], maxsplit=1)
    if not speech.strip():
        speech, *thought = REASONING_START.split(text, maxsplit=1)
        speech *= bool(thought)
    speech = next(filter(str.strip, ANSWER_END.split(speech)), "")
    if not (answered := ANSWER_MARK.search(speech)):
        return "" if thought else speech
    question = NEXT_QUESTION.search(speech, answered.end())
    return speech[: question.start()] if question else speech


def read_boxed(text: str) -> str:
    r"""The content of the last \boxed{} that is not empty; "" without one. An unclosed brace ends with its
    line."""
    *_, last = [None, *BOXED_ANSWER.finditer(text)]
    rest = text[last.end() :] if last else ""
    depth = 1 if last and last[0].endswith("{") else 0
    for brace in re.finditer("[{}]", rest if depth else ""):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return rest[: brace.start()]
    return re.split(r"[$\n]|\\[\])]", rest, maxsplit=1)[0]


def _find_marked_lines(text: str) -> tuple[list[str], str]:
    """The lines after "####" markers that are no headings, and the text's final line among them.

    The final line is "" unless it is the only marked line, or ends the text. Lines after a marker within a
    sentence come last, because the sentence may only mention the marker.
    """
    marks = list(MARKED_ANSWER.finditer(text))
    marks.sort(key=lambda mark: mark["start"] is None and not is_number(normalise(mark["line"]) or ""))
    lines = [mark["line"] for mark in marks if not HEADING.match(mark["line"])]
    last = max(marks, key=lambda mark: mark.end(), default=None)
    counts = last and last["line"] in lines and (len(marks) == 1 or not text[last.end() :].strip())
    return lines, last["line"] if last and counts else ""


def _find_stated_lines(text: str) -> Iterator[str]:
    """The lines that follow phrases such as "answer is", the last line first."""
    return (
        part.strip().lstrip(" \t\n:：").split("\n", 1)[0] for part in reversed(STATED_ANSWER.split(text)[1:])
    )


def _clean_text(text: str) -> str:
    return DECIMAL_COMMA.sub(r"\1.\2", BULLET.sub("", drop_grouping(to_plain_text(text))))


def _number(line: str, *, direct: bool = True) -> str | None:
    """The number with which a line, or its part after the last "=", begins; None if an operator follows the
    number. If not `direct`, the number may stand anywhere in that part."""
    stated = line.rpartition("=")[2]
    value = ANSWER_VALUE.search(stated)
    begins = (
        value and LEAD_IN.fullmatch(stated, 0, value.start()) and not CONTINUATION.match(stated, value.end())
    )
    return _read_value(value) if value and (begins or not direct) else None


def _read_value(match: re.Match[str]) -> str:
    if not match["below"]:
        return canonical_number(match)
    share = Fraction(int(match["above"]), int(match["below"]))
    share += int(match["units"] or 0) if share < 1 else 0
    return decimal(-share if set(match["before"]) & set(MINUS_SIGNS) else share)

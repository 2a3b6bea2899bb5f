"""Answers of generated texts: finding one in a text."""

from __future__ import annotations

import re

from warehouse.answers import NUMBER, canonical, normalise

STATED = re.compile(r"\banswer(?:\s+is\b|\s*:)(.*)", re.IGNORECASE)


def extract_answer(text: str) -> str | None:
    """The normalised answer of a generated solution: what follows the first "####", else the last number.

    None if there is neither.

    >>> extract_answer("She pays 3 * $6 = $18.\\n#### $18.00")
    '18'
    >>> extract_answer("so there are 1,234 eggs.")
    '1234'
    """
    _, marker, tail = text.partition("####")
    if marker and (final := tail.strip().split("\n", 1)[0]):
        # "#### 3 * 6 = 18" states its answer after the sign.
        stated = final.rpartition("=")[2]
        if first := NUMBER.search(stated):
            return canonical(first)
        if answer := normalise(final):
            return answer
    numbers = list(NUMBER.finditer(text))
    return canonical(numbers[-1]) if numbers else None


def extract_text(text: str) -> str | None:
    """The normalised answer of a generated text that need not name a number.

    What follows the first "####", else the last "answer is" or "answer:" of a line, else the last line. None
    where nothing is said.

    >>> extract_text("They met in France. So the answer is **Paris**.")
    'paris'
    >>> extract_text("Paris\\n")
    'paris'
    """
    _, _, tail = text.partition("####")
    final = tail.strip().split("\n", 1)[0]
    candidates = [*text.splitlines(), *STATED.findall(text), final, *STATED.findall(final)]
    for candidate in reversed(candidates):
        if answer := normalise(candidate):
            return answer
    return None
